// Converts arrays in memory to the other pair layout: weights, biases, activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "phasor/core/rotary.hpp"
#include "phasor/export.h"

namespace phasor::porting {

// A view of an array; strides in elements, may be negative.
template <class Byte>  // std::byte or const std::byte
struct StridedArray {
  Byte* data = nullptr;
  std::size_t element_bytes = 0;  // 1, 2, 4 or 8
  std::span<const std::int64_t> shape = {}, strides = {};
};
inline constexpr std::size_t kMaxStridedRank = 8;

struct LayoutChange {
  core::PairLayout to = core::PairLayout::half;  // half or interleaved; the input has the other one
  std::int64_t heads = 0;
  std::optional<std::int64_t> rotary_dim =
      std::nullopt;  // none: all features from rotary_offset on
  std::int64_t rotary_offset = 0;
};

// Reorders the features of each head along `axis`, whose length is heads * head_dim:
//
//   half i        <->  interleaved 2i        i < rotary_dim / 2, counted from rotary_offset
//   half i + R/2  <->  interleaved 2i + 1
//
// Features that are not rotated do not move. Rotating the result in the new layout gives the same
// reordering of `in` rotated in the old layout.
//
// throws   Error(invalid_argument | shape_mismatch | unsupported): heads that do not divide the
//          axis, a rotary_dim that is odd or larger than the head, another layout, shapes or element
//          sizes that differ, memory of `in` and `out` that may overlap; before `out` is written
// cost     one read and one write of the array
PHASOR_API void convert_layout(const LayoutChange& change, std::int64_t axis,
                               const StridedArray<const std::byte>& in,
                               const StridedArray<std::byte>& out);

// Copies the array to `out`, row-major and contiguous.
//
// throws   Error(shape_mismatch | unsupported): `out` of another size, more than kMaxStridedRank
//          axes
PHASOR_API void copy_dense(const StridedArray<const std::byte>& in, std::span<std::byte> out);

}  // namespace phasor::porting
