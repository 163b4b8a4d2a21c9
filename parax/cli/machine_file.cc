#include "parax/cli/machine_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/text.h"
#include "parax/cli/toml.h"

namespace parax {
namespace {

constexpr size_t kMostFileBytes = size_t{1} << 20;
constexpr double kMostCores = 1024, kMostDomains = 64;
constexpr double kMostRate = 1e6;  // G a second

// The numbers of a file by key, each asked for once.
class Numbers {
 public:
  Numbers(const std::vector<TomlItem>& items, const std::string& where) : where_(where) {
    for (const TomlItem& item : items) items_.emplace(item.key, &item);
  }

  std::vector<double> List(const std::string& key, double least, double most) {
    const TomlItem& item = Item(key);
    if (!item.is_array || item.values.empty()) {
      FailUsage("{}:{}: {} must be a list of numbers, such as [1, 2, 4]", where_, item.line, key);
    }
    std::vector<double> numbers;
    for (const std::string& value : item.values) {
      numbers.push_back(Number(item, value, least, most));
    }
    return numbers;
  }
  double One(const std::string& key, double least, double most) {
    const TomlItem& item = Item(key);
    if (item.is_array) FailUsage("{}:{}: {} must be one number, no list", where_, item.line, key);
    return Number(item, item.values[0], least, most);
  }
  int Whole(const std::string& key, double most) {
    const double value = One(key, 1, most);
    if (value != std::floor(value)) {
      FailUsage("{}:{}: {} is {}; it must be a whole number", where_, line(key), key, value);
    }
    return static_cast<int>(value);
  }
  int line(const std::string& key) const { return items_.at(key)->line; }

 private:
  const TomlItem& Item(const std::string& key) const {
    const auto found = items_.find(key);
    if (found == items_.end()) FailUsage("{}: {} is missing", where_, key);
    return *found->second;
  }
  double Number(const TomlItem& item, const std::string& text, double least, double most) const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool number = error == std::errc() && end == text.data() + text.size();
    if (!number || !(value >= least && value <= most)) {
      FailUsage("{}:{}: {} is '{}'; it must be a number from {} to {}", where_, item.line, item.key,
                Printable(text), least, most);
    }
    return value;
  }

  const std::string& where_;
  std::map<std::string, const TomlItem*> items_;
};

void CheckKeys(const std::vector<TomlItem>& items, const std::string& where) {
  static const std::vector<std::string> known = {"name",
                                                 "sockets",
                                                 "domains",
                                                 "cores_per_domain",
                                                 "gflops_per_core",
                                                 "bandwidth_cores",
                                                 "bandwidth_gbytes",
                                                 "remote_factor",
                                                 "l2_mib_per_core",
                                                 "l3_mib_per_domain"};
  for (const TomlItem& item : items) {
    if (std::ranges::find(known, item.key) != known.end()) continue;
    const std::string near = Nearest(item.key, known);
    FailUsage("{}:{}: '{}' is not known{}", where, item.line, Printable(item.key),
              near.empty() ? "" : "; do you mean " + near + "?");
  }
}

// Along straight lines between the points: a value for every number of cores.
std::vector<double> Curve(Numbers& numbers, int cores, const std::string& where) {
  const std::vector<double> at = numbers.List("bandwidth_cores", 1, kMostCores);
  const std::vector<double> values = numbers.List("bandwidth_gbytes", 1e-3, kMostRate);
  if (at.size() != values.size()) {
    FailUsage(
        "{}:{}: bandwidth_gbytes has {} values; it must have one for each of the {} in "
        "bandwidth_cores",
        where, numbers.line("bandwidth_gbytes"), values.size(), at.size());
  }
  if (at.front() != 1 || at.back() != cores ||
      std::ranges::adjacent_find(at, std::greater_equal<>()) != at.end()) {
    FailUsage("{}:{}: bandwidth_cores must rise from 1 to cores_per_domain, {}", where,
              numbers.line("bandwidth_cores"), cores);
  }
  std::vector<double> curve;
  size_t next = 0;
  for (int n = 1; n <= cores; ++n) {
    while (at[next] < n) ++next;
    double value = values[next];
    if (at[next] > n) {
      const double along = (n - at[next - 1]) / (at[next] - at[next - 1]);
      value = values[next - 1] + along * (values[next] - values[next - 1]);
    }
    curve.push_back(1e9 * value);
  }
  return curve;
}

}  // namespace

MachineModel ParseMachine(std::string_view toml, const std::string& where) {
  const std::vector<TomlItem> items = ParseToml(toml, where);
  CheckKeys(items, where);
  Numbers numbers(items, where);
  MachineModel machine;
  const auto name = std::ranges::find(items, "name", &TomlItem::key);
  if (name == items.end() || name->is_array || name->values[0].empty()) {
    FailUsage("{}: name is missing, such as name = \"2x28 Xeon Platinum 8280\"", where);
  }
  machine.name = Printable(name->values[0]);
  machine.sockets = numbers.Whole("sockets", kMostDomains);
  machine.domains = numbers.Whole("domains", kMostDomains);
  machine.cores_per_domain = numbers.Whole("cores_per_domain", kMostCores);
  machine.core_flops = 1e9 * numbers.One("gflops_per_core", 1e-3, kMostRate);
  machine.bandwidth = Curve(numbers, machine.cores_per_domain, where);
  machine.remote_factor = numbers.One("remote_factor", 1, 100);
  constexpr double kMiB = 1024.0 * 1024.0;
  machine.cache_per_core =
      kMiB * (numbers.One("l2_mib_per_core", 0, 1e4) +
              numbers.One("l3_mib_per_domain", 0, 1e6) / machine.cores_per_domain);
  return machine;
}

MachineModel ReadMachine(const std::filesystem::path& file) {
  return ParseMachine(ReadFile(file, kMostFileBytes), file.string());
}

}  // namespace parax
