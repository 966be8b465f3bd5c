// Scalings that reduce some frequencies more than others: YaRN, llama3, NTK-by-parts, mixed NTK.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "phasor/core/error.hpp"
#include "porting/diagnose/parts.hpp"

namespace phasor::porting::diagnosis {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// Candidate slopes ln(f_i / f_(i+1)), from the first pairs, which no scaling changes.
std::vector<double> slopes(const FamilyInput& input) {
  std::vector<double> result;
  const std::size_t pairs = input.value.size();
  for (const std::size_t last : {std::size_t{1}, pairs / 8, pairs / 4, pairs / 2, pairs - 1}) {
    if (last < 1 || last >= pairs) continue;
    if (input.value[0] > 0.0 && input.value[last] > 5.0 * input.error[last]) {
      result.push_back(std::log(input.value[0] / input.value[last]) / static_cast<double>(last));
    }
  }
  return result;
}

// The frequency of this slope divided by the measured one, at the last pair that is known.
double starting_factor(const FamilyInput& input, double slope) {
  for (std::size_t i = input.value.size(); i-- > 1;) {
    if (input.value[i] > 5.0 * input.error[i]) {
      return std::clamp(std::exp(-slope * static_cast<double>(i)) / input.value[i], 1.1, 512.0);
    }
  }
  return 2.0;
}

// Replaces a parameter by a round number if the formula still fits.
template <class Make>
void snap(const FamilyInput& input, Fitted& fitted, std::size_t which, bool is_base, Make make) {
  const double scale = is_base ? input.pairs() : 1.0;
  const double value = std::exp(fitted.parameters[which] * scale);
  const double width = std::max(
      4.0 * value * fitted.errors[which] * scale * std::max(1.0, fitted.misfit), 1e-9 * value);
  const auto round = is_base ? round_base(value, width) : round_number(value, width);
  if (!round) return;
  std::vector<double> parameters = fitted.parameters;
  parameters[which] = std::log(*round) / scale;
  const double misfit = misfit_of(make(parameters), input.value, input.error);
  if (misfit > std::max(kFamilyMisfit, 1.5 * fitted.misfit)) return;
  fitted.parameters = parameters;
}

// The base of a fit whose first parameter is the slope ln(f_i / f_(i+1)).
void set_base(const FamilyInput& input, const Fitted& fitted, Family& family) {
  const double base = std::exp(fitted.parameters[0] * input.pairs());
  family.base = round_base(base, 1e-9 * base).value_or(base);
  family.base_error = *family.base * fitted.errors[0] * input.pairs();
}

// A factor of at most 1 is not this scaling.
constexpr double kLeastFactor = 1.001;

// ---- YaRN

std::vector<double> yarn_law(std::size_t pairs, double slope, double log_factor, double low,
                             double high) {
  std::vector<double> frequencies;
  const double kept = 1.0 - std::exp(-log_factor);
  const double span = high == low ? 0.001 : high - low;
  for (std::size_t i = 0; i < pairs; ++i) {
    const auto at = static_cast<double>(i);
    const double ramp = std::clamp((at - low) / span, 0.0, 1.0);
    frequencies.push_back(std::exp(-slope * at) * (1.0 - ramp * kept));
  }
  return frequencies;
}

struct RampFit {
  Fitted fitted;
  double low = 0.0, high = 0.0;
};

RampFit fit_ramp(const FamilyInput& input, std::int64_t low, std::int64_t high, double slope) {
  const LawModel law{[&](const std::vector<double>& at) {
    return yarn_law(input.value.size(), at[0], at[1], static_cast<double>(low),
                    static_cast<double>(high));
  }};
  RampFit ramp{
      fit_law(law, {slope, std::log(starting_factor(input, slope))}, input.value, input.error),
      static_cast<double>(low), static_cast<double>(high)};
  if (std::exp(ramp.fitted.parameters[1]) <= kLeastFactor) ramp.fitted.misfit = HUGE_VAL;
  return ramp;
}

// Tries every two integer ends of the ramp; with many pairs, a coarse grid first.
RampFit best_whole_ramp(const FamilyInput& input) {
  const std::size_t pairs = input.value.size();
  const std::int64_t last = input.width - 1;
  RampFit best;
  best.fitted.misfit = HUGE_VAL;
  const auto attempt = [&](std::int64_t low, std::int64_t high, double slope) {
    RampFit ramp = fit_ramp(input, low, high, slope);
    if (ramp.fitted.misfit < best.fitted.misfit) best = std::move(ramp);
  };
  const std::int64_t stride = std::max<std::int64_t>(1, static_cast<std::int64_t>(pairs) / 16);
  for (const double slope : slopes(input)) {
    for (std::int64_t low = 0; low < static_cast<std::int64_t>(pairs); low += stride) {
      for (std::int64_t high = low + 1; high <= last; high += stride) attempt(low, high, slope);
    }
  }
  // Descent in integer steps.
  for (std::int64_t step = stride; step >= 1 && std::isfinite(best.fitted.misfit);) {
    const RampFit from = best;
    for (const std::int64_t down : {-step, std::int64_t{0}, step}) {
      for (const std::int64_t up : {-step, std::int64_t{0}, step}) {
        const auto low = static_cast<std::int64_t>(from.low) + down;
        const auto high = static_cast<std::int64_t>(from.high) + up;
        const bool same = down == 0 && up == 0;
        if (!same && low >= 0 && high > low && high <= last) {
          attempt(low, high, from.fitted.parameters[0]);
        }
      }
    }
    if (best.fitted.misfit >= from.fitted.misfit) step /= 2;
  }
  return best;
}

// The original lengths that give these integer ends with beta_fast 32 and beta_slow 1.
struct LengthRange {
  double least = 1.0, most = 1e12;
};
LengthRange length_range(const RampFit& ramp, double slope, std::int64_t width) {
  // corr(r) = ln(length / (2 pi r)) / slope
  const auto length_at = [&](double pair, double rotations) {
    return kTwoPi * rotations * std::exp(slope * pair);
  };
  LengthRange range;
  if (ramp.low > 0.0) range.least = length_at(ramp.low, 32.0);
  range.most = length_at(ramp.low + 1.0, 32.0);
  if (ramp.high < static_cast<double>(width - 1)) {
    range.most = std::min(range.most, length_at(ramp.high, 1.0));
  }
  range.least = std::max(range.least, length_at(ramp.high - 1.0, 1.0));
  return range;
}

std::optional<double> usual_length(const LengthRange& range) {
  if (!(range.least < range.most)) return std::nullopt;
  const double power = std::exp2(std::ceil(std::log2(range.least)));
  if (power < range.most) return power;
  for (int digits = 1; digits <= 6; ++digits) {
    const double step = std::pow(10.0, std::floor(std::log10(range.most)) - digits + 1);
    const double candidate = std::floor(range.most / step) * step;
    if (candidate >= range.least && candidate > 0.0) return candidate;
  }
  return std::nullopt;
}

// If the slowest pair is still on the ramp, the end of the ramp and the factor are not determined
// separately: of those that fit, one whose ends belong to one length with the usual beta values.
RampFit usual_ramp(const FamilyInput& input, const RampFit& best) {
  const auto pairs = static_cast<std::int64_t>(input.value.size());
  if (best.high < static_cast<double>(pairs)) return best;
  const double slope = best.fitted.parameters[0];
  const double allowed = std::max(kFamilyMisfit, 1.2 * best.fitted.misfit);
  const auto low = static_cast<std::int64_t>(best.low);
  std::optional<RampFit> found;
  bool found_round = false;
  for (std::int64_t start = std::max<std::int64_t>(0, low - 1); start <= low + 1; ++start) {
    for (std::int64_t end = pairs - 1; end < input.width; ++end) {
      if (end <= start) continue;
      const RampFit ramp = fit_ramp(input, start, end, slope);
      const LengthRange range = length_range(ramp, ramp.fitted.parameters[0], input.width);
      if (ramp.fitted.misfit > allowed || !(range.least < range.most)) continue;
      const double factor = std::exp(ramp.fitted.parameters[1]);
      const double width = std::max(
          4.0 * factor * ramp.fitted.errors[1] * std::max(1.0, ramp.fitted.misfit), 1e-9 * factor);
      const bool is_round = round_number(factor, width).has_value();
      if (!found || (is_round && !found_round)) {
        found = ramp;
        found_round = is_round;
      }
    }
  }
  return found.value_or(best);
}

void describe_yarn_amplitude(const FamilyInput& input, double factor, Family& family) {
  const double usual = 0.1 * std::log(factor) + 1.0;
  if (std::abs(input.amplitude / usual - 1.0) < 1e-3) {
    family.notes.push_back(message("the amplitude is 0.1 ln(", factor, ") + 1, as in YaRN"));
  } else if (std::abs(input.amplitude / (usual * usual) - 1.0) < 1e-3) {
    family.notes.push_back(message("the amplitude is the square of YaRN's 0.1 ln(", factor,
                                   ") + 1 = ", usual, ": it was applied twice"));
  } else if (std::abs(input.amplitude * usual - 1.0) < 1e-3) {
    family.notes.push_back(
        message("the amplitude is the inverse of YaRN's 0.1 ln(", factor, ") + 1 = ", usual));
  } else if (std::abs(input.amplitude - 1.0) < 1e-3) {
    family.notes.push_back(message("the amplitude is 1; YaRN's is 0.1 ln(", factor, ") + 1 = ",
                                   usual, ": it is missing, or the config sets it to 1"));
  }
}

// Ends that are not integers: truncate false.
RampFit best_free_ramp(const FamilyInput& input, const RampFit& whole) {
  const std::size_t pairs = input.value.size();
  const LawModel law{[&](const std::vector<double>& at) {
    return yarn_law(pairs, at[0], at[1], at[2], std::max(at[3], at[2] + 1e-3));
  }};
  // The ends are within one pair of the integer ones; the formula has a kink at every pair.
  Fitted best;
  best.misfit = HUGE_VAL;
  for (const double down : {-0.75, -0.25, 0.25, 0.75}) {
    for (const double up : {-0.75, -0.25, 0.25, 0.75}) {
      const double low = whole.low + down;
      const Fitted free = fit_law(law,
                                  {whole.fitted.parameters[0], whole.fitted.parameters[1], low,
                                   std::max(whole.high + up, low + 0.1)},
                                  input.value, input.error);
      if (free.misfit < best.misfit && std::exp(free.parameters[1]) > kLeastFactor) best = free;
    }
  }
  if (!std::isfinite(best.misfit)) return whole;
  return {best, best.parameters[2], best.parameters[3]};
}

}  // namespace

