// Parameters of a spec that may have other values in the data.
#include <cmath>
#include <utility>
#include <variant>

#include "phasor/core/error.hpp"
#include "porting/mistakes.hpp"
#include "porting/number_text.hpp"

namespace phasor::porting {
namespace {

using encodings::RopeSpec;

// Bases, factors and lengths that configs have.
const std::vector<double> kBasesOfModels = {1e4, 5e5,   1e6, 1e5, 1.5e5, 1.6e5, 2e6,  5e6,
                                            1e7, 2.5e4, 1e3, 100, 4e6,   8e6,   1e8,  3.2e5,
                                            6e5, 1e9,   2e5, 3e6, 5e4,   2e4,   1.1e7};
const std::vector<double> kFactorsOfModels = {2.0, 4.0, 8.0,  16.0, 32.0, 64.0, 1.5,   2.5, 3.0,
                                              5.0, 6.0, 10.0, 12.0, 20.0, 40.0, 128.0, 0.5, 0.25};
std::vector<double> likely_lengths() {
  std::vector<double> lengths;
  for (double length = 256.0; length <= 4194304.0; length *= 2.0) {
    lengths.push_back(length);
    lengths.push_back(1.5 * length);
    lengths.push_back(1.25 * length);
  }
  return lengths;
}

}  // namespace

std::vector<Knob> knobs_of(const RopeSpec& spec, std::optional<std::int64_t> context) {
  std::vector<Knob> knobs;
  const auto make = [&](auto change) {
    return [spec, context, change](double value) -> std::optional<core::Frequencies> {
      try {
        RopeSpec changed = spec;
        change(changed, value);
        return encodings::resolve_frequencies(changed, context);
      } catch (const Error&) {
        return std::nullopt;
      }
    };
  };
  if (spec.frequencies.empty()) {
    knobs.push_back({"base", "base", spec.base, 2.0, 1e12, kBasesOfModels,
                     make([](RopeSpec& x, double value) { x.base = value; })});
    if (!std::holds_alternative<encodings::DefaultScaling>(spec.scaling)) {
      knobs.push_back({"base_and_scaling_ignored", "base", spec.base, 2.0, 1e12, kBasesOfModels,
                       make([](RopeSpec& x, double value) {
                         x.base = value;
                         x.scaling = encodings::DefaultScaling{};
                       })});
    } else {
      knobs.push_back(
          {"factor", "factor", 1.0, 1.01, 4096.0, kFactorsOfModels,
           make([](RopeSpec& x, double value) { x.scaling = encodings::LinearScaling{value}; })});
    }
  }
  std::visit(
      [&]<class S>(const S& scaling) {
        if constexpr (requires { scaling.factor; }) {
          if (!std::is_same_v<S, encodings::LongRopeScaling>) {
            knobs.push_back({"factor", "factor", scaling.factor, 1e-3, 4096.0, kFactorsOfModels,
                             make([](RopeSpec& x, double value) {
                               auto& s = std::get<S>(x.scaling);
                               if constexpr (requires { s.factor; }) s.factor = value;
                             })});
          }
        }
        if constexpr (requires { scaling.original_length; }) {
          if (scaling.original_length > 0 && !std::is_same_v<S, encodings::LongRopeScaling>) {
            knobs.push_back({"original_length", "original_max_position_embeddings",
                             static_cast<double>(scaling.original_length), 16.0, 1e8,
                             likely_lengths(), make([](RopeSpec& x, double value) {
                               auto& s = std::get<S>(x.scaling);
                               if constexpr (requires { s.original_length; }) {
                                 s.original_length = std::llround(value);
                               }
                             })});
          }
        }
        if constexpr (requires { scaling.beta_fast; }) {
          knobs.push_back(
              {"beta_fast",
               "beta_fast",
               scaling.beta_fast,
               0.5,
               1024.0,
               {32.0, 16.0, 64.0, 8.0, 128.0, 1.0, 4.0, 2.0},
               make([](RopeSpec& x, double value) { std::get<S>(x.scaling).beta_fast = value; })});
          knobs.push_back(
              {"beta_slow",
               "beta_slow",
               scaling.beta_slow,
               0.01,
               64.0,
               {1.0, 2.0, 4.0, 0.5, 8.0, 16.0, 32.0},
               make([](RopeSpec& x, double value) { std::get<S>(x.scaling).beta_slow = value; })});
        }
        if constexpr (requires { scaling.high_freq_factor; }) {
          knobs.push_back({"high_freq_factor",
                           "high_freq_factor",
                           scaling.high_freq_factor,
                           0.1,
                           256.0,
                           {4.0, 8.0, 2.0, 1.0, 16.0, 32.0},
                           make([](RopeSpec& x, double value) {
                             std::get<S>(x.scaling).high_freq_factor = value;
                           })});
          knobs.push_back({"low_freq_factor",
                           "low_freq_factor",
                           scaling.low_freq_factor,
                           0.01,
                           64.0,
                           {1.0, 2.0, 0.5, 4.0},
                           make([](RopeSpec& x, double value) {
                             std::get<S>(x.scaling).low_freq_factor = value;
                           })});
        }
      },
      spec.scaling);
  if (encodings::depends_on_context(spec)) {
    knobs.push_back({"context", "context", static_cast<double>(context.value_or(0)), 1.0, 1e8,
                     likely_lengths(), [spec](double value) -> std::optional<core::Frequencies> {
                       try {
                         return encodings::resolve_frequencies(spec, std::llround(value));
                       } catch (const Error&) {
                         return std::nullopt;
                       }
                     }});
  }
  return knobs;
}

Mistake mistake_of(const Knob& knob, double value, const core::Frequencies& made, int known) {
  const std::string asked = digits(knob.asked, 10), found = digits(value, known);
  std::string text = message(knob.field, ": ", asked, " in the config, ", found, " in the data");
  if (knob.id == "base_and_scaling_ignored") {
    text = message("base: ", asked, " in the config, ", found,
                   " in the data, and the scaling was not applied");
  } else if (knob.id == "context") {
    text = message("the frequencies are those of a context of ", found, ", not of ", asked);
  }
  return {knob.id,         std::move(text), knob.field,
          asked,           found,           {made.values().begin(), made.values().end()},
          made.amplitude()};
}

}  // namespace phasor::porting
