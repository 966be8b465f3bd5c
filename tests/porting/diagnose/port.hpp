// A simulated port: rotates random vectors with settings that a test may get wrong.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "phasor/encodings/rope.hpp"
#include "phasor/porting/diagnose.hpp"
#include "porting/diagnose/diagnose_sample.hpp"

namespace phasor::porting::testing {

using Position = std::function<double(std::int64_t b, std::int64_t t, std::int64_t h, int axis)>;
// (a, b) and the (cos, sin) of each result -> the results.
using PairForm = std::function<std::array<double, 2>(double a, double b, double ca, double sa,
                                                     double cb, double sb)>;

inline std::array<double, 2> rotated_pair(double a, double b, double ca, double sa, double cb,
                                          double sb) {
  return {a * ca - b * sa, b * cb + a * sb};
}

struct Port {
  RopeSpec spec;  // what the config says
  std::int64_t batch = 1, tokens = 24, heads = 4;
  bool heads_first = false;  // [batch, heads, tokens, dim]
  bool without_batch = false;
  io::NpyType dtype = io::NpyType::f32;
  bool narrow_arithmetic = false;  // products and sums in dtype
  bool float32_angles = false;     // frequencies, angles and tables in float32
  std::int64_t offset = 0;
  bool give_positions = false;
  std::optional<std::int64_t> context;
  std::optional<std::int64_t> told_heads;  // num_attention_heads of the config
  // What the port does; the constructor sets what the config says.
  std::vector<double> frequencies;
  std::vector<int> axes;
  double amplitude = 1.0;
  std::vector<std::array<std::int64_t, 4>> places;
  std::vector<std::int64_t> entry_a, entry_b;
  PairForm form = rotated_pair;
  Position position, asked;
  io::NpyType position_type = io::NpyType::f64, frequency_type = io::NpyType::f64,
              angle_type = io::NpyType::f64, table_type = io::NpyType::f64;
  std::vector<double> growth;  // log growth per position and pair
  double growth_centre = 0.0;
  std::function<bool(std::int64_t b, std::int64_t t, std::int64_t h)> idle;
  int times = 1;
  unsigned seed = 1;

