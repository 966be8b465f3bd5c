// Arrays in memory whose heads are put into the other pair layout: weights, biases, activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "phasor/core/rotary.hpp"
#include "phasor/export.h"

namespace phasor::porting {

// An array where it lies; strides counted in elements, of either sign.
template <class Byte>  // std::byte or const std::byte
struct StridedArray {
  Byte* data = nullptr;
  std::size_t element_bytes = 0;  // 1, 2, 4 or 8
  std::span<const std::int64_t> shape = {}, strides = {};
};
inline constexpr std::size_t kMaxStridedRank = 8;

struct LayoutChange {
  core::PairLayout to = core::PairLayout::half;  // half or interleaved; from: the other one
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
// Features that do not turn stay. What a rotation in the new layout makes of the result is the same
// reordering of what one in the old layout makes of `in`.
//
// throws   Error(invalid_argument | shape_mismatch | unsupported): heads that do not divide the
//          axis, a rotary_dim that is odd or leaves the head, another layout, shapes or element
//          sizes that differ, memory of `in` and `out` that may overlap; before `out` is touched
// cost     one read and one write of the array
PHASOR_API void convert_layout(const LayoutChange& change, std::int64_t axis,
                               const StridedArray<const std::byte>& in,
                               const StridedArray<std::byte>& out);

// The array row-major without gaps, in `out` of as many bytes.
//
// throws   Error(shape_mismatch | unsupported): another size of `out`, more axes than
//          kMaxStridedRank
PHASOR_API void copy_dense(const StridedArray<const std::byte>& in, std::span<std::byte> out);

}  // namespace phasor::porting
