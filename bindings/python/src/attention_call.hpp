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

// The shape of attention's output: that of q with another last axis.
[[nodiscard]] std::vector<std::int64_t> output_shape(const Array& q, std::int64_t value_dim);

// throws   Error(shape_mismatch) unless the shape is [batch, tokens], or [tokens] for one batch row
template <class T>
void require_rows(const Numbers<T>& numbers, const char* where, std::int64_t batch,
                  std::int64_t tokens);

}  // namespace phasor::python
