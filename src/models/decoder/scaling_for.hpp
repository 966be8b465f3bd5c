// Scalings that depend on the context, fixed at one context.
#pragma once

#include <cstdint>

#include "phasor/encodings/rope.hpp"

namespace phasor::models {

// The scaling that has at every length the frequencies of `scaling` at `context`: a window that is
// computed in chunks then uses the frequencies of the whole window from its first token on. Scalings
// that do not depend on the context are returned unchanged.
[[nodiscard]] encodings::RopeScaling pinned(const encodings::RopeScaling& scaling,
                                            std::int64_t context);

}  // namespace phasor::models
