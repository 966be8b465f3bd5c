// Formulas of frequencies, simplest first: one parameter, two, then the ramps of long contexts.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "phasor/core/error.hpp"
#include "porting/diagnose/parts.hpp"

namespace phasor::porting::diagnosis {
namespace {

constexpr std::array kKnownBases = {10000.0,  500000.0,  1000000.0, 150000.0,   160000.0,
                                    100000.0, 5000000.0, 8000000.0, 10000000.0, 2000000.0,
                                    1000.0,   100.0,     50000.0,   500.0,      256.0};

// f_i = e^{-shift - slope i}: every pure power law.
std::vector<double> power_law(std::size_t pairs, double shift, double slope) {
  std::vector<double> frequencies;
  for (std::size_t i = 0; i < pairs; ++i) {
    frequencies.push_back(std::exp(-shift - slope * static_cast<double>(i)));
  }
  return frequencies;
}

double starting_slope(const std::vector<double>& value, const std::vector<double>& error) {
  // The last pair whose frequency is known to 10 %.
  for (std::size_t i = value.size(); i-- > 1;) {
    if (value[0] > 0.0 && value[i] > 10.0 * error[i]) {
      return std::log(value[0] / value[i]) / static_cast<double>(i);
    }
  }
  return 0.2;
}

Family fit_default(const FamilyInput& input) {
  Family family;
  family.type = "default";
  if (input.value.size() == 1) {
    // RoFormer (15): the first frequency is 1 for every base.
    family.frequencies = {1.0};
    return finish(family, input);
  }
  const std::size_t pairs = input.value.size();
  const LawModel law{[&](const std::vector<double>& at) { return power_law(pairs, 0.0, at[0]); }};
  const Fitted fitted =
      fit_law(law, {starting_slope(input.value, input.error)}, input.value, input.error);
  const double log_base = fitted.parameters[0] * input.pairs();
  const double base = std::exp(log_base);
  const double error = base * fitted.errors[0] * input.pairs() * std::max(1.0, fitted.misfit);
  family.base = base;
  family.base_error = error;
  family.frequencies = power_law(pairs, 0.0, fitted.parameters[0]);
  if (const auto round = round_base(base, 4.0 * error)) {
    const std::vector<double> rounded = power_law(pairs, 0.0, std::log(*round) / input.pairs());
    const double misfit = misfit_of(rounded, input.value, input.error);
    if (misfit <= std::max(kFamilyMisfit, 1.5 * fitted.misfit)) {
      family.base = *round;
      family.frequencies = rounded;
    }
  }
  family.effective_base = family.base;
  return finish(family, input);
}

// An unusual base that is a usual one times growth^(d/(d-2)).
void read_as_dynamic(const FamilyInput& input, Family& family) {
  if (!family.base || input.width <= 2 || !family.base_error) return;
  if (round_number(*family.base, 1e-12 * *family.base)) return;
  const auto width = static_cast<double>(input.width);
  for (const double base : {10000.0, 500000.0, 1000000.0}) {
    const double growth = std::pow(*family.base / base, (width - 2.0) / width);
    const double error = growth * (*family.base_error / *family.base);
    // Multiples of 1/4, and a base known well enough that a match is not a coincidence.
    const double round = std::round(4.0 * growth) / 4.0;
    const double near = std::max(4.0 * error, 1e-7 * growth);
    if (round < 1.25 || growth > 200.0 || near > 2e-3 || std::abs(growth - round) > near) continue;
    Reading reading;
    reading.base = base;
    reading.scaling.type = "dynamic";
    reading.scaling.numbers = {{"alpha", round}};
    reading.text = message(
        "dynamic NTK with base ", base, ": the base is multiplied by ", round,
        "^(d/(d-2)), as with a factor s at s (length / trained length) - (s - 1) = ", round);
    family.readings.push_back(std::move(reading));
  }
}

Family fit_linear(const FamilyInput& input) {
  Family family;
  family.type = "linear";
  const std::size_t pairs = input.value.size();
  if (pairs == 1) {
    if (input.value[0] <= 0.0) return family;
    const double factor = 1.0 / input.value[0];
    const double near = std::max(4.0 * input.error[0] * factor * factor, 1e-9 * factor);
    const double round = round_number(factor, near).value_or(factor);
    family.scaling.numbers = {{"factor", round}};
    family.frequencies = {1.0 / round};
    return finish(family, input);
  }
  const LawModel law{[&](const std::vector<double>& at) { return power_law(pairs, at[1], at[0]); }};
  const double first = input.value[0] > 0.0 ? -std::log(input.value[0]) : 0.0;
  const Fitted fitted =
      fit_law(law, {starting_slope(input.value, input.error), first}, input.value, input.error);
  const double widen = std::max(1.0, fitted.misfit);
  const double slope = fitted.parameters[0], shift = fitted.parameters[1];
  const double base = std::exp(slope * input.pairs()), factor = std::exp(shift);
  const double base_error = base * fitted.errors[0] * input.pairs() * widen;
  const double factor_error = factor * fitted.errors[1] * widen;
  const auto round_b = round_base(base, std::max(4.0 * base_error, 1e-9 * base));
  const auto round_f = round_number(factor, std::max(4.0 * factor_error, 1e-10 * factor));

  // Fixed NTK: f_i of base s, divided by s^(2/d): the shift is ln(s) 2/d.
  const double ntk = std::exp(shift * input.pairs());
  const double ntk_error = ntk * fitted.errors[1] * input.pairs() * widen;
  const auto round_n = round_number(ntk, std::max(4.0 * ntk_error, 1e-9 * ntk));
  const double plain_base = round_n ? base / *round_n : base;
  const double ntk_base =
      round_base(plain_base, std::max(4.0 * base_error, 1e-9 * base) * plain_base / base)
          .value_or(plain_base);
  const double kept_base = round_b.value_or(base), kept_factor = round_f.value_or(factor);
  family.effective_base = kept_base;
  family.base_error = base_error;
  const std::vector<double> rounded =
      power_law(pairs, std::log(kept_factor), std::log(kept_base) / input.pairs());
  const bool good =
      misfit_of(rounded, input.value, input.error) <= std::max(kFamilyMisfit, 1.5 * fitted.misfit);
  family.base = good ? kept_base : base;
  family.scaling.numbers = {{"factor", good ? kept_factor : factor}};
  family.frequencies = good ? rounded : power_law(pairs, shift, slope);
  if (round_n && !round_f && *round_n > 1.0 && *round_n < 1e5) {
    Reading reading{message("linear with factor ", factor, " and base ", base), base, {}};
    reading.scaling.type = "linear";
    reading.scaling.numbers = {{"factor", factor}};
    family.readings.push_back(std::move(reading));
    family.type = "ntk";
    family.base = ntk_base;
    family.scaling.numbers = {{"factor", *round_n}};
    family.frequencies = power_law(pairs, std::log(*round_n) / input.pairs(),
                                   std::log(ntk_base * *round_n) / input.pairs());
  } else {
    family.readings.push_back({message("positions divided by ", family.scaling.numbers[0].second,
                                       ", frequencies unscaled"),
                               family.base,
                               {"default", {}, {}}});
  }
  return finish(family, input);
}

// f_i of the whole head for the first pairs, zero after them: the half layout spans the head.
Family fit_proportional(const FamilyInput& input) {
  Family family;
  family.type = "proportional";
  const std::size_t pairs = input.value.size();
  std::size_t rotating = 0;
  for (std::size_t i = 0; i < pairs; ++i) {
    if (input.value[i] > 6.0 * input.error[i]) rotating = i + 1;
  }
  if (input.width != input.head_dim || rotating < 2 || rotating == pairs) return family;
  const auto with_zeros = [&](std::vector<double> law) {
    std::fill(law.begin() + static_cast<std::ptrdiff_t>(rotating), law.end(), 0.0);
    return law;
  };
  const std::vector<double> value(input.value.begin(),
                                  input.value.begin() + static_cast<std::ptrdiff_t>(rotating));
  const std::vector<double> error(input.error.begin(),
                                  input.error.begin() + static_cast<std::ptrdiff_t>(rotating));
  FamilyInput part{value, error, input.width, input.head_dim, input.amplitude, input.pairing};
  const Family plain = fit_default(part);
  const Family& law = plain.fits ? plain : fit_linear(part);
  const double slope = law.base ? std::log(*law.base) / input.pairs() : 0.0;
  double factor = 1.0;
  for (const auto& [name, number] : law.scaling.numbers)
    factor = name == "factor" ? number : factor;
  // A zero counts only if the formula's value there would be measurable.
  const double next = std::exp(-slope * static_cast<double>(rotating)) / factor;
  if (!law.fits || law.type == "ntk" || next < 10.0 * input.error[rotating]) return family;
  family.base = law.base;
  family.base_error = law.base_error;
  family.scaling.numbers = {{"partial_rotary_factor", 2.0 * static_cast<double>(rotating) /
                                                          static_cast<double>(input.head_dim)},
                            {"factor", factor}};
  family.frequencies = with_zeros(power_law(pairs, std::log(factor), slope));
  return finish(family, input);
}

// Unscaled frequencies that were stored in 16 bits.
Family fit_rounded(const FamilyInput& input, core::DType type) {
  std::vector<double> loose = input.error;
  for (std::size_t i = 0; i < loose.size(); ++i) {
    loose[i] = std::hypot(loose[i], 0.6 * unit_of(type) * input.value[i]);
  }
  Family family = fit_default(
      {input.value, loose, input.width, input.head_dim, input.amplitude, input.pairing});
  for (double& frequency : family.frequencies) frequency = rounded(frequency, type);
  family.rounded_to = type_name(type);
  family.notes.push_back(message("the frequencies were rounded to ", type_name(type)));
  family.effective_base.reset();
  return finish(family, input);
}

// LongRoPE's amplitude is sqrt(1 + ln factor / ln original): the factor for a usual length.
void describe_longrope_amplitude(double amplitude, Family& family) {
  if (amplitude < 1.001) return;
  for (const double length : {4096.0, 8192.0, 2048.0, 16384.0, 32768.0}) {
    const double factor = std::exp((amplitude * amplitude - 1.0) * std::log(length));
    const auto round = round_number(factor, 1e-4 * factor);
    if (!round) continue;
    family.notes.push_back(message("the amplitude is LongRoPE's for factor ", *round,
                                   " and original length ", length));
    return;
  }
}

// No formula fits: a list of factors.
Family as_list(const FamilyInput& input) {
  Family family;
  family.frequencies = input.value;
  const std::size_t pairs = input.value.size();
  const bool positive =
      std::all_of(input.value.begin(), input.value.end(), [](double value) { return value > 0.0; });
  const auto factors_over = [&](double base) {
    std::vector<double> factors;
    for (std::size_t i = 0; i < pairs; ++i) {
      const double plain = std::pow(base, -static_cast<double>(i) / input.pairs());
      factors.push_back(input.value[i] > 0.0 ? plain / input.value[i] : 0.0);
    }
    return factors;
  };
  // LongRoPE's factors start near 1 and grow: the first known base for which they do.
  const auto plausible = [&](const std::vector<double>& factors) {
    std::size_t falls = 0;
    for (std::size_t i = 1; i < factors.size(); ++i) {
      if (factors[i] < 0.98 * factors[i - 1]) ++falls;
    }
    const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
    return *low > 0.8 && *high < 2000.0 && factors.front() < 8.0 && 8 * falls <= factors.size();
  };
  family.type = "unknown";
  for (const double base : kKnownBases) {
    if (!positive || pairs < 4) break;
    std::vector<double> factors = factors_over(base);
    if (!plausible(factors)) continue;
    family.type = "longrope";
    family.base = base;
    family.scaling.factors = std::move(factors);
    describe_longrope_amplitude(input.amplitude, family);
    family.notes.push_back(message("the factors assume base ", base,
                                   ", which the data do not determine: another base gives other "
                                   "factors and the same frequencies"));
    break;
  }
  return finish(family, input);
}

}  // namespace

Family finish(Family family, const FamilyInput& input) {
  // Numbers that no model has: a law that needs them is a coincidence.
  constexpr double kLowestBase = 1.001, kHighestBase = 1e13, kHighestFactor = 1e5;
  bool believed = !family.base || (*family.base > kLowestBase && *family.base < kHighestBase);
  for (const auto& [name, value] : family.scaling.numbers) {
    if (name == "factor") {
      believed = believed && value > 1.0 / kHighestFactor && value < kHighestFactor;
    }
  }
  if (!believed) return {};
  family.misfit = misfit_of(family.frequencies, input.value, input.error);
  family.fits = family.misfit <= kFamilyMisfit;
  family.scaling.type = family.type;
  return family;
}

std::optional<double> round_number(double value, double width) {
  if (!(value > 0.0) || !std::isfinite(value) || !(width < 0.5 * value)) return std::nullopt;
  const double exponent = std::floor(std::log10(value));
  for (int digits = 1; digits <= 4; ++digits) {
    const double step = std::pow(10.0, exponent - digits + 1);
    const double candidate = std::round(value / step) * step;
    if (std::abs(candidate - value) > width) continue;
    // The probability that a number of so few digits is within `width` by coincidence.
    if (2.0 * width > 0.1 * step) break;
    return candidate;
  }
  const double power = std::exp2(std::round(std::log2(value)));
  if (std::abs(power - value) <= width && width < 0.1 * value) return power;
  return std::nullopt;
}

std::optional<double> round_base(double value, double width) {
  if (!(value > 0.0) || !std::isfinite(value)) return std::nullopt;
  std::optional<double> known;
  for (const double base : kKnownBases) {
    if (std::abs(base - value) > width || width > 0.5 * value) continue;
    if (!known || std::abs(base - value) < std::abs(*known - value)) known = base;
  }
  return known ? known : round_number(value, width);
}

std::vector<Family> fit_families(const FamilyInput& input) {
  std::vector<Family> families;
  families.push_back(fit_default(input));
  if (families.back().fits) read_as_dynamic(input, families.back());
  families.push_back(fit_linear(input));
  families.push_back(fit_proportional(input));
  const auto any = [&] {
    return std::any_of(families.begin(), families.end(), [](const Family& f) { return f.fits; });
  };
  if (!any() && input.value.size() >= 4) {
    Family yarn = fit_yarn(input), llama3 = fit_llama3(input);
    // Without a pair on the ramp both fit; YaRN's amplitude decides.
    const bool both = yarn.fits && llama3.fits;
    const bool first = both && (input.amplitude > 1.001 ? yarn.misfit <= 2.0 * llama3.misfit
                                                        : 2.0 * yarn.misfit < llama3.misfit);
    if (both) {
      Family& chosen = first ? yarn : llama3;
      const Family& other = first ? llama3 : yarn;
      chosen.readings.push_back(
          {message("the same frequencies as ", other.type), other.base, other.scaling});
    }
    families.push_back(first || !llama3.fits ? std::move(yarn) : std::move(llama3));
    if (!any()) families.push_back(fit_ntk_by_parts(input));
    if (!any()) families.push_back(fit_mixed_ntk(input));
    if (!any()) families.push_back(fit_rounded(input, core::DType::bf16));
    if (!any()) families.push_back(fit_rounded(input, core::DType::f16));
  }
  std::erase_if(families, [](const Family& f) { return f.frequencies.empty(); });
  const auto simplest =
      std::find_if(families.begin(), families.end(), [](const Family& f) { return f.fits; });
  if (simplest == families.end()) {
    families.push_back(as_list(input));
    std::rotate(families.begin(), families.end() - 1, families.end());
  } else {
    std::rotate(families.begin(), simplest, simplest + 1);
  }
  std::stable_sort(families.begin() + 1, families.end(),
                   [](const Family& a, const Family& b) { return a.misfit < b.misfit; });
  return families;
}

}  // namespace phasor::porting::diagnosis