Family fit_yarn(const FamilyInput& input) {
  Family family;
  family.type = "yarn";
  const std::size_t pairs = input.value.size();
  RampFit ramp = best_whole_ramp(input);
  if (!std::isfinite(ramp.fitted.misfit)) return family;
  const bool whole = ramp.fitted.misfit <= kFamilyMisfit;
  if (whole) ramp = usual_ramp(input, ramp);
  if (!whole) {
    const RampFit free = best_free_ramp(input, ramp);
    if (free.fitted.misfit <= kFamilyMisfit && free.low >= -0.5) ramp = free;
  }
  const auto make = [&](const std::vector<double>& at) {
    return yarn_law(pairs, at[0], at[1], ramp.low, ramp.high);
  };
  snap(input, ramp.fitted, 0, true, make);
  snap(input, ramp.fitted, 1, false, make);
  const double slope = ramp.fitted.parameters[0];
  const double factor = std::exp(ramp.fitted.parameters[1]);
  set_base(input, ramp.fitted, family);
  family.frequencies = make(ramp.fitted.parameters);
  const double kept_factor = round_number(factor, 1e-9 * factor).value_or(factor);
  family.scaling.numbers = {{"factor", kept_factor}};
  const auto length_at = [&](double pair) { return kTwoPi * std::exp(slope * pair); };
  if (whole) {
    const LengthRange range = length_range(ramp, slope, input.width);
    if (const auto length = usual_length(range)) {
      family.scaling.numbers.emplace_back("original_max_position_embeddings", *length);
      family.notes.push_back(message("every original length from ", std::ceil(range.least), " to ",
                                     std::floor(range.most),
                                     " gives the same ramp with beta_fast 32 and beta_slow 1"));
    } else {
      family.notes.push_back(
          message("the ramp is from pair ", ramp.low, " to pair ", ramp.high,
                  ", which no original length gives with beta_fast 32 and beta_slow 1"));
      family.scaling.numbers.emplace_back("original_max_position_embeddings",
                                          std::round(length_at(ramp.high)));
      family.scaling.numbers.emplace_back("beta_fast", length_at(ramp.high - ramp.low) / kTwoPi);
    }
  } else {
    const double length = length_at(ramp.high);
    const double error = 0.02 * length;
    family.scaling.numbers.emplace_back(
        "original_max_position_embeddings",
        round_base(length, std::min(error, 1e-3 * length)).value_or(std::round(length)));
    family.scaling.numbers.emplace_back("beta_fast", std::exp(slope * (ramp.high - ramp.low)));
    family.scaling.numbers.emplace_back("truncate", 0.0);
  }
  if (ramp.high > static_cast<double>(pairs - 1)) {
    family.notes.push_back(
        message("no pair is after the end of the ramp at pair ", ramp.high,
                ": the factor follows from the slope of the ramp and is less certain"));
  }
  describe_yarn_amplitude(input, kept_factor, family);
  return finish(std::move(family), input);
}

