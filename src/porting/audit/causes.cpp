#include "porting/audit/causes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "porting/mistakes.hpp"
#include "porting/rounding.hpp"

namespace phasor::porting {
namespace {

using core::DType;

// Rows that a cause is compared on; recurrences still run over all rows.
constexpr std::int64_t kSampledRows = 256;
// A cause must explain at least two thirds of the distance to the exact values.
constexpr double kExplains = 1.0 / 3.0;
// Of causes whose residuals differ by less than this factor, the simplest is chosen.
constexpr double kAlike = 1.25;

struct RotationRow {
  std::vector<double> cos, sin;
};

// Fills the row of one token; called for every row in order when `needs_every_row`.
struct Hypothesis {
  std::string name, text;
  std::function<void(std::span<const double> position, RotationRow& row)> predict;
  bool needs_every_row = false;
};

// The types an engine rounds to between a position and a table entry.
struct Roundings {
  std::string_view name, text;
  DType position = DType::f64, frequency = DType::f64, angle = DType::f64, table = DType::f64;
  // Most engines that keep float32 frequencies also compute them in float32.
  DType computed = DType::f32;
};

// The most common arithmetic.
constexpr Roundings kFloat32Product{
    .name = "float32_product",
    .text = "float32 frequencies times float32 positions, the angle rounded to float32",
    .frequency = DType::f32,
    .angle = DType::f32};

// Simplest first: of two that give the same numbers, the first is named.
constexpr std::array kRoundings = {
    Roundings{.name = "bfloat16_table",
              .text = "exact cos and sin, rounded to bfloat16",
              .table = DType::bf16},
    Roundings{.name = "float16_table",
              .text = "exact cos and sin, rounded to float16",
              .table = DType::f16},
    Roundings{.name = "float32_frequencies",
              .text = "frequencies in float32, the rest in float64",
              .frequency = DType::f32},
    Roundings{.name = "float32_angles",
              .text = "float64 frequencies, the angle rounded to float32",
              .angle = DType::f32},
    kFloat32Product,
    Roundings{.name = "rounded_frequencies",
              .text = "float64 frequencies rounded to float32, the rest in float64",
              .frequency = DType::f32,
              .computed = DType::f64},
    Roundings{.name = "rounded_product",
              .text = "float64 frequencies rounded to float32, times float32 positions, the angle "
                      "rounded to float32",
              .frequency = DType::f32,
              .angle = DType::f32,
              .computed = DType::f64},
    Roundings{.name = "float32_positions",
              .text = "positions in float32, which cannot represent every integer above 16777216",
              .position = DType::f32},
    Roundings{.name = "bfloat16_positions",
              .text = "positions in bfloat16, which cannot represent every integer above 256",
              .position = DType::bf16,
              .frequency = DType::f32,
              .angle = DType::f32},
    Roundings{.name = "float16_positions",
              .text = "positions in float16, which cannot represent every integer above 2048",
              .position = DType::f16,
              .frequency = DType::f32,
              .angle = DType::f32},
    Roundings{
        .name = "bfloat16_frequencies",
        .text = "frequencies in bfloat16 (casting the whole model to bfloat16 casts them too)",
        .frequency = DType::bf16,
        .angle = DType::f32},
    Roundings{.name = "float16_frequencies",
              .text = "frequencies in float16",
              .frequency = DType::f16,
              .angle = DType::f32},
    Roundings{.name = "bfloat16_angles",
              .text = "the angle rounded to bfloat16 (computed under autocast)",
              .frequency = DType::f32,
              .angle = DType::bf16},
    Roundings{.name = "float16_angles",
              .text = "the angle rounded to float16",
              .frequency = DType::f32,
              .angle = DType::f16},
    Roundings{.name = "bfloat16_throughout",
              .text = "positions, frequencies and angles all in bfloat16",
              .position = DType::bf16,
              .frequency = DType::bf16,
              .angle = DType::bf16},
    Roundings{.name = "float16_throughout",
              .text = "positions, frequencies and angles all in float16",
              .position = DType::f16,
              .frequency = DType::f16,
              .angle = DType::f16},
};

class Engine {
 public:
  Engine(const encodings::RopeSpec& spec, core::Frequencies frequencies)
      : spec_(spec), frequencies_(std::move(frequencies)) {}

