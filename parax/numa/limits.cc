#include "parax/numa/limits.h"

#include <sstream>
#include <vector>

#include "parax/numa/sysfs.h"

namespace parax {
namespace {

namespace fs = std::filesystem;

// A mounted hierarchy: what it controls ("" for v2) and which cgroup its mount point shows.
struct Mount {
  std::string controllers;  // ",cpu,cpuacct,"; "" for v2
  std::string cgroup;       // "/" unless only a subtree is mounted, as in containers
  fs::path point;
};

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

// proc(5): "36 35 98:0 /cgroup /point options optional... - type source super-options".
std::vector<Mount> ReadMounts(const fs::path& root) {
  std::vector<Mount> mounts;
  for (const std::string& line : Split(SystemText(root / "proc/self/mountinfo"), '\n')) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const auto left = Split(line.substr(0, dash), ' ');
    const auto right = Split(line.substr(dash + 3), ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    if (right[0] == "cgroup2") mounts.push_back({"", left[3], left[4]});
    if (right[0] == "cgroup") mounts.push_back({"," + right[2] + ",", left[3], left[4]});
  }
  if (!mounts.empty()) return mounts;
  return {{"", "/", "/sys/fs/cgroup"},
          {",cpu,", "/", "/sys/fs/cgroup/cpu"},
          {",memory,", "/", "/sys/fs/cgroup/memory"}};
}

class LimitReader {
 public:
  explicit LimitReader(const fs::path& root) : root_(root) {}

  // From `cgroup` up to the mount point: an ancestor's limit binds its descendants.
  void Walk(const Mount& mount, const std::string& cgroup) {
    std::string relative = cgroup;
    const bool shown =
        mount.cgroup == "/" || cgroup == mount.cgroup || cgroup.starts_with(mount.cgroup + "/");
    if (!shown || cgroup.find("/..") != std::string::npos) {
      relative.clear();  // outside of what is mounted: the mount point is all we can see
    } else if (mount.cgroup != "/") {
      relative.erase(0, mount.cgroup.size());
    }
    for (fs::path inside = fs::path(relative).relative_path();; inside = inside.parent_path()) {
      const fs::path folder = inside.empty() ? mount.point : mount.point / inside;
      if (mount.controllers.empty()) {
        ReadV2(folder);
      } else {
        ReadV1(folder);
      }
      if (inside.empty()) return;
    }
  }

  CgroupLimits limits;

 private:
  std::string Text(const fs::path& file) const { return SystemText(root_ / file.relative_path()); }

  void Quota(double quota, double period, const fs::path& file) {
    if (quota <= 0 || period <= 0 || quota / period >= limits.cpus) return;
    limits.cpus = quota / period;
    limits.cpus_file = file.string();
  }

  void Memory(const fs::path& file) {
    const auto bytes = ParseSize(Text(file));  // "max" does not parse
    if (!bytes || *bytes >= limits.memory_bytes) return;
    limits.memory_bytes = *bytes;
    limits.memory_file = file.string();
  }

  void ReadV2(const fs::path& folder) {
    double quota = 0;
    double period = 0;
    std::istringstream in(Text(folder / "cpu.max"));
    if (in >> quota >> period) Quota(quota, period, folder / "cpu.max");
    Memory(folder / "memory.max");
    Memory(folder / "memory.high");  // beyond it the kernel throttles us almost to a halt
  }

  void ReadV1(const fs::path& folder) {
    double quota = -1;
    double period = 0;
    std::istringstream(Text(folder / "cpu.cfs_quota_us")) >> quota;
    std::istringstream(Text(folder / "cpu.cfs_period_us")) >> period;
    Quota(quota, period, folder / "cpu.cfs_quota_us");
    Memory(folder / "memory.limit_in_bytes");
  }

  fs::path root_;
};

// Whether a line of /proc/self/cgroup ("cpu,cpuacct" or "" for v2) belongs to the mount.
bool Matches(const Mount& mount, const std::string& controllers) {
  if (controllers.empty() || mount.controllers.empty()) {
    return controllers.empty() && mount.controllers.empty();
  }
  for (const std::string& controller : Split(controllers, ',')) {
    if ((controller == "cpu" || controller == "memory") &&
        mount.controllers.find("," + controller + ",") != std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace

CgroupLimits ReadCgroupLimits(const fs::path& root) {
  LimitReader reader(root);
  const std::vector<Mount> mounts = ReadMounts(root);
  for (const std::string& line : Split(SystemText(root / "proc/self/cgroup"), '\n')) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    for (const Mount& mount : mounts) {
      if (Matches(mount, controllers)) reader.Walk(mount, line.substr(second + 1));
    }
  }
  return reader.limits;
}

}  // namespace parax
