#include "porting/mistakes.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <variant>

#include "phasor/core/error.hpp"
#include "porting/number_text.hpp"

namespace phasor::porting {
namespace {

using encodings::RopeSpec;

class MistakeList {
 public:
  MistakeList(const RopeSpec& spec, std::optional<std::int64_t> context,
              const core::Frequencies& exact)
      : spec_(spec), context_(context), exact_(exact), pairs_(exact.values().size()) {}

  std::vector<Mistake> run() {
    scalings();
    powers();
    multiples();
    lists();
    return std::move(all_);
  }

 private:
  void add(Mistake mistake) {
    const auto exact = exact_.values();
    if (mistake.frequencies.size() != exact.size()) return;
    bool same = std::abs(mistake.amplitude / exact_.amplitude() - 1.0) < 1e-12;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      if (!std::isfinite(mistake.frequencies[i])) return;
      same = same && std::abs(mistake.frequencies[i] - exact[i]) <= 1e-13 * std::abs(exact[i]);
    }
    if (!same) all_.push_back(std::move(mistake));
  }
  // The frequencies of another spec.
  void other(const char* id, std::string text, const RopeSpec& changed,
             std::optional<std::int64_t> context, std::string field = "", std::string asked = "",
             std::string found = "") {
    try {
      const core::Frequencies made = encodings::resolve_frequencies(changed, context);
      add({id,
           std::move(text),
           std::move(field),
           std::move(asked),
           std::move(found),
           {made.values().begin(), made.values().end()},
           made.amplitude()});
    } catch (const Error&) {
      // A variant that is invalid for this spec is not a candidate.
    }
  }
  template <class Change>
  void with(const char* id, std::string text, Change change, std::string field = "",
            std::string asked = "", std::string found = "") {
    RopeSpec changed = spec_;
    change(changed);
    other(id, std::move(text), changed, context_, std::move(field), std::move(asked),
          std::move(found));
  }
  template <class Of>
  void each(const char* id, std::string text, Of of) {
    Mistake mistake{id, std::move(text), "", "", "", {}, exact_.amplitude()};
    for (std::size_t i = 0; i < pairs_; ++i) {
      mistake.frequencies.push_back(of(i, exact_.values()[i]));
    }
    add(std::move(mistake));
  }
  [[nodiscard]] double plain(std::size_t i) const {
    return std::pow(spec_.base, -static_cast<double>(i) / static_cast<double>(pairs_));
  }
  [[nodiscard]] std::string scaling_name() const {
    return std::string(encodings::name_of(spec_.scaling));
  }

  void scalings() {
    if (std::holds_alternative<encodings::DynamicScaling>(spec_.scaling)) context_ignored();
    RopeSpec plain_spec = spec_;
    plain_spec.scaling = encodings::DefaultScaling{};
    other("scaling_ignored", message("the ", scaling_name(), " scaling was not applied"),
          plain_spec, std::nullopt, "scaling", scaling_name(), "default");
    if (!spec_.frequency_factors.empty()) {
      with("frequency_factors_ignored", "the frequencies are not divided by frequency_factors",
           [](RopeSpec& s) { s.frequency_factors.clear(); });
      with("frequency_factors_multiplied", "frequency_factors were multiplied instead of divided",
           [](RopeSpec& s) {
             for (double& factor : s.frequency_factors) factor = 1.0 / factor;
           });
    }
    std::visit([&](const auto& scaling) { of_scaling(scaling); }, spec_.scaling);
    if (!std::holds_alternative<encodings::DynamicScaling>(spec_.scaling)) context_ignored();
  }

  void context_ignored() {
    if (!encodings::depends_on_context(spec_)) return;
    other("context_ignored",
          "the frequencies are those of the original length: the length of the context was not "
          "used",
          spec_, std::nullopt, "context", context_ ? message(*context_) : "unknown",
          "the original length");
  }

