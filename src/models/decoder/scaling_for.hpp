// Scalings that read the context, pinned to one.
#pragma once

#include <cstdint>

#include "phasor/encodings/rope_scaling.hpp"

namespace phasor::models {

// The scaling that gives at every length what `scaling` gives at `context`: a window that runs in
// pieces then has the frequencies of the whole window from its first token on. Scalings that do not
// read the context come back as they are.
[[nodiscard]] encodings::RopeScaling pinned(const encodings::RopeScaling& scaling,
                                            std::int64_t context);

}  // namespace phasor::models
