// The options of attention(), attention_backward() and KVCache.attention().
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::python {

// The options as Python gives them.
struct AttentionArguments {
  bool causal = false;
  std::optional<std::int64_t> window;
  std::optional<double> scale;
  double soft_cap = 0.0;
  nb::handle mask = nb::none(), key_lengths = nb::none(), key_padding = nb::none();
  nb::handle query_boundaries = nb::none(), key_boundaries = nb::none();
  nb::handle query_positions = nb::none(), key_positions = nb::none();
  nb::handle query_segments = nb::none(), key_segments = nb::none();
  std::string_view angles = "exact";
  int threads = 0;
  std::optional<std::int64_t> query_offset = std::nullopt;
};

// A mask: bool or uint8 (0 hides the key), or floats that are added to the scores. Rank 2 to 4, axes
// of length 1 are broadcast, any strides. Read in place, except floats of another type than the
// arithmetic's (float64 for float64 tensors, else float32), which are converted in a copy of the
// mask's shape.
class MaskArgument {
 public:
  // throws   Error(shape_mismatch | unsupported)
  MaskArgument(nb::handle object, const core::ConstHeadsView& q, std::int64_t keys);
  [[nodiscard]] const attention::Mask& get() const noexcept { return mask_; }

 private:
  std::optional<Array> array_;
  std::vector<float> copy_;
  attention::Mask mask_;
};

// The options for C++, with the memory that they point to.
class OptionsArgument {
 public:
  // throws   Error naming the argument: an unknown angle mode, arrays of another shape
  OptionsArgument(const AttentionArguments& arguments, const core::ConstHeadsView& q,
                  std::int64_t keys);
  OptionsArgument(const OptionsArgument&) = delete;
  OptionsArgument& operator=(const OptionsArgument&) = delete;
  [[nodiscard]] const attention::AttentionOptions& get() const noexcept { return options_; }

 private:
  MaskArgument mask_;
  Numbers<std::int64_t> key_lengths_;
  Numbers<std::uint8_t> key_padding_;
  Numbers<std::int64_t> query_boundaries_, key_boundaries_;
  Numbers<std::int32_t> query_segments_, key_segments_;
  attention::AttentionOptions options_;
};

// log_sum_exp=: a dense array [batch, heads, queries], or [heads, queries] for one batch row: float32, or
// float64 for float64 inputs. None: both addresses are null.
class LogSumExp {
 public:
  // throws   Error(shape_mismatch) for another shape or type
  LogSumExp(nb::handle object, const char* where, Access access, const core::ConstHeadsView& q);
  [[nodiscard]] float* narrow() const noexcept { return data<float, Element::f32>(); }
  [[nodiscard]] double* wide() const noexcept { return data<double, Element::f64>(); }

 private:
  // Backward opens it for reading and passes it on as const.
  template <class T, Element kElement>
  [[nodiscard]] T* data() const noexcept {
    return array_ && array_->element() == kElement
               ? static_cast<T*>(const_cast<void*>(array_->data()))
               : nullptr;
  }

  std::optional<Array> array_;
};

// A gradient with the shape of its tensor.
class Gradient {
 public:
  // throws   Error(shape_mismatch) for another shape
  Gradient(nb::handle object, const char* where, const Array& like, Order order);
  [[nodiscard]] const core::HeadsView& view() const noexcept { return view_; }

 private:
  Array array_;
  core::HeadsView view_;
};

// The shape of attention's output: that of q with another last axis.
[[nodiscard]] std::vector<std::int64_t> output_shape(const Array& q, std::int64_t value_dim);

// throws   Error(shape_mismatch) unless the shape is [batch, tokens], or [tokens] for one batch row
template <class T>
void require_rows(const Numbers<T>& numbers, const char* where, std::int64_t batch,
                  std::int64_t tokens);

}  // namespace phasor::python