  void of_scaling(const encodings::DefaultScaling&) {}
  void of_scaling(const encodings::NtkByPartsScaling&) {}
  void of_scaling(const encodings::LinearScaling& s) {
    inverted(s.factor);
    twice(s.factor);
    as_ntk(s.factor);
  }
  void of_scaling(const encodings::NtkScaling& s) {
    inverted(s.factor);
    with("ntk_exponent",
         "the base was multiplied by the factor itself, without the exponent dim / (dim - 2)",
         [&](RopeSpec& x) {
           x.scaling = encodings::DefaultScaling{};
           x.base *= s.factor;
         });
    as_linear(s.factor);
  }
  void of_scaling(const encodings::DynamicScaling& s) {
    with("ntk_exponent",
         "the base was multiplied by the factor itself, without the exponent dim / (dim - 2)",
         [&](RopeSpec& x) {
           x.scaling = encodings::DefaultScaling{};
           x.base *= s.factor;
         });
    const double width = static_cast<double>(spec_.rotary_dim);
    with("dynamic_fixed", "the factor was applied at once, not grown with the length",
         [&](RopeSpec& x) {
           x.scaling = encodings::DefaultScaling{};
           x.base *= std::pow(s.factor, width / (width - 2.0));
         });
    if (context_ && s.original_length > 0) {
      const double ratio = static_cast<double>(*context_) / static_cast<double>(s.original_length);
      with("dynamic_formula", "the base grew by factor * length / original, without - (factor - 1)",
           [&](RopeSpec& x) {
             x.scaling = encodings::DefaultScaling{};
             x.base *= std::pow(std::max(s.factor * ratio, 1e-3), width / (width - 2.0));
           });
    }
    as_linear(s.factor);
  }
  void of_scaling(const encodings::ProportionalScaling& s) {
    inverted(s.factor);
    each("proportional_ignored", "every pair was rotated, not a share of them",
         [&](std::size_t i, double) { return plain(i) / s.factor; });
  }
  void of_scaling(const encodings::YarnScaling& s) { yarn(s); }
  void of_scaling(const encodings::Telechat3YarnScaling& s) { yarn(s); }
  void of_scaling(const encodings::LongRopeScaling& s) {
    with(
        "longrope_list",
        uses_long(s) ? "the short list was used instead of the long one"
                     : "the long list was used instead of the short one",
        [&](RopeSpec& x) {
          auto& list = std::get<encodings::LongRopeScaling>(x.scaling);
          std::swap(list.short_factor, list.long_factor);
        },
        "longrope list", uses_long(s) ? "long_factor" : "short_factor",
        uses_long(s) ? "short_factor" : "long_factor");
    const auto& used = uses_long(s) ? s.long_factor : s.short_factor;
    const auto& unused = uses_long(s) ? s.short_factor : s.long_factor;
    const auto factor_at = [](const std::vector<double>& list, std::size_t i) {
      return list.empty() ? 1.0 : list[i % list.size()];
    };
    each("longrope_multiplied", "the frequencies were multiplied by the list instead of divided",
         [&](std::size_t i, double exact) {
           const double f = factor_at(used, i);
           return exact * f * f;
         });
    each("longrope_multiplied",
         "the frequencies were multiplied by the other list instead of divided by the right one",
         [&](std::size_t i, double exact) {
           return exact * factor_at(used, i) * factor_at(unused, i);
         });
    each("longrope_reversed", "the list of factors was read in reverse order",
         [&](std::size_t i, double exact) {
           return exact * factor_at(used, i) / factor_at(used, pairs_ - 1 - i);
         });
    as_linear(s.factor);
  }
  [[nodiscard]] bool uses_long(const encodings::LongRopeScaling& s) const {
    return context_ && *context_ > s.original_length;
  }
  void of_scaling(const encodings::Llama3Scaling& s) {
    inverted_blend(s.factor);
    const auto rotations = [&](std::size_t i) {
      return static_cast<double>(s.original_length) * plain(i) / (2.0 * std::numbers::pi);
    };
    const double low = s.low_freq_factor, high = s.high_freq_factor;
    const char* const swapped = "low_freq_factor and high_freq_factor are swapped";
    each("llama3_factors_swapped", swapped, [&](std::size_t i, double) {
      return rotations(i) < high ? plain(i) / s.factor : plain(i);
    });
    each("llama3_factors_swapped", swapped, [&](std::size_t i, double) {
      return rotations(i) > low ? plain(i) : plain(i) / s.factor;
    });
    each("llama3_factors_swapped", swapped, [&](std::size_t i, double) {
      const double kept = std::clamp((rotations(i) - high) / (low - high), 0.0, 1.0);
      return plain(i) * (kept + (1.0 - kept) / s.factor);
    });
    each("ramp_inverted", "the ramp of the blend is inverted", [&](std::size_t i, double exact) {
      if (rotations(i) < low || rotations(i) > high) return exact;
      const double kept = (rotations(i) - low) / (high - low);
      return plain(i) * ((1.0 - kept) + kept / s.factor);
    });
    each("ramp_inverted",
         "the fast pairs were scaled and the slow ones kept: the blend is inverted",
         [&](std::size_t i, double) {
           const double kept = std::clamp((rotations(i) - low) / (high - low), 0.0, 1.0);
           return plain(i) * ((1.0 - kept) + kept / s.factor);
         });
    each(
        "ramp_missing", "the pairs between the two bounds were not blended",
        [&](std::size_t i, double) { return rotations(i) < low ? plain(i) / s.factor : plain(i); });
    each("ramp_by_wavelength", "2 pi is missing in the wavelength", [&](std::size_t i, double) {
      const double r = rotations(i) * 2.0 * std::numbers::pi;
      const double kept = std::clamp((r - low) / (high - low), 0.0, 1.0);
      return plain(i) * (kept + (1.0 - kept) / s.factor);
    });
    as_linear(s.factor);
  }