  [[nodiscard]] Hypothesis rounding(const Roundings& at) const {
    std::vector<double> kept;
    for (std::size_t pair = 0; pair < count(); ++pair) {
      const double exact = frequencies_.values()[pair];
      const auto from_float32 = static_cast<double>(frequencies_.float32_values()[pair]);
      kept.push_back(at.frequency == DType::f64
                         ? exact
                         : rounded(at.computed == DType::f64 ? exact : from_float32, at.frequency));
    }
    return {
        std::string(at.name), std::string(at.text),
        [frequencies = frequencies_, kept, at](std::span<const double> position, RotationRow& row) {
          if (at.angle == DType::f64 && at.position == DType::f64) {
            exact_row(frequencies, kept, position, row);
          } else {
            for (std::size_t pair = 0; pair < kept.size(); ++pair) {
              const double angle =
                  rounded(axis_position(frequencies, position, pair), at.position) * kept[pair];
              set(row, pair, rounded(angle, at.angle), frequencies.amplitude());
            }
          }
          for (std::size_t pair = 0; pair < kept.size(); ++pair) {
            row.cos[pair] = rounded(row.cos[pair], at.table);
            row.sin[pair] = rounded(row.sin[pair], at.table);
          }
        }};
  }

  // theta *= base^(-2/dim) from pair to pair, in float32: the rounding errors accumulate.
  [[nodiscard]] Hypothesis repeated_over_pairs() const {
    const auto step =
        static_cast<float>(std::pow(spec_.base, -2.0 / static_cast<double>(spec_.rotary_dim)));
    // The scaling's factor on each frequency, applied after the power.
    std::vector<float> factors;
    for (std::size_t pair = 0; pair < count(); ++pair) {
      const double plain = std::pow(
          spec_.base, -2.0 * static_cast<double>(pair) / static_cast<double>(spec_.rotary_dim));
      factors.push_back(static_cast<float>(frequencies_.values()[pair] / plain));
    }
    return {"repeated_multiplication",
            "the angle of each pair computed from the previous pair by a float32 multiplication",
            [frequencies = frequencies_, step, factors](std::span<const double> position,
                                                        RotationRow& row) {
              for (std::size_t pair = 0; pair < factors.size(); ++pair) {
                auto angle = static_cast<float>(axis_position(frequencies, position, pair));
                for (std::size_t before = 0; before < pair; ++before) angle *= step;
                set(row, pair, static_cast<double>(angle * factors[pair]), frequencies.amplitude());
              }
            }};
  }

  // Each row from the previous one by the angle addition formula, in float32.
  [[nodiscard]] Hypothesis rotated_step_by_step() const {
    struct State {
      std::vector<float> cos, sin, step_cos, step_sin;
    };
    auto state = std::make_shared<State>();
    return {
        "repeated_turning",
        "each row rotated from the previous row in float32, so that errors accumulate",
        [frequencies = frequencies_, state](std::span<const double> position, RotationRow& row) {
          const std::size_t pairs = frequencies.values().size();
          if (state->cos.empty()) {
            for (std::size_t pair = 0; pair < pairs; ++pair) {
              const double step = frequencies.values()[pair];
              const double first = axis_position(frequencies, position, pair) * step;
              state->cos.push_back(static_cast<float>(std::cos(first)));
              state->sin.push_back(static_cast<float>(std::sin(first)));
              state->step_cos.push_back(static_cast<float>(std::cos(step)));
              state->step_sin.push_back(static_cast<float>(std::sin(step)));
            }
          } else {
            for (std::size_t pair = 0; pair < pairs; ++pair) {
              const float cos = state->cos[pair], sin = state->sin[pair];
              state->cos[pair] = cos * state->step_cos[pair] - sin * state->step_sin[pair];
              state->sin[pair] = sin * state->step_cos[pair] + cos * state->step_sin[pair];
            }
          }
          for (std::size_t pair = 0; pair < pairs; ++pair) {
            row.cos[pair] = static_cast<double>(state->cos[pair]) * frequencies.amplitude();
            row.sin[pair] = static_cast<double>(state->sin[pair]) * frequencies.amplitude();
          }
        },
        true};
  }

  [[nodiscard]] Hypothesis angles_summed() const {
    auto angles = std::make_shared<std::vector<float>>();
    return {
        "repeated_addition",
        "the angle of each row computed from the previous row by adding a float32 frequency",
        [frequencies = frequencies_, angles](std::span<const double> position, RotationRow& row) {
          const auto steps = frequencies.float32_values();
          if (angles->empty()) {
            for (std::size_t pair = 0; pair < steps.size(); ++pair) {
              const auto first = static_cast<float>(axis_position(frequencies, position, pair));
              angles->push_back(first * steps[pair]);
            }
          } else {
            for (std::size_t pair = 0; pair < steps.size(); ++pair) {
              (*angles)[pair] += steps[pair];
            }
          }
          for (std::size_t pair = 0; pair < steps.size(); ++pair) {
            set(row, pair, static_cast<double>((*angles)[pair]), frequencies.amplitude());
          }
        },
        true};
  }

