// Random problems of linear attention, and the comparison with the full matrix.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "attention/reference/linear_reference.hpp"
#include "phasor/attention/linear.hpp"
#include "support/tensor.hpp"

namespace phasor::attention::tests {

using core::DType;
using core::tests::Strides;
using core::tests::Tensor;

enum class Rotating : std::uint8_t {
  none,
  interleaved,
  half,
  crossing,
  partial,
  blocks,
  xpos,
  axes
};
enum class Padding : std::uint8_t { none, scattered, left, all };
enum class Ids : std::uint8_t { by_default, scattered };

struct LinearCase {
  Rotating rotating = Rotating::half;
  FeatureMap features = FeatureMap::elu_plus_one;
  Causality causality = Causality::bottom_right;
  std::int64_t batch = 1, heads = 1, key_heads = 1;
  std::int64_t queries = 1, keys = 1;
  std::int64_t head_dim = 16, value_dim = 16;
  DType dtype = DType::f32, key_dtype = DType::f32;  // of q and out; of k and v
  Strides strides = Strides::dense;
  Padding padding = Padding::none;
  Ids ids = Ids::by_default;
  std::uint64_t seed = 1;
  Rotates rotates = Rotates::features;
  std::int64_t feature_count = 0;  // favor; 0: some and a half times head_dim, the last block cut

