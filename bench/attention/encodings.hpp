// The encodings that attention is measured with, each with its own random tables.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "core/buffer.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::bench {

enum class Kind : std::uint8_t {
  none,
  rope,
  t5,           // 32 buckets
  alibi,        // 8 heads: slopes 1/2 to 1/256
  alibi_steep,  // slopes 16 to 1/8: most weights vanish
  shaw_keys,    // 64 a side: 129 rows
  shaw_values,
  shaw,          // both
  deberta,       // both directions, 64 a side
  deberta_wide,  // 512 a side
  transformer_xl,
  xlnet,        // with segments
  tupe,         // with a T5 bias
  tupe_untied,  // and the first token on its own
};
inline constexpr std::array kKinds = {
    Kind::none,           Kind::rope,        Kind::t5,   Kind::alibi,      Kind::alibi_steep,
    Kind::shaw_keys,      Kind::shaw_values, Kind::shaw, Kind::deberta,    Kind::deberta_wide,
    Kind::transformer_xl, Kind::xlnet,       Kind::tupe, Kind::tupe_untied};
[[nodiscard]] std::string_view name_of(Kind kind) noexcept;

// Numbers like those of a normal distribution of variance 1, the same for the same seed.
void fill_normal(float* x, std::size_t count, std::uint64_t seed);

struct Shape {
  std::int64_t tokens = 2048, heads = 8, key_heads = 8, dim = 64;
  attention::Causality causality = attention::Causality::bottom_right;
  core::DType dtype = core::DType::f32;  // of q, k, v, out and their gradients
};

// q, k, v and out of a shape, the terms of an encoding for it, and what backward needs.
class Problem {
 public:
  Problem(Kind kind, const Shape& shape);
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] const encodings::ScoreTerms& terms() const { return terms_; }
  [[nodiscard]] core::ConstHeadsView q() const { return view(q_, shape_.heads); }
  [[nodiscard]] core::ConstHeadsView k() const { return view(k_, shape_.key_heads); }
  [[nodiscard]] core::ConstHeadsView v() const { return view(v_, shape_.key_heads); }
  [[nodiscard]] core::HeadsView out() const { return view(out_, shape_.heads); }
  [[nodiscard]] attention::AttentionOptions options(core::InstructionSet isa, int threads) const;

  void forward(core::InstructionSet isa, int threads) const;
  // The rest needs prepare_backward() before.
  void prepare_backward(core::InstructionSet isa);
  void backward(core::InstructionSet isa, int threads) const;
  [[nodiscard]] core::ConstHeadsView d_out() const { return view(*d_out_, shape_.heads); }
  [[nodiscard]] core::HeadsView d_q() const { return view(*d_q_, shape_.heads); }
  [[nodiscard]] core::HeadsView d_k() const { return view(*d_k_, shape_.key_heads); }
  [[nodiscard]] core::HeadsView d_v() const { return view(*d_v_, shape_.key_heads); }

 private:
  [[nodiscard]] core::HeadsView view(const Buffer& buffer, std::int64_t heads) const {
    core::HeadsView result = core::heads_view(buffer.floats(), 1, shape_.tokens, heads, shape_.dim);
    result.dtype = shape_.dtype;
    return result;
  }
  [[nodiscard]] std::size_t bytes(std::int64_t heads) const {
    return static_cast<std::size_t>(shape_.tokens * heads * shape_.dim) * sizeof(float);
  }
  // Random numbers, in the dtype of the shape.
  void fill(const Buffer& buffer, std::int64_t heads, std::uint64_t seed) const;
  // A dense table of random numbers that lives as long as the problem.
  float* numbers(std::int64_t count, double size);
  encodings::Encoding make(Kind kind);

  Shape shape_;
  Buffer q_, k_, v_, out_;
  std::deque<std::vector<float>> tables_;
  std::vector<std::int32_t> segments_;
  encodings::ScoreTerms terms_;
  // For backward.
  std::optional<Buffer> d_out_, d_q_, d_k_, d_v_;
  std::vector<float> log_sum_exp_;
  encodings::ScoreTermGradients table_gradients_;
};

// A dense float64 copy of a dense view. Attention over such copies is in float64: what float32 results
// are checked with.
struct Wide {
  explicit Wide(const core::ConstHeadsView& of);
  std::vector<double> values;
  core::HeadsView view;
};
[[nodiscard]] bool is_close(const core::ConstHeadsView& got, const std::vector<double>& expected);

// Forward and, when asked, backward of a small problem of this kind against float64 attention.
enum class Check : std::uint8_t { forward, both };
[[nodiscard]] bool agrees_with_reference(Kind kind, Shape shape, core::InstructionSet isa,
                                         int threads = 1, Check check = Check::forward);

}  // namespace phasor::bench
