#include "io/arrays/gather.hpp"

#include <algorithm>
#include <cstring>

#include "phasor/core/cancellation.hpp"

namespace phasor::io {
namespace {

// A constant width makes each copy one instruction.
template <std::size_t kWidth>
void copy_elements(const std::byte* from, std::int64_t count, std::int64_t stride, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + static_cast<std::size_t>(i) * kWidth,
                from + static_cast<std::size_t>(i * stride) * kWidth, kWidth);
  }
}

void copy_row(const std::byte* from, std::size_t width, std::int64_t count, std::int64_t stride,
              std::byte* to) {
  switch (width) {
    case 1:
      return copy_elements<1>(from, count, stride, to);
    case 2:
      return copy_elements<2>(from, count, stride, to);
    case 4:
      return copy_elements<4>(from, count, stride, to);
    case 8:
      return copy_elements<8>(from, count, stride, to);
    default:
      return copy_elements<16>(from, count, stride, to);
  }
}

}  // namespace

void gather(std::span<const std::byte> from, std::size_t width,
            const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
            std::span<std::byte> out) {
  if (out.empty()) return;
  const std::size_t last = shape.empty() ? 0 : shape.size() - 1;  // the axis of a row
  const std::int64_t count = shape.empty() ? 1 : shape[last];
  const std::int64_t stride = shape.empty() ? 1 : strides[last];
  std::vector<std::int64_t> index(last, 0);
  std::int64_t at = 0;
  for (std::size_t done = 0;; done += static_cast<std::size_t>(count) * width) {
    if (done % (std::size_t{1} << 20) == 0) core::throw_if_cancelled();
    copy_row(from.data() + static_cast<std::size_t>(at) * width, width, count, stride,
             out.data() + done);
    std::size_t axis = last;
    while (axis > 0) {
      --axis;
      at += strides[axis];
      if (++index[axis] < shape[axis]) break;
      at -= shape[axis] * strides[axis];
      index[axis] = 0;
      if (axis == 0) return;
    }
    if (last == 0) return;
  }
}

std::vector<std::int64_t> c_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * std::max<std::int64_t>(shape[axis], 1);
  return strides;
}

std::vector<std::int64_t> fortran_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t axis = 1; axis < shape.size(); ++axis)
    strides[axis] = strides[axis - 1] * std::max<std::int64_t>(shape[axis - 1], 1);
  return strides;
}

}  // namespace phasor::io