  // The width of phi.
  [[nodiscard]] std::int64_t features_wide() const {
    return features != FeatureMap::favor ? head_dim
           : feature_count != 0          ? feature_count
                                         : head_dim / 2 * 3 + 2;
  }
};

inline std::ostream& operator<<(std::ostream& out, const LinearCase& c) {
  constexpr std::array kRotationChoices = {"none",    "interleaved", "half", "crossing",
                                           "partial", "blocks",      "xpos", "axes"};
  constexpr std::array kStrides = {"dense", "padded", "heads_first"};
  constexpr std::array kPaddings = {"none", "scattered", "left", "all"};
  return out << "{.rotating = Rotating::" << kRotationChoices[static_cast<std::size_t>(c.rotating)]
             << ", .features = FeatureMap::" << name_of(c.features) << ", .causality = Causality::"
             << (c.causality == Causality::none ? "none" : "bottom_right")
             << ", .batch = " << c.batch << ", .heads = " << c.heads
             << ", .key_heads = " << c.key_heads << ", .queries = " << c.queries
             << ", .keys = " << c.keys << ", .head_dim = " << c.head_dim
             << ", .value_dim = " << c.value_dim << ", .dtype = DType::" << core::name_of(c.dtype)
             << ", .key_dtype = DType::" << core::name_of(c.key_dtype)
             << ", .strides = Strides::" << kStrides[static_cast<std::size_t>(c.strides)]
             << ", .padding = Padding::" << kPaddings[static_cast<std::size_t>(c.padding)]
             << ", .ids = Ids::" << (c.ids == Ids::by_default ? "by_default" : "scattered")
             << ", .seed = " << c.seed << ", .rotates = Rotates::" << name_of(c.rotates)
             << ", .feature_count = " << c.feature_count << "}";
}

inline std::optional<core::Rotary> rotary_for(Rotating rotating, std::int64_t dim) {
  using core::PairLayout;
  if (rotating == Rotating::none || dim < 2) return std::nullopt;
  // Partial: the middle of the head rotates; blocks need an even number of pairs.
  const std::int64_t width = rotating == Rotating::partial && dim >= 4 ? dim / 4 * 2 : dim / 2 * 2;
  const core::Frequencies plain = core::make_frequencies({width, 10000.0});
  const std::vector<double> values(plain.values().begin(), plain.values().end());
  core::Rotary rotary{plain, PairLayout::half, dim,
                      rotating == Rotating::partial ? (dim - width) / 2 : 0};
  switch (rotating) {
    case Rotating::interleaved:
    case Rotating::partial:
      rotary.layout = PairLayout::interleaved;
      rotary.frequencies = core::Frequencies(values, 1.25);
      break;
    case Rotating::crossing:
      rotary.layout = PairLayout::interleaved_to_half;
      break;
    case Rotating::blocks:
      rotary.blocks = width % 4 == 0 ? 2 : 1;
      break;
    case Rotating::xpos:
      rotary.growth = core::Growth{std::vector<double>(values.size(), 2e-3), 20.0};
      break;
    case Rotating::axes: {
      std::vector<std::uint8_t> axes(values.size());
      for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = i % 3 == 2 ? 1 : 0;
      rotary.frequencies = core::Frequencies(values, 1.0, axes);
      break;
    }
    default:
      break;
  }
  return rotary;
}

class LinearProblem {
 public:
  explicit LinearProblem(const LinearCase& c)
      : what(c),
        q(c.dtype, {c.batch, c.queries, c.heads, c.head_dim}, c.strides, 4 * c.seed),
        k(c.key_dtype, {c.batch, c.keys, c.key_heads, c.head_dim}, c.strides, 4 * c.seed + 1),
        v(c.key_dtype, {c.batch, c.keys, c.key_heads, c.value_dim}, c.strides, 4 * c.seed + 2),
        d_out(c.dtype, {c.batch, c.queries, c.heads, c.value_dim}, c.strides, 4 * c.seed + 3),
        rotary(
            rotary_for(c.rotating, c.rotates == Rotates::inputs ? c.head_dim : c.features_wide())) {
    std::mt19937_64 random(c.seed);
    options.causality = c.causality;
    options.features = c.features;
    options.rotates = c.rotates;
    if (c.features == FeatureMap::favor) {
      options.feature_count = c.features_wide();
      options.seed = 7;
    }
    if (c.padding != Padding::none) {
      for (std::int64_t b = 0; b < c.batch; ++b) {
        for (std::int64_t n = 0; n < c.keys; ++n) {
          const bool counts = c.padding == Padding::left        ? n > c.keys / 3 + b
                              : c.padding == Padding::scattered ? random() % 3 != 0
                                                                : false;
          key_padding.push_back(counts ? 1 : 0);
        }
      }
      options.key_padding = key_padding;
    }
    if (c.ids == Ids::scattered && rotary) {
      const int axes = rotary->frequencies.axis_count();
      for (std::int64_t i = 0; i < axes * c.batch * c.queries; ++i)
        query_ids.push_back(static_cast<std::int64_t>(random() % 500));
      for (std::int64_t i = 0; i < axes * c.batch * c.keys; ++i)
        key_ids.push_back(static_cast<std::int64_t>(random() % 500) - 100);
      options.query_positions = core::positions_per_row(query_ids.data(), axes, c.batch, c.queries);
      options.key_positions = core::positions_per_row(key_ids.data(), axes, c.batch, c.keys);
    }
  }
  LinearProblem(const LinearProblem&) = delete;
  LinearProblem& operator=(const LinearProblem&) = delete;

  [[nodiscard]] Tensor new_out() const {
    return Tensor(what.dtype, {what.batch, what.queries, what.heads, what.value_dim}, what.strides,
                  99);
  }
  [[nodiscard]] Tensor attend(core::InstructionSet isa = core::InstructionSet::best,
                              int threads = 1) const {
    Tensor out = new_out();
    LinearOptions chosen = options;
    chosen.isa = isa;
    chosen.threads = threads;
    linear_attend(rotary, q.view(), k.view(), v.view(), out.view(), chosen);
    return out;
  }
  [[nodiscard]] LinearReference reference() const {
    return linear_attend_reference(rotary, q.view(), k.view(), v.view(), options);
  }