// ---- llama3

namespace {

// By wavelength w = 2 pi / f: shorter than `near` keeps f, longer than `far` gets f / factor,
// between them 1/w is blended.
std::vector<double> llama3_law(std::size_t pairs, double slope, double log_factor, double log_far,
                               double log_ratio) {
  std::vector<double> frequencies;
  const double slow = std::exp(-log_factor), far = std::exp(log_far);
  const double ratio = std::exp(log_ratio);  // far / near = high_freq_factor / low_freq_factor
  for (std::size_t i = 0; i < pairs; ++i) {
    const double plain = std::exp(-slope * static_cast<double>(i));
    const double rotations = far * plain / kTwoPi;  // within `far` positions: 1 at its end
    const double part =
        std::clamp(ratio > 1.0 ? (rotations - 1.0) / (ratio - 1.0) : rotations - 1.0, 0.0, 1.0);
    frequencies.push_back(plain * (slow + part * (1.0 - slow)));
  }
  return frequencies;
}

}  // namespace

Family fit_llama3(const FamilyInput& input) {
  Family family;
  family.type = "llama3";
  const std::size_t pairs = input.value.size();
  const LawModel usual{[&](const std::vector<double>& at) {
    return llama3_law(pairs, at[0], at[1], at[2], std::log(4.0));
  }};
  const LawModel free{[&](const std::vector<double>& at) {
    return llama3_law(pairs, at[0], at[1], at[2], std::max(at[3], 1e-3));
  }};
  Fitted best;
  best.misfit = HUGE_VAL;
  bool is_usual = true;
  const auto keep = [&](Fitted fitted, bool with_usual) {
    if (std::exp(fitted.parameters[1]) <= kLeastFactor) return;
    // A free ratio is preferred only if it halves the misfit.
    const double handicap = with_usual || !is_usual ? 1.0 : 0.5;
    if (fitted.misfit >= handicap * best.misfit || (best.misfit <= kFamilyMisfit && is_usual))
      return;
    best = std::move(fitted);
    is_usual = with_usual;
    if (with_usual) best.parameters.push_back(std::log(4.0));
  };
  constexpr int kStarts = 12;
  for (const double slope : slopes(input)) {
    const double factor = std::log(starting_factor(input, slope));
    for (int k = 0; k < kStarts; ++k) {
      const double pair = (static_cast<double>(k) + 0.5) / kStarts * static_cast<double>(pairs);
      const double far = std::log(kTwoPi) + slope * pair;
      keep(fit_law(usual, {slope, factor, far}, input.value, input.error), true);
    }
    for (int k = 0; k < kStarts && best.misfit > kFamilyMisfit; ++k) {
      const double pair = (static_cast<double>(k) + 0.5) / kStarts * static_cast<double>(pairs);
      const double far = std::log(kTwoPi) + slope * pair;
      for (const double ratio : {0.7, 1.4, 2.8}) {
        keep(fit_law(free, {slope, factor, far, ratio}, input.value, input.error), false);
      }
    }
  }
  if (!std::isfinite(best.misfit)) return family;
  if (best.errors.size() < 4) best.errors.resize(4, 0.0);
  const auto make = [&](const std::vector<double>& at) {
    return llama3_law(pairs, at[0], at[1], at[2], at[3]);
  };
  snap(input, best, 0, true, make);
  snap(input, best, 1, false, make);
  snap(input, best, 2, false, make);
  if (!is_usual) snap(input, best, 3, false, make);
  const auto kept = [](double value) { return round_number(value, 1e-9 * value).value_or(value); };
  set_base(input, best, family);
  family.frequencies = make(best.parameters);
  const double far = std::exp(best.parameters[2]), ratio = std::exp(best.parameters[3]);
  // Only the two wavelengths are measurable; every published config has low_freq_factor 1.
  family.scaling.numbers = {{"factor", kept(std::exp(best.parameters[1]))},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", kept(ratio)},
                            {"original_max_position_embeddings", std::round(kept(far))}};
  const double slowest = kTwoPi * std::exp(best.parameters[0] * static_cast<double>(pairs - 1));
  if (slowest < far) {
    family.notes.push_back(message(
        "the slowest pair has wavelength ", std::round(slowest),
        ", before the end of the ramp: factor and high_freq_factor are not determined separately"));
  }
  return finish(std::move(family), input);
}

