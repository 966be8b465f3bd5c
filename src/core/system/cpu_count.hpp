// How many CPUs the system lets this process use.
#pragma once

#include <filesystem>

namespace phasor::core {

// Where the system has these files; tests use their own folders.
struct SystemFolders {
  std::filesystem::path process = "/proc/self";
  std::filesystem::path control_groups = "/sys/fs/cgroup";
};

// The least CPU quota of the process's control group and those above it, in CPUs, rounded up; 0
// when there is none. What is missing or malformed counts as no quota.
//   version 2   cpu.max: "QUOTA PERIOD" or "max PERIOD"
//   version 1   cpu.cfs_quota_us, cpu.cfs_period_us; -1: no quota
[[nodiscard]] int cpu_quota(const SystemFolders& folders);

// CPUs of the affinity mask, at most cpu_quota(), at least 1.
[[nodiscard]] int count_cpus(const SystemFolders& folders);

}  // namespace phasor::core
