#include "phasor/attention/softmax.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::attention {
namespace {

struct Axis {
  const char* name;
  std::int64_t length;
};

// shape is aligned with the last of [batch, heads, queries, keys], as broadcasting does it.
Mask make_mask(Mask::Kind kind, const void* data, std::span<const std::int64_t> shape,
               const Axis (&axes)[4]) {
  if (shape.size() < 2 || shape.size() > 4) {
    throw Error(ErrorCode::shape_mismatch,
                message("mask: rank must be 2 ([queries, keys]), 3 ([heads, queries, keys]) or 4 "
                        "([batch, heads, queries, keys]), got rank ",
                        shape.size(), " ", core::shape_text(shape)));
  }
  const std::size_t missing = 4 - shape.size();
  std::int64_t strides[4] = {0, 0, 0, 0};
  std::int64_t stride = 1;
  for (std::size_t axis = 4; axis-- > missing;) {
    const std::int64_t length = shape[axis - missing];
    const bool is_keys = axis == 3;
    const bool fits = is_keys ? length == 1 || (length >= 0 && length <= axes[axis].length)
                              : length == 1 || length == axes[axis].length;
    if (!fits) {
      throw Error(
          ErrorCode::shape_mismatch,
          message("mask: axis ", axes[axis].name, " must be ", is_keys ? "at most " : "1 or ",
                  axes[axis].length, ", got ", length, " in the shape ", core::shape_text(shape)));
    }
    strides[axis] = length == 1 ? 0 : stride;
    stride *= length;
  }
  if (data == nullptr && stride > 0) {
    throw Error(ErrorCode::invalid_argument,
                message("mask: no data (null) for the shape ", core::shape_text(shape)));
  }
  const std::int64_t columns = shape.back() == 1 ? axes[3].length : shape.back();
  return {kind, data, strides[0], strides[1], strides[2], strides[3], columns};
}

}  // namespace

Mask boolean_mask(const std::uint8_t* data, std::span<const std::int64_t> shape, std::int64_t batch,
                  std::int64_t heads, std::int64_t queries, std::int64_t keys) {
  return make_mask(Mask::Kind::boolean, data, shape,
                   {{"batch", batch}, {"heads", heads}, {"queries", queries}, {"keys", keys}});
}

Mask additive_mask(const float* data, std::span<const std::int64_t> shape, std::int64_t batch,
                   std::int64_t heads, std::int64_t queries, std::int64_t keys) {
  return make_mask(Mask::Kind::additive, data, shape,
                   {{"batch", batch}, {"heads", heads}, {"queries", queries}, {"keys", keys}});
}

Mask additive_mask(const double* data, std::span<const std::int64_t> shape, std::int64_t batch,
                   std::int64_t heads, std::int64_t queries, std::int64_t keys) {
  return make_mask(Mask::Kind::additive_f64, data, shape,
                   {{"batch", batch}, {"heads", heads}, {"queries", queries}, {"keys", keys}});
}

}  // namespace phasor::attention