  // Exact arithmetic on these frequencies, after `mistake` has changed position or row.
  [[nodiscard]] Hypothesis exactly(std::string name, std::string text, double shift = 0.0,
                                   void (*mistake)(RotationRow&) = nullptr) const {
    return {std::move(name), std::move(text),
            [frequencies = frequencies_, shift, mistake](std::span<const double> position,
                                                         RotationRow& row) {
              std::vector<double> moved(position.begin(), position.end());
              for (double& value : moved) value += shift;
              core::cos_sin(frequencies, moved, std::span(row.cos), std::span(row.sin));
              if (mistake != nullptr) mistake(row);
            }};
  }

 private:
  [[nodiscard]] std::size_t count() const noexcept { return frequencies_.values().size(); }

  [[nodiscard]] static double axis_position(const core::Frequencies& frequencies,
                                            std::span<const double> position, std::size_t pair) {
    const auto axes = frequencies.axes();
    return position[axes.empty() ? 0 : axes[pair]];
  }
  static void set(RotationRow& row, std::size_t pair, double angle, double amplitude) {
    row.cos[pair] = std::cos(angle) * amplitude;
    row.sin[pair] = std::sin(angle) * amplitude;
  }
  static void exact_row(const core::Frequencies& like, const std::vector<double>& values,
                        std::span<const double> position, RotationRow& row) {
    const core::Frequencies kept(values, like.amplitude(), {like.axes().begin(), like.axes().end()},
                                 {}, like.axis_count());
    core::cos_sin(kept, position, std::span(row.cos), std::span(row.sin));
  }

  const encodings::RopeSpec& spec_;
  core::Frequencies frequencies_;
};

[[nodiscard]] core::Frequencies with_amplitude(const core::Frequencies& frequencies,
                                               double amplitude) {
  return core::Frequencies({frequencies.values().begin(), frequencies.values().end()}, amplitude,
                           {frequencies.axes().begin(), frequencies.axes().end()}, {},
                           frequencies.axis_count());
}

// The length of the table's (cos, sin), if it is the same everywhere.
[[nodiscard]] std::optional<double> common_length(const ForeignTable& table) {
  std::vector<double> lengths;
  const std::size_t step = std::max<std::size_t>(1, table.cos.size() / 4096);
  for (std::size_t at = 0; at < table.cos.size(); at += step) {
    const double length = std::hypot(table.cos[at], table.sin[at]);
    if (!std::isfinite(length)) return std::nullopt;
    lengths.push_back(length);
  }
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  if (*longest - *shortest > 0.02 * *longest) return std::nullopt;
  const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  return *middle;
}

void negate_sin(RotationRow& row) {
  for (double& value : row.sin) value = -value;
}
void swap_both(RotationRow& row) { std::swap(row.cos, row.sin); }

class Causes {
 public:
  Causes(const encodings::RopeSpec& spec, const ForeignTable& table, const core::Frequencies& exact,
         std::optional<std::int64_t> context)
      : spec_(spec), table_(table), exact_(exact), context_(context) {
    add_mistakes();
    const Engine engine(spec_, exact_);
    for (const Roundings& roundings : kRoundings) all_.push_back(engine.rounding(roundings));
    if (std::holds_alternative<encodings::OneAxis>(spec.axes)) {
      all_.push_back(engine.repeated_over_pairs());
      if (contiguous()) {
        all_.push_back(engine.angles_summed());
        all_.push_back(engine.rotated_step_by_step());
      }
    }
  }

  [[nodiscard]] const std::vector<Hypothesis>& all() const noexcept { return all_; }

 private:
  // The frequencies of a mistake, in exact arithmetic and in that of engines which compute in float32.
  void add_mistake(const Mistake& mistake) {
    try {
      const core::Frequencies frequencies(mistake.frequencies, mistake.amplitude,
                                          {exact_.axes().begin(), exact_.axes().end()}, {},
                                          exact_.axis_count());
      if (frequencies.pairs() != exact_.pairs() || frequencies.same_values(exact_)) return;
      const Engine engine(spec_, frequencies);
      all_.push_back(engine.exactly(mistake.id, mistake.text));
      Roundings plain = kFloat32Product;
      plain.name = mistake.id;
      plain.text = mistake.text;
      all_.push_back(engine.rounding(plain));
    } catch (const Error&) {
      // Numbers that no table can have.
    }
  }