  template <class Yarn>
  void yarn(const Yarn& s) {
    const double width = 2.0 * static_cast<double>(pairs_);
    const auto pair_of = [&](double rotations) {
      return width *
             std::log(static_cast<double>(s.original_length) /
                      (rotations * 2.0 * std::numbers::pi)) /
             (2.0 * std::log(spec_.base));
    };
    const auto blend = [&](double low, double high, bool inverted) {
      return [=, this, factor = s.factor](std::size_t i, double) {
        const double last = low == high ? high + 0.001 : high;
        double ramp = std::clamp((static_cast<double>(i) - low) / (last - low), 0.0, 1.0);
        if (inverted) ramp = 1.0 - ramp;
        return plain(i) * ((1.0 - ramp) + ramp / factor);
      };
    };
    const auto clipped = [&](double value) { return std::clamp(value, 0.0, width - 1.0); };
    double low = pair_of(s.beta_fast), high = pair_of(s.beta_slow);
    const double whole_low = s.truncate ? std::floor(low) : low;
    const double whole_high = s.truncate ? std::ceil(high) : high;
    const double other_low = s.truncate ? low : std::floor(low);
    const double other_high = s.truncate ? high : std::ceil(high);
    const double back_low = s.truncate ? std::floor(high) : high;
    const double back_high = s.truncate ? std::ceil(low) : low;
    each("yarn_betas_swapped", "beta_fast and beta_slow are swapped",
         blend(std::max(back_low, 0.0), std::min(back_high, width - 1.0), false));
    each("ramp_inverted",
         "the ramp of the blend is inverted: fast pairs were interpolated, slow ones kept",
         blend(std::max(whole_low, 0.0), std::min(whole_high, width - 1.0), true));
    each("yarn_truncate",
         s.truncate ? "the ends of the ramp were not rounded to whole pairs (truncate: true in the "
                      "config, false in the data)"
                    : "the ends of the ramp were rounded to whole pairs (truncate: false in the "
                      "config, true in the data)",
         blend(clipped(other_low), clipped(other_high), false));
    each("ramp_missing", "every pair was scaled by the factor: the ramp is missing",
         [&](std::size_t i, double) { return plain(i) / s.factor; });
    with(
        "yarn_ramp_ends",
        message("original_max_position_embeddings: ", s.original_length, " in the config, ",
                digits(static_cast<double>(s.original_length) * s.factor),
                " in the data (the extended length)"),
        [&](RopeSpec& x) {
          auto& changed = std::get<Yarn>(x.scaling);
          changed.original_length =
              static_cast<std::int64_t>(static_cast<double>(changed.original_length) * s.factor);
        },
        "original_max_position_embeddings", message(s.original_length),
        digits(static_cast<double>(s.original_length) * s.factor));
    inverted_blend(s.factor);
    as_ntk(s.factor);
  }

