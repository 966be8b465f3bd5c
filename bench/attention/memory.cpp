#include "attention/memory.hpp"

#include <algorithm>
#include <fstream>
#include <string>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace phasor::bench {
namespace {

// A line of /proc/self/status, such as "VmHWM:     1234 kB".
std::optional<std::int64_t> status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return std::nullopt;
}

// Writing 5 sets VmHWM to what is resident now.
bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << 5 << std::flush;
  return file.good();
}

}  // namespace

std::optional<std::int64_t> peak_growth(const std::function<void()>& work) {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  if (!reset_peak()) return std::nullopt;
  const std::optional<std::int64_t> before = status_bytes("VmHWM");
  work();
  const std::optional<std::int64_t> after = status_bytes("VmHWM");
  if (!before || !after) return std::nullopt;
  return std::max<std::int64_t>(*after - *before, 0);
}

}  // namespace phasor::bench
