// Tensors before and after the rotation of a simulated engine.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/porting/diagnose.hpp"

namespace phasor::porting::testing {

using encodings::RopeScaling;
using encodings::RopeSpec;

// The rotation of an engine. The rotation below is the plain formula on single features; the
// engine of this project takes part in one test of its own.
struct Recipe {
  std::int64_t batch = 1, tokens = 24, heads = 3, head_dim = 64;
  std::int64_t rotary_dim = 64, first = 0;
  std::string layout = "half";
  double base = 10000.0;
  RopeScaling scaling = encodings::DefaultScaling{};
  std::optional<std::int64_t> context;
  std::vector<double> frequencies;  // over base and scaling
  double amplitude = 0.0;           // 0: the scaling's own
  bool inverse = false;
  std::vector<double> positions;  // per token, or per batch row and token; empty: from offset on
  std::int64_t offset = 0;
  io::NpyType dtype = io::NpyType::f32;
  io::NpyType table = io::NpyType::f64;       // cos and sin are rounded to it
  io::NpyType arithmetic = io::NpyType::f64;  // products and sums too
  unsigned seed = 1;
};

inline double round_to(io::NpyType type, double value) {
  switch (type) {
    case io::NpyType::f32:
      return static_cast<float>(value);
    case io::NpyType::f16:
      return core::to_float(core::to_half(static_cast<float>(value)));
    case io::NpyType::bf16:
      return core::to_float(core::to_bfloat16(static_cast<float>(value)));
    default:
      return value;
  }
}

inline io::NpyArray array_of(io::NpyType type, std::vector<std::int64_t> shape,
                             const std::vector<double>& values) {
  io::NpyArray array = io::make_npy(type, std::move(shape));
  for (std::size_t k = 0; k < values.size(); ++k) {
    const auto narrow = static_cast<float>(values[k]);
    if (type == io::NpyType::f64) array.as<double>()[k] = values[k];
    if (type == io::NpyType::i64) array.as<std::int64_t>()[k] = std::llround(values[k]);
    if (type == io::NpyType::f32) array.as<float>()[k] = narrow;
    if (type == io::NpyType::f16) array.as<std::uint16_t>()[k] = core::to_half(narrow).bits;
    if (type == io::NpyType::bf16) array.as<std::uint16_t>()[k] = core::to_bfloat16(narrow).bits;
  }
  return array;
}

inline RopeSpec spec_of(const Recipe& recipe) {
  RopeSpec spec;
  spec.head_dim = recipe.head_dim;
  spec.rotary_dim = recipe.rotary_dim;
  spec.rotary_offset = recipe.first;
  spec.base = recipe.base;
  spec.scaling = recipe.scaling;
  spec.layout = core::pair_layout_of(recipe.layout);
  return spec;
}

struct Sample {
  std::vector<double> before, after;
  std::vector<std::int64_t> shape;  // [batch, tokens, heads, head_dim]
  io::NpyType dtype = io::NpyType::f32;
  std::vector<double> frequencies;
  double amplitude = 1.0;

  [[nodiscard]] Diagnosis diagnose(const std::optional<io::NpyArray>& positions = std::nullopt,
                                   std::vector<std::string> axes = {}) const {
    const io::NpyArray x = array_of(dtype, shape, before), y = array_of(dtype, shape, after);
    return porting::diagnose({&x, &y, positions ? &*positions : nullptr, std::move(axes)});
  }

  [[nodiscard]] ConfigCheck check(
      const RopeSpec& spec, const std::optional<io::NpyArray>& positions = std::nullopt) const {
    const io::NpyArray x = array_of(dtype, shape, before), y = array_of(dtype, shape, after);
    return check_config({&x, &y, positions ? &*positions : nullptr, {}}, spec);
  }
};

inline std::vector<double> random_values(std::size_t count, unsigned seed, io::NpyType type) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = round_to(type, normal(generator));
  return values;
}

// (read a, read b, write a, write b) of a pair, written out once more.
inline std::array<std::int64_t, 4> pair_features(const Recipe& recipe, std::int64_t pair) {
  const std::int64_t near = recipe.first + pair, far = near + recipe.rotary_dim / 2;
  const std::int64_t even = recipe.first + 2 * pair, odd = even + 1;
  if (recipe.layout == "interleaved") return {even, odd, even, odd};
  if (recipe.layout == "interleaved_to_half") return {even, odd, near, far};
  if (recipe.layout == "half_to_interleaved") return {near, far, even, odd};
  return {near, far, near, far};
}