  LinearCase what;
  Tensor q, k, v, d_out;
  std::optional<core::Rotary> rotary;
  LinearOptions options;
  std::vector<std::uint8_t> key_padding;
  std::vector<std::int64_t> query_ids, key_ids;
};

// Half a unit in the last place of storage, relative; and the smallest step.
inline double storage_error(DType dtype, double value) {
  return dtype == DType::bf16  ? std::fabs(value) * 0x1p-8
         : dtype == DType::f16 ? std::fabs(value) * 0x1p-11 + 0x1p-25
                               : 0.0;
}

// Every element within `bound` of the reference, in the units that linear.hpp names.
inline void expect_within_bound(const LinearReference& expected, const Tensor& got,
                                const std::vector<double>& got_values,
                                double bound = kLinearError) {
  const auto dim = static_cast<std::size_t>(got.view().head_dim);
  ASSERT_EQ(expected.out.size(), got_values.size());
  int reported = 0;
  for (std::size_t i = 0; i < got_values.size(); ++i) {
    const double allowed = bound * expected.magnitude[i / dim];
    const double room = allowed + storage_error(got.view().dtype, expected.out[i]) * 1.01;
    if (!(std::fabs(got_values[i] - expected.out[i]) <= room) && reported++ < 3) {
      ADD_FAILURE() << "element " << i << ": got " << got_values[i] << ", expected "
                    << expected.out[i] << " within " << room;
    }
  }
}
// Of the largest gradient of its tensor, or of 1: with a single key d_q and d_k are differences of
// equal terms of about d_out . v.
// favor: times 1 + a, as the error of the forward pass.
inline constexpr double kGradientError = 4e-6;

inline void expect_gradients_near(const char* name, const std::vector<double>& expected,
                                  const Tensor& got, double error) {
  double largest = 1.0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  const std::vector<double> values = got.wide();
  ASSERT_EQ(values.size(), expected.size());
  int reported = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double room = error * largest + 1.01 * storage_error(got.view().dtype, expected[i]);
    if (!(std::fabs(values[i] - expected[i]) <= room) && reported++ < 3) {
      ADD_FAILURE() << name << " " << i << ": got " << values[i] << ", expected " << expected[i]
                    << " within " << room;
    }
  }
}

inline void expect_gaps_untouched(Tensor fresh, const Tensor& got) {
  Tensor after = got;
  for (Tensor* tensor : {&fresh, &after}) {
    tensor->for_each([&](std::int64_t at) { core::set_element(tensor->view(), at, 0.0); });
  }
  EXPECT_EQ(fresh.bytes(), after.bytes()) << "written between the elements";
}

inline constexpr std::array kMaps = {FeatureMap::elu_plus_one, FeatureMap::softmax_exp,
                                     FeatureMap::favor};
inline constexpr std::array kRotates = {Rotates::features, Rotates::inputs};
inline constexpr std::array kCausalities = {Causality::none, Causality::bottom_right};
inline constexpr std::array kRotations = {
    Rotating::none,    Rotating::interleaved, Rotating::half, Rotating::crossing,
    Rotating::partial, Rotating::blocks,      Rotating::xpos, Rotating::axes};

// Calls run(case) for each causality and feature map.
template <class Run>
void for_each_kind(LinearCase c, const Run& run) {
  for (const Causality causality : kCausalities) {
    for (const FeatureMap features : kMaps) {
      c.causality = causality;
      c.features = features;
      run(c);
    }
  }
}

