#include "phasor/core/internal/rotations.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "phasor/core/error.hpp"
#include "phasor/core/internal/extent.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::core {
namespace {

bool is_empty(const ConstHeadsView& view) noexcept {
  return view.batch == 0 || view.tokens == 0 || view.heads == 0 || view.head_dim == 0;
}

std::array<Dimension, 4> dimensions(const ConstHeadsView& view) noexcept {
  return {{{view.batch, view.batch_stride},
           {view.tokens, view.token_stride},
           {view.heads, view.head_stride},
           {view.head_dim, 1}}};
}

// Addresses of the first byte and of the byte after the last: comparable between
// views.
struct Extent {
  std::int64_t begin, end;
};
Extent extent_of(const ConstHeadsView& view) noexcept {
  std::int64_t low = 0, high = 0;
  for (const Dimension& d : dimensions(view))
    (d.stride < 0 ? low : high) += (d.count - 1) * d.stride;
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  const auto data = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(view.data));
  return {data + low * size, data + (high + 1) * size};
}

}  // namespace

// Whether two indices reach one element: each stride must step over all that the smaller ones span.
bool overlaps_itself(const ConstHeadsView& view) noexcept {
  // The usual order, found without sorting.
  if (view.head_stride >= view.head_dim && view.token_stride >= view.heads * view.head_stride &&
      (view.batch == 1 || view.batch_stride >= view.tokens * view.token_stride)) {
    return false;
  }
  auto dims = dimensions(view);
  for (Dimension& d : dims) {
    if (d.count == 1) d.stride = 0;  // any number, perhaps one without an absolute value
  }
  std::sort(dims.begin(), dims.end(), [](const Dimension& a, const Dimension& b) {
    return std::abs(a.stride) < std::abs(b.stride);
  });
  std::int64_t span = 1;
  for (const Dimension& d : dims) {
    if (d.count == 1) continue;
    if (std::abs(d.stride) < span && d.stride != 1) return true;
    span += (d.count - 1) * std::abs(d.stride);
  }
  return false;
}

bool overlap(const ConstHeadsView& a, const ConstHeadsView& b) noexcept {
  const Extent left = extent_of(a), right = extent_of(b);
  if (left.end <= right.begin || right.end <= left.begin) return false;
  const bool comparable = a.dtype == b.dtype && a.token_stride == b.token_stride &&
                          a.token_stride > 0 && a.head_stride >= 0 && b.head_stride >= 0 &&
                          (a.batch == 1 || a.batch_stride % a.token_stride == 0) &&
                          (b.batch == 1 || b.batch_stride % b.token_stride == 0);
  if (!comparable) return true;
  const std::int64_t width_a = (a.heads - 1) * a.head_stride + a.head_dim;
  const std::int64_t width_b = (b.heads - 1) * b.head_stride + b.head_dim;
  const auto size = static_cast<std::int64_t>(size_of(a.dtype));
  const std::int64_t bytes = static_cast<const char*>(b.data) - static_cast<const char*>(a.data);
  if (bytes % size != 0 || width_a > a.token_stride || width_b > a.token_stride) return true;
  // Where b's heads begin within the token stride, a's beginning at 0.
  const std::int64_t begin = ((bytes / size) % a.token_stride + a.token_stride) % a.token_stride;
  return begin < width_a || begin + width_b > a.token_stride;
}

bool same_view(const ConstHeadsView& a, const ConstHeadsView& b) noexcept {
  return a.data == b.data && a.dtype == b.dtype && a.batch_stride == b.batch_stride &&
         a.token_stride == b.token_stride && a.head_stride == b.head_stride;
}

void check_rotations(std::int64_t head_dim, std::span<const Rotation> rotations) {
  for (const Rotation& rotation : rotations) {
    const ConstHeadsView& in = rotation.in;
    const ConstHeadsView out = rotation.out;
    if (in.batch < 0 || in.tokens < 0 || in.heads < 0) {
      refuse(ErrorCode::shape_mismatch,
             "rotate: sizes must not be negative, got " + shape_text(in));
    }
    if (in.batch != out.batch || in.tokens != out.tokens || in.heads != out.heads ||
        in.head_dim != out.head_dim) {
      refuse(ErrorCode::shape_mismatch, message("rotate: input and output shapes must agree, got ",
                                                shape_text(in), " and ", shape_text(out)));
    }
    if (in.head_dim != head_dim) {
      refuse(ErrorCode::shape_mismatch,
             message("rotate: head_dim must be ", head_dim, ", got ", in.head_dim));
    }
    if (in.dtype != out.dtype || in.dtype != rotations.front().in.dtype) {
      refuse(ErrorCode::shape_mismatch,
             message("rotate: all tensors must have one dtype, got ",
                     name_of(rotations.front().in.dtype), " and ",
                     name_of(in.dtype != out.dtype ? out.dtype : in.dtype)));
    }
    const Rotation& first = rotations.front();
    if (in.batch != first.in.batch || in.tokens != first.in.tokens) {
      refuse(ErrorCode::shape_mismatch,
             message("rotate: batch and tokens must agree between tensors, got ",
                     shape_text(first.in), " and ", shape_text(in)));
    }
    check_extent("rotate", "the input", in);
    const bool in_place = same_view(in, out);
    if (!in_place) check_extent("rotate", "the output", out);
    if (is_empty(in)) continue;
    if (in.data == nullptr || out.data == nullptr) {
      refuse(ErrorCode::invalid_argument, "rotate: data is null for the shape " + shape_text(in));
    }
    if (overlaps_itself(out)) {
      refuse(ErrorCode::invalid_argument,
             message("rotate: an output's elements must be distinct, got strides [",
                     out.batch_stride, ", ", out.token_stride, ", ", out.head_stride,
                     ", 1] for shape ", shape_text(out)));
    }
    if (!in_place && overlap(in, out)) {
      refuse(ErrorCode::invalid_argument,
             "rotate: input and output overlap; they must be the same view or share no element");
    }
    for (const Rotation& other : rotations) {
      if (&other == &rotation || is_empty(other.in)) continue;
      if (overlap(out, other.in) || overlap(out, other.out)) {
        refuse(ErrorCode::invalid_argument,
               "rotate: an output overlaps another tensor of the call");
      }
    }
  }
}

}  // namespace phasor::core