  // factor -> 1 / factor
  void inverted(double factor) {
    if (factor == 1.0) return;
    each("factor_inverted",
         "the factor is inverted: frequencies were multiplied by it, not divided",
         [&](std::size_t i, double exact) {
           if (std::holds_alternative<encodings::LinearScaling>(spec_.scaling) ||
               std::holds_alternative<encodings::ProportionalScaling>(spec_.scaling)) {
             return exact * factor * factor;
           }
           return exact == 0.0 ? 0.0 : plain(i) * plain(i) / exact;
         });
    with("factor_inverted", "the factor is inverted: 1 / factor was used", [&](RopeSpec& x) {
      std::visit(
          [&](auto& scaling) {
            if constexpr (requires { scaling.factor; }) scaling.factor = 1.0 / factor;
          },
          x.scaling);
    });
  }
  void inverted_blend(double factor) {
    if (factor == 1.0) return;
    inverted(factor);
    // exact = plain ((1 - ramp) + ramp / factor)
    each("factor_inverted",
         "the factor is inverted: the slow pairs were multiplied by it, not divided",
         [&](std::size_t i, double exact) {
           const double ramp = (1.0 - exact / plain(i)) / (1.0 - 1.0 / factor);
           return plain(i) * ((1.0 - ramp) + ramp * factor);
         });
    each("scaling_twice", "the scaling was applied twice",
         [&](std::size_t i, double exact) { return exact * exact / plain(i); });
  }
  void twice(double factor) {
    each("scaling_twice", "the scaling was applied twice",
         [&](std::size_t, double exact) { return exact / factor; });
  }
  void as_linear(double factor) {
    with(
        "scaling_type", message("linear scaling was applied instead of ", scaling_name()),
        [&](RopeSpec& x) { x.scaling = encodings::LinearScaling{factor}; }, "scaling",
        scaling_name(), "linear");
    as_ntk(factor);
  }
  void as_ntk(double factor) {
    with(
        "scaling_type", message("NTK scaling was applied instead of ", scaling_name()),
        [&](RopeSpec& x) {
          x.scaling = encodings::NtkScaling{factor, {}};
        },
        "scaling", scaling_name(), "ntk");
    const auto width = static_cast<double>(spec_.rotary_dim);
    with(
        "scaling_type",
        message("NTK scaling (a larger base) was applied instead of ", scaling_name()),
        [&](RopeSpec& x) {
          x.scaling = encodings::DefaultScaling{};
          x.base *= std::pow(factor, width / (width - 2.0));
        },
        "scaling", scaling_name(), "ntk");
    if (!std::holds_alternative<encodings::LinearScaling>(spec_.scaling)) {
      with(
          "scaling_type", message("linear scaling was applied instead of ", scaling_name()),
          [&](RopeSpec& x) { x.scaling = encodings::LinearScaling{factor}; }, "scaling",
          scaling_name(), "linear");
    }
  }

  // base^(-e) with another exponent e is a power law of another base.
  void powers() {
    if (!spec_.frequencies.empty()) return;
    const auto dim = static_cast<double>(spec_.rotary_dim);
    const auto head = static_cast<double>(spec_.head_dim);
    const auto power = [&](const char* id, std::string text, double exponent) {
      with(id, std::move(text), [&](RopeSpec& x) { x.base = std::pow(x.base, exponent); });
    };
    if (spec_.head_dim != spec_.rotary_dim) {
      power("frequencies_by_head_dim",
            message("the exponents divide by head_dim ", spec_.head_dim, " instead of rotary_dim ",
                    spec_.rotary_dim),
            dim / head);
    }
    power("exponent_halved",
          "the exponent is i/dim instead of 2i/dim, or the base is the square root of the config's "
          "(the same numbers)",
          0.5);
    power("exponent_doubled",
          "the exponent is 2i/(dim/2) instead of 2i/dim, or the base is the square of the config's "
          "(the same numbers)",
          2.0);
    for (const double by : {-1.0, -2.0, 1.0, 2.0}) {
      power("exponent_dim",
            message("the exponents divide by dim ", by < 0.0 ? "- " : "+ ", std::abs(by), " = ",
                    dim + by, " instead of dim = ", dim),
            dim / (dim + by));
    }
    if (std::holds_alternative<encodings::ProportionalScaling>(spec_.scaling)) {
      const double share = std::get<encodings::ProportionalScaling>(spec_.scaling).proportion;
      power("frequencies_by_rotary_dim",
            "the exponents divide by the rotated width instead of head_dim", 1.0 / share);
    }
    power("exponent_sign", "the exponent has the wrong sign: frequencies grow with the pair", -1.0);
    power("exponent_quartered",
          message("the exponents divide by ", 4.0 * dim, " instead of dim = ", dim), 0.25);
    power("exponent_fourfold",
          message("the exponents divide by ", dim / 4.0, " instead of dim = ", dim), 4.0);
    const double step = std::pow(spec_.base, -2.0 / dim);
    each("exponent_one_based", "the index of the pairs starts at 1: exponents 2(i+1)/dim",
         [&](std::size_t, double exact) { return exact * step; });
    each("exponent_one_based", "the exponents are (2i+1)/dim instead of 2i/dim",
         [&](std::size_t, double exact) { return exact * std::sqrt(step); });
    each("exponent_one_based", "the exponents are 2(i-1)/dim instead of 2i/dim",
         [&](std::size_t, double exact) { return exact / step; });
    each("exponent_integer_division",
         "every pair has the frequency of the first: the exponent is 0, as of an integer division",
         [&](std::size_t, double) { return exact_.values()[0]; });
    each("exponent_integer_division",
         "every pair has frequency 1: the exponent is 0, as of an integer division",
         [&](std::size_t, double) { return 1.0; });
    each("frequency_integer_division",
         "all frequencies but the first are 0, as of an integer division",
         [&](std::size_t i, double exact) { return i == 0 ? exact : 0.0; });
    each("frequencies_reversed", "the frequencies are in reverse order",
         [&](std::size_t i, double) { return exact_.values()[pairs_ - 1 - i]; });
    each("frequencies_reciprocal", "the reciprocals of the frequencies were used",
         [&](std::size_t, double exact) { return exact == 0.0 ? 0.0 : 1.0 / exact; });
    each("exponent_by_feature",
         "the exponent reads the index of the feature: every second pair repeats",
         [&](std::size_t i, double) { return exact_.values()[i / 2 * 2]; });
    each("exponent_factor", "the exponent is missing: base / (2i/dim) or similar",
         [&](std::size_t i, double) {
           return i == 0 ? 1.0 : 1.0 / (spec_.base * 2.0 * static_cast<double>(i) / dim);
         });
  }

