#include "core/system/cpu_count.hpp"

#include <algorithm>
#include <thread>

#if defined(__linux__)
#include <sched.h>

#include <charconv>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#endif

namespace phasor::core {
namespace {

int least(int a, int b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); }

#if defined(__linux__)
// Quota and period in microseconds.
struct Quota {
  std::int64_t time = 0, period = 0;
};

std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

// A positive number and nothing else.
std::optional<std::int64_t> positive(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

Quota quota_v2(const std::filesystem::path& group) {
  const std::string line = first_line(group / "cpu.max");
  const std::size_t space = line.find(' ');
  if (space == std::string::npos) return {};
  const std::string_view text = line;
  return {positive(text.substr(0, space)).value_or(0),
          positive(text.substr(space + 1)).value_or(0)};
}

Quota quota_v1(const std::filesystem::path& group) {
  return {positive(first_line(group / "cpu.cfs_quota_us")).value_or(0),
          positive(first_line(group / "cpu.cfs_period_us")).value_or(0)};
}

// From the process's group up to the root: a container often sees its own group as the root, so
// that the folders of the path above it do not exist.
template <class Read>
int least_quota(const std::filesystem::path& root, std::string_view path, Read read) {
  int cpus = 0;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.remove_suffix(1);
    // The path of a group outside the process's namespace begins with "/..".
    const bool leaves_root = path.starts_with("/..");
    const Quota quota = read(leaves_root || path.empty() ? root : root / path.substr(1));
    if (quota.time > 0 && quota.period > 0) {
      const std::int64_t rounded_up =
          quota.time / quota.period + (quota.time % quota.period != 0 ? 1 : 0);
      cpus = least(cpus, static_cast<int>(
                             std::min<std::int64_t>(rounded_up, std::numeric_limits<int>::max())));
    }
    if (path.empty() || leaves_root) return cpus;
    path = path.substr(0, path.rfind('/'));
  }
}

bool names_cpu(std::string_view controllers) {
  for (;;) {
    const std::size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "cpu") return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
}

#endif

int cpus_of_affinity_mask() {
#if defined(__linux__)
  // The kernel refuses a mask smaller than its own, whose size is unknown.
  for (std::size_t sets = 1; sets <= 256; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const std::size_t bytes = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
  }
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int cpu_quota([[maybe_unused]] const SystemFolders& folders) {
  int cpus = 0;
#if defined(__linux__)  // others have no control groups
  std::ifstream groups(folders.process / "cgroup");
  // ID:CONTROLLERS:PATH; version 2 has the ID 0 and no controllers.
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string_view text = line;
    const std::string_view controllers = text.substr(first + 1, second - first - 1);
    const std::string_view path = text.substr(second + 1);
    if (controllers.empty()) {
      cpus = least(cpus, least_quota(folders.control_groups, path, quota_v2));
    } else if (names_cpu(controllers)) {
      for (const std::string_view mount : {controllers, std::string_view("cpu")})
        cpus = least(cpus, least_quota(folders.control_groups / mount, path, quota_v1));
    }
  }
#endif
  return cpus;
}

int count_cpus(const SystemFolders& folders) {
  return std::max(1, least(std::max(0, cpus_of_affinity_mask()), cpu_quota(folders)));
}

}  // namespace phasor::core
