// Checks of the views of a call, before anything is written.
#pragma once

#include <cstdint>
#include <span>

#include "phasor/core/rotate.hpp"

namespace phasor::core {

// The same memory in the same order.
[[nodiscard]] bool same_view(const ConstHeadsView& a, const ConstHeadsView& b) noexcept;

// Whether two views share an element: exact for slices of one buffer that share token strides, such
// as q and k of a fused qkv; else by extent.
[[nodiscard]] bool overlap(const ConstHeadsView& a, const ConstHeadsView& b) noexcept;
// Whether two indices of one view reach the same element.
[[nodiscard]] bool overlaps_itself(const ConstHeadsView& view) noexcept;

// throws   Error(shape_mismatch | invalid_argument) naming the first thing that disagrees: shapes
//          within a tensor pair and between them, head_dim, dtypes, null data, an output that overlaps
//          itself, another output, or an input that is not the same view
void check_rotations(std::int64_t head_dim, std::span<const Rotation> rotations);

}  // namespace phasor::core
