// What the system says about the caches of a core.
#pragma once

#include <cstdint>

namespace phasor::core {

// Bytes of a core's L2 cache; 1 MiB if the system does not say.
[[nodiscard]] std::int64_t l2_cache_bytes() noexcept;

}  // namespace phasor::core
