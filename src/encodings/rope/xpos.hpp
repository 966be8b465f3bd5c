// xPos: scores of pairs with high frequency fade with distance.
#pragma once

#include <cstdint>
#include <optional>

#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::encodings {

// throws   Error(invalid_argument)
void check(const Xpos& xpos);
// throws   Error(invalid_argument) when the centre depends on the context and none is given
[[nodiscard]] core::Growth growth_of(const Xpos& xpos, std::int64_t rotary_dim,
                                     std::optional<std::int64_t> context);

}  // namespace phasor::encodings