  void add_mistakes() {
    const Engine engine(spec_, exact_);
    for (const Mistake& mistake : frequency_mistakes(spec_, context_, exact_)) {
      if (mistake.id.starts_with("amplitude")) {
        add_amplitude(mistake.amplitude, mistake.id, mistake.text);
      } else {
        add_mistake(mistake);
      }
    }
    if (const std::optional<double> length = common_length(table_);
        length && std::abs(*length / exact_.amplitude() - 1.0) > 1e-4) {
      add_amplitude(*length, "amplitude",
                    message("amplitude: ", static_cast<float>(exact_.amplitude()),
                            " in the config, ", static_cast<float>(*length), " in the data"));
    }
    for (const Knob& knob : knobs_of(spec_, context_)) {
      for (const double value : knob.likely) {
        if (value == knob.asked || value < knob.lowest || value > knob.highest) continue;
        if (const auto made = knob.with(value)) add_mistake(mistake_of(knob, value, *made));
      }
    }
    all_.push_back(engine.exactly("positions_one_ahead",
                                  "each row has the cos and sin of the next position", 1.0));
    all_.push_back(engine.exactly("positions_one_behind",
                                  "each row has the cos and sin of the previous position", -1.0));
    all_.push_back(
        engine.exactly("turned_backwards", "sin has the opposite sign", 0.0, negate_sin));
    all_.push_back(
        engine.exactly("cos_and_sin_swapped", "cos and sin are swapped", 0.0, swap_both));
  }

  void add_amplitude(double amplitude, std::string name, std::string text) {
    const Engine engine(spec_, with_amplitude(exact_, amplitude));
    all_.push_back(engine.exactly(std::move(name), std::move(text)));
  }

  [[nodiscard]] bool contiguous() const {
    for (std::size_t row = 1; row < table_.positions.size(); ++row) {
      if (table_.positions[row] != table_.positions[row - 1] + 1.0) return false;
    }
    return table_.positions.size() > 1;
  }

  const encodings::RopeSpec& spec_;
  const ForeignTable& table_;
  const core::Frequencies& exact_;
  std::optional<std::int64_t> context_;
  std::vector<Hypothesis> all_;
};

// Root mean square distance between the table and a hypothesis over the sampled rows.
[[nodiscard]] double residual_of(const Hypothesis& hypothesis, const ForeignTable& table,
                                 const core::Frequencies& exact) {
  const auto pairs = static_cast<std::size_t>(exact.pairs());
  const auto axes = static_cast<std::size_t>(exact.axis_count());
  const std::int64_t step = std::max<std::int64_t>(1, table.rows / kSampledRows);
  RotationRow row{std::vector<double>(pairs), std::vector<double>(pairs)};
  double sum = 0.0;
  std::int64_t seen = 0;
  for (std::int64_t index = 0; index < table.rows; ++index) {
    // Counted from the end, so that the last row, where growing errors are largest, is included.
    const bool sampled = (table.rows - 1 - index) % step == 0;
    if (!sampled && !hypothesis.needs_every_row) continue;
    const auto at = static_cast<std::size_t>(index);
    hypothesis.predict(table.positions.subspan(at * axes, axes), row);
    if (!sampled) continue;
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const double cos = table.cos[at * pairs + pair], sin = table.sin[at * pairs + pair];
      // Positions beyond the range of float16 give infinity: a finite table entry contradicts that.
      const bool number = std::isfinite(cos) && std::isfinite(sin);
      if (number != std::isfinite(row.cos[pair])) return std::numeric_limits<double>::infinity();
      if (!number) continue;
      const double distance = std::hypot(cos - row.cos[pair], sin - row.sin[pair]);
      sum += distance * distance;
      ++seen;
    }
  }
  return seen == 0 ? 0.0 : std::sqrt(sum / static_cast<double>(seen)) / exact.amplitude();
}

}  // namespace

CauseFindings find_cause(const encodings::RopeSpec& spec, const ForeignTable& table,
                         const core::Frequencies& exact, std::optional<std::int64_t> context) {
  const Hypothesis correct = Engine(spec, exact).exactly("exact", "the exact values");
  const double error = residual_of(correct, table, exact);
  std::vector<Cause> tried;
  const Causes causes(spec, table, exact, context);
  for (const Hypothesis& hypothesis : causes.all()) {
    tried.push_back({hypothesis.name, hypothesis.text, residual_of(hypothesis, table, exact)});
  }
  CauseFindings findings;
  const auto nearest =
      std::min_element(tried.begin(), tried.end(),
                       [](const Cause& a, const Cause& b) { return a.residual < b.residual; });
  if (nearest == tried.end() || !(nearest->residual < kExplains * error)) return findings;
  const double alike = nearest->residual * kAlike;
  const auto simplest = std::find_if(tried.begin(), tried.end(),
                                     [&](const Cause& cause) { return cause.residual <= alike; });
  findings.cause = *simplest;
  for (const Cause& cause : tried) {
    if (cause.residual <= alike || cause.name == simplest->name) continue;
    if (!findings.runner_up || cause.residual < findings.runner_up->residual)
      findings.runner_up = cause;
  }
  return findings;
}

}  // namespace phasor::porting
