#include "phasor/core/internal/extent.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::core {

bool is_addressable(std::span<const Dimension> dimensions, std::size_t element_bytes) noexcept {
  const bool empty = std::any_of(dimensions.begin(), dimensions.end(),
                                 [](const Dimension& d) { return d.count <= 0; });
  const std::int64_t most = kMaxExtentBytes / static_cast<std::int64_t>(element_bytes);
  std::int64_t elements = 1, span = 0;
  for (const auto [count, stride] : dimensions) {
    if (count <= 1) continue;
    if (__builtin_mul_overflow(elements, count, &elements) || elements > most) return false;
    if (empty) continue;
    std::int64_t reach = 0;
    if (stride == std::numeric_limits<std::int64_t>::min() ||
        __builtin_mul_overflow(count, std::abs(stride), &reach) ||
        __builtin_add_overflow(span, reach, &span) || span > most) {
      return false;
    }
  }
  return true;
}

void check_extent(std::string_view where, std::string_view name, const ConstHeadsView& view) {
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