  void multiples() {
    constexpr double kPi = std::numbers::pi;
    const auto times = [&](const char* id, std::string text, double factor) {
      each(id, std::move(text), [&](std::size_t, double exact) { return exact * factor; });
    };
    times("times_pi", "the angles are multiplied by pi", kPi);
    times("times_two_pi", "the angles are multiplied by 2 pi", 2.0 * kPi);
    times("divided_by_two_pi", "the angles are divided by 2 pi", 0.5 / kPi);
    times("divided_by_pi", "the angles are divided by pi", 1.0 / kPi);
    times("degrees", "the angles are in degrees: multiplied by 180 / pi", 180.0 / kPi);
    times("degrees", "the angles were converted from degrees: multiplied by pi / 180", kPi / 180.0);
    times("half_angle", "the angles are half of the config's", 0.5);
    times("times_half_pi", "the angles are multiplied by pi / 2", 0.5 * kPi);
    times("times_ten_thousandth", "the positions are divided by 10000", 1e-4);
    times("positions_in_thousands", "the positions are divided by 1000", 1e-3);
  }

  void lists() {
    if (exact_.amplitude() == 1.0) return;
    const auto same = [&](const char* id, std::string text, double amplitude) {
      Mistake mistake{id,
                      std::move(text),
                      "amplitude",
                      digits(exact_.amplitude()),
                      digits(amplitude),
                      {exact_.values().begin(), exact_.values().end()},
                      amplitude};
      add(std::move(mistake));
    };
    const double a = exact_.amplitude();
    same("amplitude_dropped",
         message("the amplitude ", digits(a), " (attention factor) is missing"), 1.0);
    same("amplitude_twice",
         message("the amplitude ", digits(a), " (attention factor) was applied twice"), a * a);
    same("amplitude_inverted",
         message("the amplitude ", digits(a), " (attention factor) was divided by, not multiplied"),
         1.0 / a);
    same("amplitude_root", message("the square root of the amplitude ", digits(a), " was applied"),
         std::sqrt(a));
  }

  const RopeSpec& spec_;
  std::optional<std::int64_t> context_;
  const core::Frequencies& exact_;
  std::size_t pairs_;
  std::vector<Mistake> all_;
};

}  // namespace

std::vector<Mistake> frequency_mistakes(const RopeSpec& spec, std::optional<std::int64_t> context,
                                        const core::Frequencies& exact) {
  return MistakeList(spec, context, exact).run();
}

}  // namespace phasor::porting