inline Sample make(const Recipe& recipe) {
  Sample sample;
  sample.dtype = recipe.dtype;
  sample.shape = {recipe.batch, recipe.tokens, recipe.heads, recipe.head_dim};
  sample.frequencies = recipe.frequencies;
  if (recipe.frequencies.empty()) {
    const core::Frequencies resolved =
        encodings::resolve_frequencies(spec_of(recipe), recipe.context);
    sample.frequencies.assign(resolved.values().begin(), resolved.values().end());
    sample.amplitude = resolved.amplitude();
  }
  if (recipe.amplitude != 0.0) sample.amplitude = recipe.amplitude;
  const std::int64_t vectors = recipe.batch * recipe.tokens * recipe.heads;
  sample.before =
      random_values(static_cast<std::size_t>(vectors * recipe.head_dim), recipe.seed, recipe.dtype);
  sample.after = sample.before;
  for (std::int64_t v = 0; v < vectors; ++v) {
    const std::int64_t token = v / recipe.heads % recipe.tokens;
    const std::int64_t row = v / recipe.heads / recipe.tokens * recipe.tokens + token;
    double position = static_cast<double>(recipe.offset + token);
    if (!recipe.positions.empty()) {
      const bool per_row = recipe.positions.size() > static_cast<std::size_t>(recipe.tokens);
      position = recipe.positions[static_cast<std::size_t>(per_row ? row : token)];
    }
    for (std::size_t i = 0; i < sample.frequencies.size(); ++i) {
      const auto [a, b, to_a, to_b] = pair_features(recipe, static_cast<std::int64_t>(i));
      const double angle = (recipe.inverse ? -1.0 : 1.0) * sample.frequencies[i] * position;
      const double cos = round_to(recipe.table, sample.amplitude * std::cos(angle));
      const double sin = round_to(recipe.table, sample.amplitude * std::sin(angle));
      const double* const x = sample.before.data() + v * recipe.head_dim;
      double* const y = sample.after.data() + v * recipe.head_dim;
      const auto keep = [&](double value) { return round_to(recipe.arithmetic, value); };
      y[to_a] = round_to(recipe.dtype, keep(x[a] * cos) - keep(x[b] * sin));
      y[to_b] = round_to(recipe.dtype, keep(x[b] * cos) + keep(x[a] * sin));
    }
  }
  return sample;
}

inline io::NpyArray range(std::int64_t first, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), static_cast<double>(first));
  return array_of(io::NpyType::i64, {count}, values);
}

inline double number_of(const Diagnosis& found, std::string_view name) {
  for (const auto& [key, value] : found.scaling->numbers) {
    if (key == name) return value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

inline bool says(const std::vector<std::string>& notes, std::string_view words) {
  return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
    return note.find(words) != std::string::npos;
  });
}

inline std::string page(const Diagnosis& found) { return diagnose_json(found); }

inline void expect_rotation(const Diagnosis& found, const Recipe& recipe) {
  ASSERT_EQ(found.answer, Answer::rope) << page(found);
  EXPECT_EQ(found.layout, recipe.layout) << page(found);
  EXPECT_EQ(found.rotary_dim, recipe.rotary_dim) << page(found);
  EXPECT_EQ(found.rotary_offset, recipe.first) << page(found);
  EXPECT_EQ(found.inverse, recipe.inverse) << page(found);
}

inline void expect_frequencies(const Diagnosis& found, const Sample& sample, double rtol) {
  ASSERT_EQ(found.frequencies.size(), sample.frequencies.size()) << page(found);
  for (std::size_t i = 0; i < sample.frequencies.size(); ++i) {
    EXPECT_NEAR(found.frequencies[i], sample.frequencies[i], rtol * sample.frequencies[i] + 1e-12)
        << "pair " << i << " " << page(found);
  }
}

inline encodings::YarnScaling yarn(double factor, std::int64_t length, bool truncate = true) {
  encodings::YarnScaling scaling;
  scaling.factor = factor;
  scaling.original_length = length;
  scaling.truncate = truncate;
  return scaling;
}

}  // namespace phasor::porting::testing