// Cases of the forward and of the backward pass.
inline LinearCase rotated_case(Rotating rotating) {
  return {.rotating = rotating,
          .batch = 2,
          .heads = 4,
          .key_heads = 2,
          .queries = 70,
          .keys = 70,
          .head_dim = 24,
          .value_dim = 20,
          .seed = 5};
}
inline LinearCase uneven_case(std::int64_t queries, std::int64_t keys) {
  return {.batch = 2,
          .heads = 2,
          .key_heads = 1,
          .queries = queries,
          .keys = keys,
          .head_dim = 8,
          .value_dim = 5};
}
inline LinearCase padded_case(Padding padding) {
  return {.batch = 3, .heads = 2, .key_heads = 2, .queries = 90, .keys = 90, .padding = padding};
}
inline LinearCase half_precision_case(Causality causality, DType dtype, DType key_dtype) {
  return {.causality = causality,
          .heads = 2,
          .key_heads = 2,
          .queries = 67,
          .keys = 67,
          .head_dim = 18,
          .value_dim = 9,
          .dtype = dtype,
          .key_dtype = key_dtype,
          .strides = Strides::padded};
}
inline LinearCase chunked_case(std::uint64_t seed, Causality causality, std::int64_t tokens,
                               std::int64_t head_dim, std::int64_t value_dim) {
  return {.rotating = seed % 2 == 0 ? Rotating::half : Rotating::interleaved,
          .features = kMaps[seed / 2 % kMaps.size()],
          .causality = causality,
          .queries = tokens,
          .keys = tokens,
          .head_dim = head_dim,
          .value_dim = value_dim,
          .strides = static_cast<Strides>(seed % 3),
          .seed = seed,
          .rotates = kRotates[seed / 3 % 2]};
}

inline LinearCase large_keys_case(Causality causality) {
  return {.features = FeatureMap::softmax_exp,
          .causality = causality,
          .heads = 2,
          .key_heads = 1,
          .queries = 150,
          .keys = 150,
          .head_dim = 12,
          .value_dim = 7};
}

inline std::string level_name(const ::testing::TestParamInfo<core::InstructionSet>& info) {
  std::string name(core::name_of(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

struct LinearGradients {
  Tensor d_q, d_k, d_v;
};
inline LinearGradients fresh_gradients(const LinearProblem& p) {
  const LinearCase& c = p.what;
  return {Tensor(c.dtype, {c.batch, c.queries, c.heads, c.head_dim}, c.strides, 51),
          Tensor(c.key_dtype, {c.batch, c.keys, c.key_heads, c.head_dim}, c.strides, 52),
          Tensor(c.key_dtype, {c.batch, c.keys, c.key_heads, c.value_dim}, c.strides, 53)};
}
inline LinearGradients backward(const LinearProblem& p,
                                core::InstructionSet isa = core::InstructionSet::best,
                                int threads = 1) {
  LinearGradients got = fresh_gradients(p);
  LinearOptions options = p.options;
  options.isa = isa;
  options.threads = threads;
  linear_attend_backward(p.rotary, p.q.view(), p.k.view(), p.v.view(), p.d_out.view(),
                         got.d_q.view(), got.d_k.view(), got.d_v.view(), options);
  return got;
}
inline void expect_same_bytes(const LinearGradients& got, const LinearGradients& expected) {
  EXPECT_EQ(got.d_q.bytes(), expected.d_q.bytes());
  EXPECT_EQ(got.d_k.bytes(), expected.d_k.bytes());
  EXPECT_EQ(got.d_v.bytes(), expected.d_v.bytes());
}

// Tokens [first, first + count) of a view.
template <class View>
[[nodiscard]] View part_of(View view, std::int64_t first, std::int64_t count) {
  using Bytes =
      std::conditional_t<std::is_same_v<View, core::HeadsView>, std::byte, const std::byte>;
  view.data = static_cast<Bytes*>(view.data) +
              first * view.token_stride * static_cast<std::int64_t>(size_of(view.dtype));
  view.tokens = count;
  return view;
}

// A golden case: its inputs, [batch, head, seq, dim] with rotated interleaved pairs.
struct LinearGolden {
  const char* name;
  FeatureMap features;
  Causality causality;
  std::int64_t batch, heads, tokens, dim, value_dim;

  [[nodiscard]] LinearOptions options() const {
    return {.causality = causality, .features = features};
  }
  [[nodiscard]] core::Rotary rotary() const {
    return {core::make_frequencies({dim, 10000.0}), core::PairLayout::interleaved, dim};
  }
  template <class T>
  [[nodiscard]] auto view(T& values, std::int64_t width) const {
    return core::heads_first_view(values.data(), batch, heads, tokens, width);
  }
};

}  // namespace phasor::attention::tests
