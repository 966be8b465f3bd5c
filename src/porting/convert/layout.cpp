#include "phasor/porting/convert.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/extent.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/core/internal/standard.hpp"
#include "porting/convert/permute.hpp"

namespace phasor::porting {
namespace {

using core::PairLayout;

struct Axis {
  std::int64_t length = 0;
  std::int64_t in = 0, out = 0;             // strides in bytes
  const std::uint32_t* features = nullptr;  // for the feature axis: the source of each feature
};

// The loops of a copy, outermost first.
struct Loops {
  std::array<Axis, kMaxStridedRank> axes = {};
  std::size_t count = 0;
};

template <std::size_t kBytes>
void copy_line(const Axis& axis, const std::byte* in, std::byte* out) noexcept {
  if (axis.features != nullptr) {
    for (std::int64_t i = 0; i < axis.length; ++i)
      std::memcpy(out + i * axis.out, in + axis.features[i] * axis.in, kBytes);
    return;
  }
  constexpr auto kStep = static_cast<std::int64_t>(kBytes);
  if (axis.in == kStep && axis.out == kStep) {
    std::memcpy(out, in, static_cast<std::size_t>(axis.length) * kBytes);
    return;
  }
  for (std::int64_t i = 0; i < axis.length; ++i)
    std::memcpy(out + i * axis.out, in + i * axis.in, kBytes);
}

// Between two looks at the caller's cancellation.
constexpr std::int64_t kLinesPerLook = 256;

template <std::size_t kBytes>
void copy_axes(std::span<const Axis> axes, const std::byte* in, std::byte* out) {
  const Axis& axis = axes.front();
  if (axes.size() == 1) return copy_line<kBytes>(axis, in, out);
  for (std::int64_t i = 0; i < axis.length; ++i) {
    if (i % kLinesPerLook == 0) core::throw_if_cancelled();
    const std::int64_t from = axis.features == nullptr ? i : axis.features[i];
    copy_axes<kBytes>(axes.subspan(1), in + from * axis.in, out + i * axis.out);
  }
}

void copy(Loops loops, std::size_t element_bytes, const std::byte* in, std::byte* out) {
  if (loops.count == 0) loops.axes[loops.count++] = {.length = 1};  // a scalar
  const std::span<Axis> axes(loops.axes.data(), loops.count);
  if (std::any_of(axes.begin(), axes.end(), [](const Axis& axis) { return axis.length == 0; }))
    return;
  // The smallest stride of the output innermost.
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return std::abs(a.out) > std::abs(b.out); });
  switch (element_bytes) {
    case 1:
      return copy_axes<1>(axes, in, out);
    case 2:
      return copy_axes<2>(axes, in, out);
    case 4:
      return copy_axes<4>(axes, in, out);
    default:
      return copy_axes<8>(axes, in, out);
  }
}

void check_element(std::string_view where, std::size_t bytes, std::size_t rank) {
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)
    refuse(ErrorCode::unsupported,
           message(where, ": elements must have 1, 2, 4 or 8 bytes, got ", bytes));
  if (rank > kMaxStridedRank)
    refuse(ErrorCode::unsupported,
           message(where, ": at most ", kMaxStridedRank, " axes are supported, got ", rank));
}

template <class Byte>
void check_reach(std::string_view where, std::string_view name, const StridedArray<Byte>& array) {
  std::array<core::Dimension, kMaxStridedRank> dimensions;
  for (std::size_t axis = 0; axis < array.shape.size(); ++axis)
    dimensions[axis] = {array.shape[axis], array.strides[axis]};
  if (core::is_addressable(std::span(dimensions).first(array.shape.size()), array.element_bytes))
    return;
  refuse(ErrorCode::out_of_range,
         message(where, ": ", name, " must lie within 2^56 bytes, got the shape ",
                 core::shape_text(array.shape), " with the strides ",
                 core::shape_text(array.strides)));
}

struct Extent {
  const std::byte* first = nullptr;
  const std::byte* last = nullptr;  // one past
};

template <class Byte>
[[nodiscard]] Extent extent_of(const StridedArray<Byte>& array) {
  const auto bytes = static_cast<std::int64_t>(array.element_bytes);
  std::int64_t low = 0, high = bytes;
  for (std::size_t axis = 0; axis < array.shape.size(); ++axis) {
    if (array.shape[axis] == 0) return {};
    const std::int64_t reach = (array.shape[axis] - 1) * array.strides[axis] * bytes;
    (reach < 0 ? low : high) += reach;
  }
  return {array.data + low, array.data + high};
}

