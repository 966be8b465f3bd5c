#include "phasor/core/internal/extent.hpp"

#include <array>
#include <cmath>

#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::core {
namespace {

// Whether sizes and strides are so small that no sum or product of them reaches kMaxExtentBytes.
bool is_small(const ConstHeadsView& view) noexcept {
  constexpr int kCountBits = 13, kStrideBits = 37;
  // Four counts make 2^52 elements of at most 2^3 bytes; three counts times strides less than 2^52.
  // Negative numbers have high bits.
  const std::int64_t counts = view.batch | view.tokens | view.heads | view.head_dim;
  const std::int64_t strides = view.batch_stride | view.token_stride | view.head_stride;
  return (counts >> kCountBits) == 0 && (strides >> kStrideBits) == 0;
}

}  // namespace

bool is_addressable(std::span<const Dimension> dimensions, std::size_t element_bytes) noexcept {
  // In double, which cannot overflow; its rounding is far below the room between 2^56 and 2^63.
  double elements = 1.0, span = 0.0;
  bool empty = false;
  for (const auto [count, stride] : dimensions) {
    empty |= count <= 0;
    if (count <= 1) continue;
    elements *= static_cast<double>(count);
    span += static_cast<double>(count) * std::fabs(static_cast<double>(stride));
  }
  constexpr auto kMost = static_cast<double>(kMaxExtentBytes);
  const auto bytes = static_cast<double>(element_bytes);
  return elements * bytes <= kMost && (empty || span * bytes <= kMost);
}

void check_extent(std::string_view where, std::string_view name, const ConstHeadsView& view) {
  if (is_small(view)) return;  // at no cost: a decode step checks every tensor
  const std::array<Dimension, 4> dimensions{{{view.batch, view.batch_stride},
                                             {view.tokens, view.token_stride},
                                             {view.heads, view.head_stride},
                                             {view.head_dim, 1}}};
  if (is_addressable(dimensions, size_of(view.dtype))) return;
  const std::int64_t strides[] = {view.batch_stride, view.token_stride, view.head_stride, 1};
  refuse(ErrorCode::out_of_range,
         message(where, ": ", name, " must lie within 2^56 bytes, got the shape ", shape_text(view),
                 " with the strides ", shape_text(strides)));
}

}  // namespace phasor::core