  explicit Port(RopeSpec what, std::optional<std::int64_t> at = std::nullopt)
      : spec(std::move(what)), context(at) {
    set_spec(spec);
    asked = [this](std::int64_t, std::int64_t t, std::int64_t, int) {
      return static_cast<double>(offset + t);
    };
    position = [this](std::int64_t b, std::int64_t t, std::int64_t h, int axis) {
      return asked(b, t, h, axis);
    };
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // Everything but the positions as another spec says.
  void set_spec(const RopeSpec& other) {
    const core::Rotary rotary = encodings::resolve(other, context);
    frequencies.assign(rotary.frequencies.values().begin(), rotary.frequencies.values().end());
    axes.assign(rotary.frequencies.axes().begin(), rotary.frequencies.axes().end());
    amplitude = rotary.frequencies.amplitude();
    growth.clear();
    if (rotary.growth) {
      growth = rotary.growth->rates;
      growth_centre = rotary.growth->centre;
    }
    set_layout(*other.layout, rotary.offset, rotary.rotary_dim(), rotary.blocks);
  }
  void set_layout(core::PairLayout layout, std::int64_t first, std::int64_t width,
                  std::int64_t blocks = 1) {
    places.clear();
    const std::int64_t block = width / blocks;
    for (std::int64_t start = first; start < first + width; start += block) {
      for (std::int64_t i = 0; i < block / 2; ++i) {
        const std::int64_t near = start + i, far = near + block / 2;
        const std::int64_t even = start + 2 * i, odd = even + 1;
        if (layout == core::PairLayout::half) places.push_back({near, far, near, far});
        if (layout == core::PairLayout::interleaved) places.push_back({even, odd, even, odd});
        if (layout == core::PairLayout::interleaved_to_half) {
          places.push_back({even, odd, near, far});
        }
      }
    }
  }

  [[nodiscard]] io::NpyArray positions() const {
    const int rows = encodings::axis_count(spec.axes);
    std::vector<double> values;
    for (int axis = 0; axis < rows; ++axis) {
      for (std::int64_t b = 0; b < batch; ++b) {
        for (std::int64_t t = 0; t < tokens; ++t) values.push_back(asked(b, t, 0, axis));
      }
    }
    std::vector<std::int64_t> shape = {batch, tokens};
    if (batch == 1) shape = {tokens};
    if (rows > 1) shape = {rows, batch, tokens};
    return array_of(io::NpyType::f64, shape, values);
  }

  struct Tensors {
    io::NpyArray before, after;
  };
  [[nodiscard]] Tensors run() const {
    const std::int64_t dim = spec.head_dim, count = batch * tokens * heads;
    const std::vector<double> before =
        random_values(static_cast<std::size_t>(count * dim), seed, dtype);
    std::vector<double> after = before;
    for (int time = 0; time < times; ++time) after = rotate(after);
    std::vector<std::int64_t> shape = {batch, tokens, heads, dim};
    if (heads_first) shape = {batch, heads, tokens, dim};
    if (without_batch) shape.erase(shape.begin());
    return {array_of(dtype, shape, before), array_of(dtype, shape, after)};
  }
  [[nodiscard]] ConfigCheck check() const {
    const Tensors tensors = run();
    const io::NpyArray where = positions();
    CheckOptions options;
    options.context = context;
    options.heads = told_heads;
    return check_config({&tensors.before, &tensors.after, give_positions ? &where : nullptr, {}},
                        spec, options);
  }

 private:
  [[nodiscard]] std::vector<double> rotate(const std::vector<double>& from) const {
    std::vector<double> to = from;
    const std::int64_t dim = spec.head_dim;
    const auto f32 = [&](double value) {
      return float32_angles ? static_cast<double>(static_cast<float>(value)) : value;
    };
    const auto keep = [&](double value) {
      return narrow_arithmetic ? round_to(dtype, value) : f32(value);
    };
    std::vector<double> cos(frequencies.size()), sin(frequencies.size());
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          if (idle && idle(b, t, h)) continue;
          for (std::size_t i = 0; i < frequencies.size(); ++i) {
            const double p = round_to(position_type, position(b, t, h, axes.empty() ? 0 : axes[i]));
            const double f = round_to(frequency_type, f32(frequencies[i]));
            const double angle = round_to(angle_type, f32(p * f));
            const double grown =
                growth.empty() ? amplitude : amplitude * std::exp(growth[i] * (p - growth_centre));
            cos[i] = round_to(table_type, f32(grown * std::cos(angle)));
            sin[i] = round_to(table_type, f32(grown * std::sin(angle)));
            if (narrow_arithmetic) {
              cos[i] = round_to(dtype, cos[i]);
              sin[i] = round_to(dtype, sin[i]);
            }
          }
          const std::int64_t v =
              heads_first ? (b * heads + h) * tokens + t : (b * tokens + t) * heads + h;
          const double* const x = from.data() + v * dim;
          double* const y = to.data() + v * dim;
          for (std::size_t i = 0; i < places.size(); ++i) {
            const auto& [ra, rb, wa, wb] = places[i];
            const auto ea = static_cast<std::size_t>(entry_a.empty() ? static_cast<std::int64_t>(i)
                                                                     : entry_a[i]);
            const auto eb = static_cast<std::size_t>(entry_b.empty() ? static_cast<std::int64_t>(i)
                                                                     : entry_b[i]);
            std::array<double, 2> out;
            if (narrow_arithmetic) {
              // Each product is rounded, then the sum.
              const auto first = form(x[ra], 0.0, cos[ea], sin[ea], cos[eb], sin[eb]);
              const auto second = form(0.0, x[rb], cos[ea], sin[ea], cos[eb], sin[eb]);
              out = {keep(first[0]) + keep(second[0]), keep(first[1]) + keep(second[1])};
            } else {
              out = form(x[ra], x[rb], cos[ea], sin[ea], cos[eb], sin[eb]);
            }
            y[wa] = round_to(dtype, out[0]);
            y[wb] = round_to(dtype, out[1]);
          }
        }
      }
    }
    return to;
  }
};

}  // namespace phasor::porting::testing