[[nodiscard]] bool may_overlap(Extent a, Extent b) {
  const std::less<> before;
  return before(a.first, b.last) && before(b.first, a.last);
}

// The rotation of one head, for head_map().
[[nodiscard]] encodings::RopeSpec checked_head(const LayoutChange& change, std::int64_t features) {
  constexpr std::string_view kWhere = "convert_layout: ";
  if (change.to != PairLayout::half && change.to != PairLayout::interleaved)
    refuse(ErrorCode::invalid_argument,
           message(kWhere, "to must be half or interleaved, got ", core::name_of(change.to)));
  if (change.heads < 1 || features % change.heads != 0)
    refuse(ErrorCode::shape_mismatch, message(kWhere, "heads must divide the ", features,
                                              " features of the axis, got ", change.heads));
  encodings::RopeSpec rope;
  rope.head_dim = features / change.heads;
  rope.rotary_offset = change.rotary_offset;
  if (change.rotary_offset < 0 || change.rotary_offset > rope.head_dim)
    refuse(ErrorCode::invalid_argument,
           message(kWhere, "rotary_offset must be from 0 to head_dim = ", rope.head_dim, ", got ",
                   change.rotary_offset));
  rope.rotary_dim = change.rotary_dim.value_or(rope.head_dim - change.rotary_offset);
  if (rope.rotary_dim < 0 || rope.rotary_dim % 2 != 0 ||
      rope.rotary_dim > rope.head_dim - change.rotary_offset)
    refuse(ErrorCode::invalid_argument,
           message(kWhere, "rotary_dim must be even and at most head_dim - rotary_offset = ",
                   rope.head_dim - change.rotary_offset, ", got ", rope.rotary_dim));
  return rope;
}

}  // namespace

void convert_layout(const LayoutChange& change, std::int64_t axis,
                    const StridedArray<const std::byte>& in, const StridedArray<std::byte>& out) {
  constexpr std::string_view kWhere = "convert_layout";
  const std::size_t rank = in.shape.size();
  check_element(kWhere, in.element_bytes, rank);
  if (axis < 0 || axis >= static_cast<std::int64_t>(rank))
    refuse(ErrorCode::invalid_argument,
           message(kWhere, ": axis must be from 0 to ", static_cast<std::int64_t>(rank) - 1,
                   ", got ", axis));
  if (out.element_bytes != in.element_bytes || !core::equal(in.shape, out.shape))
    refuse(ErrorCode::shape_mismatch,
           message(kWhere, ": out must have the shape and element size of the input, ",
                   core::shape_text(in.shape), " of ", in.element_bytes, " bytes, got ",
                   core::shape_text(out.shape), " of ", out.element_bytes, " bytes"));
  check_reach(kWhere, "the input", in);
  check_reach(kWhere, "out", out);
  const std::int64_t features = in.shape[static_cast<std::size_t>(axis)];
  const encodings::RopeSpec rope = checked_head(change, features);
  if (may_overlap(extent_of(in), extent_of(out)))
    refuse(ErrorCode::invalid_argument, message(kWhere, ": out must not overlap the input"));

  const HeadMap head = head_map(rope, other_layout(change.to), change.to);
  HeadMap map(static_cast<std::size_t>(features));
  for (std::size_t at = 0; at < map.size(); ++at)
    map[at] = static_cast<std::uint32_t>(at - at % head.size()) + head[at % head.size()];

  Loops loops;
  const auto bytes = static_cast<std::int64_t>(in.element_bytes);
  for (std::size_t i = 0; i < rank; ++i) {
    loops.axes[loops.count++] = {in.shape[i], in.strides[i] * bytes, out.strides[i] * bytes,
                                 static_cast<std::int64_t>(i) == axis ? map.data() : nullptr};
  }
  copy(loops, in.element_bytes, in.data, out.data);
}

void copy_dense(const StridedArray<const std::byte>& in, std::span<std::byte> out) {
  check_element("copy_dense", in.element_bytes, in.shape.size());
  Loops loops;
  loops.count = in.shape.size();
  const auto bytes = static_cast<std::int64_t>(in.element_bytes);
  std::int64_t stride = bytes;
  for (std::size_t i = loops.count; i-- > 0;) {
    loops.axes[i] = {in.shape[i], in.strides[i] * bytes, stride, nullptr};
    stride *= in.shape[i];
  }
  if (static_cast<std::size_t>(stride) != out.size())
    refuse(ErrorCode::shape_mismatch,
           message("copy_dense: out must have ", stride, " bytes, got ", out.size()));
  copy(loops, in.element_bytes, in.data, out.data());
}

}  // namespace phasor::porting
