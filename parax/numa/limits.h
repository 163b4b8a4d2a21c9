#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>

namespace parax {

// The least limits that this process's control groups and all their ancestors set. A file is named
// as the process sees it (without TopologyOptions::root), "" when nothing limits.
struct CgroupLimits {
  double cpus = std::numeric_limits<double>::infinity();
  std::string cpus_file;
  size_t memory_bytes = std::numeric_limits<size_t>::max();
  std::string memory_file;
};

// Reads cgroup v1, v2 and mixtures of both, with or without a cgroup namespace. Never throws.
CgroupLimits ReadCgroupLimits(const std::filesystem::path& root = "/");

}  // namespace parax
