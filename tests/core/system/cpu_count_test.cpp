#include "core/system/cpu_count.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "support/temporary_folder.hpp"

namespace phasor::core {
namespace {

// A made-up /proc/self and /sys/fs/cgroup.
class CpuCount : public io::testing::TemporaryFolder {
 protected:
  void write(const std::string& path, std::string_view text) {
    std::filesystem::create_directories(at(path).parent_path());
    io::testing::put(at(path), text);
  }
  [[nodiscard]] int quota() const { return cpu_quota({at("self"), at("cgroup")}); }
  [[nodiscard]] int count() const { return count_cpus({at("self"), at("cgroup")}); }
};

TEST_F(CpuCount, WithoutControlGroupsThereIsNoQuota) {
  EXPECT_EQ(quota(), 0);
  EXPECT_GE(count(), 1);
}

TEST_F(CpuCount, AQuotaIsRoundedUp) {
  write("self/cgroup", "0::/\n");
  for (const auto& [text, cpus] : {std::pair{"200000 100000\n", 2},
                                   {"150000 100000\n", 2},
                                   {"100001 100000\n", 2},
                                   {"1000 100000\n", 1},
                                   {"max 100000\n", 0}}) {
    write("cgroup/cpu.max", text);
    EXPECT_EQ(quota(), cpus) << text;
  }
}

TEST_F(CpuCount, TheLeastQuotaOnTheWayToTheRootHolds) {
  write("self/cgroup", "0::/outer/inner\n");
  write("cgroup/outer/inner/cpu.max", "800000 100000\n");
  EXPECT_EQ(quota(), 8);
  write("cgroup/outer/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota(), 3);
  write("cgroup/cpu.max", "500000 100000\n");
  EXPECT_EQ(quota(), 3);
  write("cgroup/other/cpu.max", "100000 100000\n");
  EXPECT_EQ(quota(), 3) << "another group's";
}

TEST_F(CpuCount, AContainerSeesItsGroupAsTheRoot) {
  write("cgroup/cpu.max", "400000 100000\n");
  write("self/cgroup", "0::/docker/0123456789\n");
  EXPECT_EQ(quota(), 4);
  write("self/cgroup", "0::/../../elsewhere\n");
  EXPECT_EQ(quota(), 4);
}

TEST_F(CpuCount, VersionOneHasItsOwnFiles) {
  write("self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job\n1:cpuset:/\n0::/\n");
  write("cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
  write("cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 3);
  write("cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota(), 0);
  write("cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  write("cgroup/cpu/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(quota(), 2);
}

TEST_F(CpuCount, MalformedFilesCountAsNoQuota) {
  write("self/cgroup", "0::/\n");
  for (const std::string_view text :
       {"", "\n", "max", "100000", "many 100000", "100000 many", "-100000 100000", "100000 0",
        "0 100000", "100000 -5", "100000  100000", "100000 100000 7", "99999999999999999999 100000",
        "1e5 100000"}) {
    write("cgroup/cpu.max", text);
    EXPECT_EQ(quota(), 0) << text;
  }
  write("cgroup/cpu.max", "100000 100000\n");
  for (const std::string_view text : {"", "0", "0:", "0::", "0::job", ":::::", "0:/"}) {
    write("self/cgroup", text);
    EXPECT_EQ(quota(), 0) << text;
  }
  write("self/cgroup", "nonsense\n\n0::/\n");
  EXPECT_EQ(quota(), 1) << "the lines that are well formed count";
}

TEST_F(CpuCount, TheCountIsAtMostTheQuota) {
  write("self/cgroup", "0::/\n");
  write("cgroup/cpu.max", "1000 100000\n");
  EXPECT_EQ(count(), 1);
  write("cgroup/cpu.max", "9223372036854775807 1\n");
  EXPECT_GE(count(), 1);
}

}  // namespace
}  // namespace phasor::core