// ---- NTK-by-parts

namespace {

std::vector<double> by_parts_law(std::size_t pairs, double slope, double log_factor,
                                 double log_length) {
  const double width = 2.0 * static_cast<double>(pairs);
  // base' = base factor^(d/(d-2))
  const double ntk_slope = slope + 2.0 / width * log_factor * width / (width - 2.0);
  const auto ramp = [&](double fast, double slow, double pair) {
    double low = std::floor((log_length - std::log(kTwoPi * fast)) / slope);
    double high = std::ceil((log_length - std::log(kTwoPi * slow)) / slope);
    low = std::max(low, 0.0);
    high = std::min(high, width - 1.0);
    if (high == low) high += 0.001;
    return std::clamp((pair - low) / (high - low), 0.0, 1.0);
  };
  std::vector<double> frequencies;
  for (std::size_t i = 0; i < pairs; ++i) {
    const auto at = static_cast<double>(i);
    const double plain = std::exp(-slope * at);
    const double linear = plain * std::exp(-log_factor), ntk = std::exp(-ntk_slope * at);
    const double to_linear = ramp(1.25, 0.75, at);
    const double blend = linear * to_linear + ntk * (1.0 - to_linear);
    const double to_blend = ramp(16.0, 2.0, at);
    frequencies.push_back(blend * to_blend + plain * (1.0 - to_blend));
  }
  return frequencies;
}

}  // namespace

