#include "parax/cli/machine_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "parax/base/error.h"

namespace parax {
namespace {

constexpr const char* kWhole = R"(name = "1x4"
sockets = 1
domains = 2
cores_per_domain = 4
gflops_per_core = 100.5
bandwidth_cores = [1, 2, 4]
bandwidth_gbytes = [20, 30, 40]
remote_factor = 1.5
l2_mib_per_core = 1
l3_mib_per_domain = 8
)";

std::string With(const std::string& from, const std::string& to) {
  std::string text = kWhole;
  return text.replace(text.find(from), from.size(), to);
}

std::string ErrorOf(const std::string& toml) {
  try {
    (void)ParseMachine(toml, "m.toml");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

TEST(ParseMachine, ReadsAllAndFillsInTheCurve) {
  const MachineModel machine = ParseMachine(kWhole, "m.toml");
  EXPECT_EQ(machine.name, "1x4");
  EXPECT_EQ(machine.cores(), 8);
  EXPECT_EQ(machine.core_flops, 100.5e9);
  EXPECT_EQ(machine.bandwidth, (std::vector<double>{20e9, 30e9, 35e9, 40e9}));
  EXPECT_EQ(machine.remote_factor, 1.5);
  EXPECT_EQ(machine.cache_per_core, 3 * 1024 * 1024);
}

TEST(ParseMachine, ReadsThoseOfTheTree) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(PARAX_SOURCE_DIR "/machines")) {
    const MachineModel machine = ReadMachine(file.path());
    EXPECT_EQ(machine.domains, machine.sockets) << file.path();
    EXPECT_LT(machine.bandwidth[0], machine.bandwidth.back());
    ++files;
  }
  EXPECT_EQ(files, 3);
}

TEST(ParseMachine, SaysInOneLineWhatIsWrong) {
  EXPECT_EQ(ErrorOf(With("sockets = 1\n", "")), "m.toml: sockets is missing");
  EXPECT_EQ(ErrorOf(With("domains = 2", "domains = 2.5")),
            "m.toml:3: domains is 2.5; it must be a whole number");
  EXPECT_EQ(ErrorOf(With("domains = 2", "domains = 0")),
            "m.toml:3: domains is '0'; it must be a number from 1 to 64");
  EXPECT_EQ(ErrorOf(With("domains = 2", "domains = [2]")),
            "m.toml:3: domains must be one number, no list");
  EXPECT_EQ(ErrorOf(With("100.5", "nan")),
            "m.toml:5: gflops_per_core is 'nan'; it must be a number from 0.001 to 1000000");
  EXPECT_EQ(ErrorOf(With("remote_factor", "remote_facter")),
            "m.toml:8: 'remote_facter' is not known; do you mean remote_factor?");
  EXPECT_EQ(ErrorOf(With("[1, 2, 4]", "[1, 4, 4]")),
            "m.toml:6: bandwidth_cores must rise from 1 to cores_per_domain, 4");
  EXPECT_EQ(ErrorOf(With("[1, 2, 4]", "[1, 2, 3]")),
            "m.toml:6: bandwidth_cores must rise from 1 to cores_per_domain, 4");
  EXPECT_EQ(ErrorOf(With("[20, 30, 40]", "[20, 30]")),
            "m.toml:7: bandwidth_gbytes has 2 values; it must have one for each of the 3 in "
            "bandwidth_cores");
  EXPECT_EQ(ErrorOf(With("[20, 30, 40]", "[20, 0, 40]")),
            "m.toml:7: bandwidth_gbytes is '0'; it must be a number from 0.001 to 1000000");
  EXPECT_EQ(ErrorOf(With("[1, 2, 4]", "4")),
            "m.toml:6: bandwidth_cores must be a list of numbers, such as [1, 2, 4]");
  EXPECT_EQ(ErrorOf("name = 3\n"), "m.toml: sockets is missing");
  EXPECT_EQ(ErrorOf(""), "m.toml: name is missing, such as name = \"2x28 Xeon Platinum 8280\"");
}

}  // namespace
}  // namespace parax
