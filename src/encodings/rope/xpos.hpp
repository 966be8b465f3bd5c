// xPos: pairs that turn fast fade with distance.
#pragma once

#include <cstdint>
#include <optional>

#include "phasor/core/rotary.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::encodings {

// throws   Error(invalid_argument)
void check(const Xpos& xpos);
// throws   Error(invalid_argument) when the centre follows the context and there is none
[[nodiscard]] core::Growth growth_of(const Xpos& xpos, std::int64_t rotary_dim,
                                     std::optional<std::int64_t> context);

}  // namespace phasor::encodings
