// A rotation, correct or mistaken, as numbers that can be applied forward: the model that is compared
// with the data.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "porting/diagnose/parts.hpp"

namespace phasor::porting::forward {

// The tensors with their axes named.
struct Data {
  const diagnosis::Vectors* vectors = nullptr;
  std::int64_t batch = 1, tokens = 1, heads = 1;
  std::int64_t batch_stride = 0, token_stride = 0, head_stride = 0;  // in vectors
  std::vector<std::string> axes;                                     // names, without dim
  bool axes_certain = false;                                         // no other naming is possible

  [[nodiscard]] std::int64_t vector_at(std::int64_t b, std::int64_t t,
                                       std::int64_t h) const noexcept {
    return b * batch_stride + t * token_stride + h * head_stride;
  }
  [[nodiscard]] bool usable(std::int64_t v) const {
    return vectors->usable[static_cast<std::size_t>(v)] != 0;
  }
  [[nodiscard]] const double* before(std::int64_t v) const {
    return vectors->before.data() + v * vectors->dim;
  }
  [[nodiscard]] const double* after(std::int64_t v) const {
    return vectors->after.data() + v * vectors->dim;
  }
};

// Positions [axes, batch, tokens, heads]; an extent of 1 holds for all.
struct PositionTable {
  std::int64_t axes = 1, batch = 1, tokens = 1, heads = 1;
  std::vector<double> values;

  [[nodiscard]] double at(std::int64_t axis, std::int64_t b, std::int64_t t,
                          std::int64_t h) const noexcept {
    axis = axes == 1 ? 0 : axis;
    b = batch == 1 ? 0 : b;
    t = tokens == 1 ? 0 : t;
    h = heads == 1 ? 0 : h;
    return values[static_cast<std::size_t>(((axis * batch + b) * tokens + t) * heads + h)];
  }
};
using Positions = std::shared_ptr<const PositionTable>;

// What is computed from a pair (a, b) and its (cos, sin) = (c, s).
enum class Form : std::uint8_t {
  rotation,         // a c - b s, b c + a s: RoFormer (34)
  inverse,          // a c + b s, b c - a s
  swapped,          // a s - b c, b s + a c
  no_minus,         // a c + b s, b c + a s
  minus_on_both,    // a c - b s, b c - a s
  minus_on_first,   // -(a c) + b s ... each pair reflected: b s - a c, b c + a s
  mirrored,         // a c - b s, -(b c) - a s
  swapped_inverse,  // a s + b c, b s - a c
  in_place,         // a' = a c - b s, b c + a' s: the first result overwrites its input
  cos_only,         // a c, b c
  sin_only,         // -b s, a s
  partner_order,    // (a, b) written as (b', a'): b c + a s, a c - b s
  own_half,         // a c - a s, b c + b s: rotate_half does not swap the halves
  own_half_other,   // a c + a s, b c - b s
  first_only,       // a c - b s, b
  second_only,      // a, b c + a s
};

// Types that an engine rounds to between position and table entry.
struct Types {
  core::DType position = core::DType::f64, frequency = core::DType::f64, angle = core::DType::f64,
              table = core::DType::f64;
  bool operator==(const Types&) const = default;
};

struct PairPlace {
  std::int64_t read_a, read_b, write_a, write_b;
  bool operator==(const PairPlace&) const = default;
};

struct Model {
  std::vector<PairPlace> pairs;
  // The table entry that the result a, or b, of each pair reads; empty: pair i reads entry i.
  std::vector<std::int64_t> entry_a, entry_b;
  std::vector<double> frequencies;  // per entry
  std::vector<std::uint8_t> axes;   // per entry; empty: axis 0
  double amplitude = 1.0;
  Form form = Form::rotation;
  std::optional<core::Growth> growth;  // xPos; negative rates for keys
  Positions positions;
  double shift = 0.0;  // added to every position
  Types types;
  double roundings = 1.0;                // more than one rotation has
  std::vector<std::uint8_t> idle_heads;  // not rotated; empty: all are
  bool rest_is_zero = false;             // the features outside the window; false: unchanged
};

// The factors of one token's pairs: a' = aa a + ab b, b' = ba a + bb b; and the angle that their
// tolerance is computed from.
struct PairFactors {
  double aa, ab, ba, bb;
  double doubt_a, doubt_b;  // radians: what float32 angles may be off
  double hidden = 0.0;      // terms that cancel in the factors, relative to the pair's length
};
void factors_of(const Model& model, std::int64_t b, std::int64_t t, std::int64_t h,
                std::vector<PairFactors>& out);

// The comparison of a model with the data.
struct Score {
  double left = 0.0, energy = 0.0;     // sums of squares: after - model, after
  double worst = 0.0;                  // largest |after - model| / bound
  double product = 0.0, square = 0.0;  // after . model, model . model over rotated features
  std::int64_t vectors = 0;
  std::int64_t worst_vector = -1;

  [[nodiscard]] double relative() const;
  [[nodiscard]] bool fits() const noexcept { return vectors > 0 && worst <= 1.0; }
  // The factor on the model that fits best.
  [[nodiscard]] double gain() const noexcept { return square > 0.0 ? product / square : 1.0; }
};

// Which vectors a model is compared on.
struct Sample {
  struct Row {
    std::int64_t b, t;
    std::vector<std::int64_t> heads;
  };
  std::vector<Row> rows;
};
[[nodiscard]] Sample sample_of(const Data& data, std::int64_t most_rows, std::int64_t most_heads);
[[nodiscard]] Sample everything(const Data& data);

[[nodiscard]] Score score(const Data& data, const Model& model, const Sample& sample);

// The prediction of one vector.
void predict(const Data& data, const Model& model, const std::vector<PairFactors>& factors,
             std::int64_t v, std::vector<double>& out, std::vector<double>& bound);

// How far the data lie from `asked` towards `other`, in units of their distance: 0 the first is
// right, 1 the second. `evidence`: the squared distance over the variance of the rounding, per head.
struct Lean {
  double towards = 0.0, evidence = 0.0;
};
[[nodiscard]] Lean lean(const Data& data, const Model& asked, const Model& other,
                        const Sample& sample);

}  // namespace phasor::porting::forward
