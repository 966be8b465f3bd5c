#include "core/system/cache_sizes.hpp"

#if defined(__linux__)
#include <unistd.h>
#endif

namespace phasor::core {
namespace {

std::int64_t ask() noexcept {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (bytes > 0) return bytes;
#endif
  return std::int64_t{1} << 20;
}

}  // namespace

std::int64_t l2_cache_bytes() noexcept {
  static const std::int64_t bytes = ask();
  return bytes;
}

}  // namespace phasor::core
