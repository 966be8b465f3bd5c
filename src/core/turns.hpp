// What must hold of the views of a call before anything is written.
#pragma once

#include <cstdint>
#include <span>

#include "phasor/core/rotate.hpp"

namespace phasor::core {

// The same memory in the same order.
[[nodiscard]] bool same_view(const ConstHeadsView& a, const ConstHeadsView& b) noexcept;

// throws   Error(shape_mismatch | invalid_argument) naming the first thing that disagrees: shapes
//          within a turn and between turns, head_dim, dtypes, null data, an output that overlaps
//          itself, another output, or an input that is not the same view
void check_turns(std::int64_t head_dim, std::span<const Turn> turns);

}  // namespace phasor::core