Family fit_ntk_by_parts(const FamilyInput& input) {
  Family family;
  family.type = "ntk_by_parts";
  const std::size_t pairs = input.value.size();
  Fitted best;
  best.misfit = HUGE_VAL;
  double best_length = 0.0;
  // The ends are integers, so the formula jumps with the length: powers of two are tried.
  for (const double slope : slopes(input)) {
    for (double length = 256.0; length <= 131072.0; length *= 2.0) {
      const LawModel law{[&](const std::vector<double>& at) {
        return by_parts_law(pairs, std::max(at[0], 1e-3), at[1], std::log(length));
      }};
      const Fitted fitted =
          fit_law(law, {slope, std::log(starting_factor(input, slope))}, input.value, input.error);
      if (fitted.misfit >= best.misfit || fitted.parameters[1] <= 0.0) continue;
      best = fitted;
      best_length = length;
    }
  }
  if (!std::isfinite(best.misfit)) return family;
  const auto make = [&](const std::vector<double>& at) {
    return by_parts_law(pairs, at[0], at[1], std::log(best_length));
  };
  snap(input, best, 0, true, make);
  snap(input, best, 1, false, make);
  set_base(input, best, family);
  family.frequencies = make(best.parameters);
  const double factor = std::exp(best.parameters[1]);
  family.scaling.numbers = {{"factor", round_number(factor, 1e-9 * factor).value_or(factor)},
                            {"original_max_position_embeddings", best_length}};
  return finish(std::move(family), input);
}

// ---- mixed NTK: f_i / exp(a (i+1)^b), a = ln factor / (d/2)^b

Family fit_mixed_ntk(const FamilyInput& input) {
  Family family;
  family.type = "ntk";
  const std::size_t pairs = input.value.size();
  const auto make = [&](const std::vector<double>& at) {
    std::vector<double> frequencies;
    for (std::size_t i = 0; i < pairs; ++i) {
      const double order = std::pow(static_cast<double>(i + 1) / input.pairs(), at[2]);
      frequencies.push_back(std::exp(-at[0] * static_cast<double>(i) - at[1] * order));
    }
    return frequencies;
  };
  Fitted best;
  best.misfit = HUGE_VAL;
  for (const double slope : slopes(input)) {
    for (const double power : {0.3, 0.625, 1.5, 2.5}) {
      const Fitted fitted = fit_law({make}, {slope, std::log(starting_factor(input, slope)), power},
                                    input.value, input.error);
      if (fitted.misfit < best.misfit && fitted.parameters[1] > 0.0) best = fitted;
    }
  }
  if (!std::isfinite(best.misfit)) return family;
  const double base = std::exp(best.parameters[0] * input.pairs());
  const double factor = std::exp(best.parameters[1]);
  const auto near = [&](double value, double error) {
    return std::max(4.0 * error * std::max(1.0, best.misfit), 1e-9 * value);
  };
  const auto round_b = round_base(base, near(base, base * best.errors[0] * input.pairs()));
  const auto round_f = round_number(factor, near(factor, factor * best.errors[1]));
  const auto round_p = round_number(best.parameters[2], near(1.0, best.errors[2]));
  // Three free parameters fit many smooth lists; only round ones count as this scaling.
  if (!round_b || !round_f || !round_p) return family;
  family.base = *round_b;
  family.scaling.numbers = {{"factor", *round_f}, {"mixed_b", *round_p}};
  family.frequencies = make({std::log(*round_b) / input.pairs(), std::log(*round_f), *round_p});
  return finish(std::move(family), input);
}

}  // namespace phasor::porting::diagnosis
