#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {
namespace {

constexpr std::array kNtkFields = {
    scaling_field<&NtkScaling::factor>("factor", FieldRange::positive, WhenMissing::error,
                                       "Divides the lowest frequency; the others by less."),
    scaling_field<&NtkScaling::mixed_b>(
        "mixed_b", FieldRange::positive, WhenMissing::not_used,
        "The exponent b of NTK-mixed, which divides f_i by exp(a (i+1)^b)."),
};

// f_i of base * factor, divided by factor^(2/dim): the first pair slows down too, the last one by
// `factor`.
template <class T>
std::vector<T> fixed(const NtkScaling& scaling, const ScalingInput& input) {
  using S = Setting<T>;
  const S factor = scaling.factor;
  const T divisor = element<T>(power(factor, S(2.0) / S(static_cast<double>(input.width))));
  std::vector<T> frequencies =
      plain_frequencies<T>(S(input.base) * factor, input.width, input.width / 2);
  for (T& frequency : frequencies) frequency = frequency / divisor;
  return frequencies;
}

// f_i / exp(a (i+1)^b), a = ln factor / (dim/2)^b: the last pair slows down by exactly `factor`.
template <class T>
std::vector<T> mixed(const NtkScaling& scaling, const ScalingInput& input) {
  using S = Setting<T>;
  const S b = *scaling.mixed_b;
  const std::int64_t pairs = input.width / 2;
  const T a =
      natural_log(element<T>(scaling.factor)) / element<T>(power(S(static_cast<double>(pairs)), b));
  std::vector<T> frequencies = plain_frequencies<T>(input.base, input.width, pairs);
  for (std::int64_t i = 0; i < pairs; ++i) {
    const T order = power(T(static_cast<double>(i + 1)), element<T>(b));
    T& frequency = frequencies[static_cast<std::size_t>(i)];
    frequency = frequency / exponential(a * order);
  }
  return frequencies;
}

ScaledFrequencies scale(const NtkScaling& scaling, const ScalingInput& input) {
  return in_both_arithmetics([&]<class T>(std::type_identity<T>) {
    return scaling.mixed_b ? mixed<T>(scaling, input) : fixed<T>(scaling, input);
  });
}

}  // namespace

const ScalingRule& rule_of(std::type_identity<NtkScaling>) {
  static constexpr ScalingRule kRule = make_rule<NtkScaling, scale>(
      "ntk", "f_i of base * factor, divided by factor^(2/dim)", kNtkFields);
  return kRule;
}

}  // namespace phasor::encodings
