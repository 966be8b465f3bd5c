#include "attention_call.hpp"

#include <algorithm>
#include <string>

#include "phasor/core/internal/message_text.hpp"

namespace phasor::python {
namespace {

using attention::Mask;

[[nodiscard]] bool is_one_of(std::span<const std::int64_t> shape, std::int64_t batch,
                             std::int64_t tokens) {
  if (shape.size() == 1) return batch == 1 && shape[0] == tokens;
  return shape.size() == 2 && shape[0] == batch && shape[1] == tokens;
}

}  // namespace

template <class T>
void require_rows(const Numbers<T>& numbers, const char* where, std::int64_t batch,
                  std::int64_t tokens) {
  if (!numbers.given() || is_one_of(numbers.shape(), batch, tokens)) return;
  refuse(ErrorCode::shape_mismatch, message(where, " must be [", batch, ", ", tokens, "]",
                                            batch == 1 ? message(" or [", tokens, "]") : "",
                                            ", got ", core::shape_text(numbers.shape())));
}
template void require_rows(const Numbers<std::uint8_t>&, const char*, std::int64_t, std::int64_t);
template void require_rows(const Numbers<std::int32_t>&, const char*, std::int64_t, std::int64_t);

MaskArgument::MaskArgument(nb::handle object, const core::ConstHeadsView& q, std::int64_t keys) {
  if (object.is_none()) return;
  array_.emplace(object, "attention: mask");
  const Array& array = *array_;
  const std::span<const std::int64_t> shape = array.shape();
  switch (array.element()) {
    case Element::boolean:
    case Element::u8:
      mask_ = attention::boolean_mask(static_cast<const std::uint8_t*>(array.data()), shape,
                                      q.batch, q.heads, q.tokens, keys);
      break;
    case Element::f32:
      mask_ = attention::additive_mask(static_cast<const float*>(array.data()), shape, q.batch,
                                       q.heads, q.tokens, keys);
      break;
    case Element::f64:
      if (q.dtype == core::DType::f64) {
        mask_ = attention::additive_mask(static_cast<const double*>(array.data()), shape, q.batch,
                                         q.heads, q.tokens, keys);
        break;
      }
      [[fallthrough]];
    case Element::f16:
    case Element::bf16: {
      // Also checks the shape, before anything is copied.
      const float none = 0.0F;
      mask_ = attention::additive_mask(&none, shape, q.batch, q.heads, q.tokens, keys);
      const Numbers<double> numbers(object, "attention: mask");
      copy_.resize(numbers.get().size());
      std::ranges::transform(numbers.get(), copy_.begin(),
                             [](double value) { return static_cast<float>(value); });
      mask_.data = copy_.data();
      return;  // the copy has no gaps
    }
    default:
      refuse(ErrorCode::unsupported,
             message("attention: mask must be bool, uint8 or floats, got ", array.text()));
  }
  // The strides of the array instead of those of a dense mask; an axis of length 1 keeps stride 0.
  std::int64_t* const steps[] = {&mask_.key_stride, &mask_.query_stride, &mask_.head_stride,
                                 &mask_.batch_stride};
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const std::size_t from_last = shape.size() - 1 - axis;
    if (shape[axis] != 1) *steps[from_last] = array.strides()[axis];
  }
}

OptionsArgument::OptionsArgument(const AttentionArguments& arguments, const core::ConstHeadsView& q,
                                 std::int64_t keys)
    : mask_(arguments.mask, q, keys),
      key_lengths_(arguments.key_lengths, "attention: key_lengths"),
      key_padding_(arguments.key_padding, "attention: key_padding"),
      query_boundaries_(arguments.query_boundaries, "attention: query_boundaries"),
      key_boundaries_(arguments.key_boundaries, "attention: key_boundaries"),
      query_segments_(arguments.query_segments, "attention: query_segments"),
      key_segments_(arguments.key_segments, "attention: key_segments") {
  require_rows(key_padding_, "attention: key_padding", q.batch, keys);
  require_rows(query_segments_, "attention: query_segments", q.batch, q.tokens);
  require_rows(key_segments_, "attention: key_segments", q.batch, keys);
  options_.causality =
      arguments.causal ? attention::Causality::bottom_right : attention::Causality::none;
  options_.window = arguments.window;
  options_.query_offset = arguments.query_offset;
  options_.scale = arguments.scale;
  options_.soft_cap = arguments.soft_cap;
  options_.mask = mask_.get();
  options_.key_lengths = key_lengths_.get();
  options_.key_padding = key_padding_.get();
  options_.query_boundaries = query_boundaries_.get();
  options_.key_boundaries = key_boundaries_.get();
  options_.query_positions = positions_of(arguments.query_positions, "attention: query_positions");
  options_.key_positions = positions_of(arguments.key_positions, "attention: key_positions");
  options_.query_segments = query_segments_.get();
  options_.key_segments = key_segments_.get();
  options_.angles = angles_of(arguments.angles, "attention");
  options_.threads = arguments.threads;
}

LogSumExp::LogSumExp(nb::handle object, const char* where, Access access,
                     const core::ConstHeadsView& q) {
  if (object.is_none()) return;
  array_.emplace(object, where, access);
  const Element wanted = q.dtype == core::DType::f64 ? Element::f64 : Element::f32;
  const std::int64_t full[] = {q.batch, q.heads, q.tokens};
  const std::span<const std::int64_t> shape(full);
  const bool fits = std::ranges::equal(array_->shape(), shape) ||
                    (q.batch == 1 && std::ranges::equal(array_->shape(), shape.subspan(1)));
  if (fits && array_->element() == wanted && array_->dense()) return;
  refuse(ErrorCode::shape_mismatch,
         message(where, " must be [", q.batch, ", ", q.heads, ", ", q.tokens, "] ", name_of(wanted),
                 ", contiguous, got ", array_->text(), array_->dense() ? "" : ", not contiguous"));
}

Gradient::Gradient(nb::handle object, const char* where, const Array& like, Order order)
    : array_(object, where, Access::write), view_(writable_heads_of(array_, order)) {
  if (std::ranges::equal(array_.shape(), like.shape())) return;
  refuse(ErrorCode::shape_mismatch,
         message(where, " must have the shape ", core::shape_text(like.shape()), ", got ",
                 array_.text()));
}

std::vector<std::int64_t> output_shape(const Array& q, std::int64_t value_dim) {
  std::vector<std::int64_t> shape(q.shape().begin(), q.shape().end());
  shape.back() = value_dim;
  return shape;
}

}  // namespace phasor::python
