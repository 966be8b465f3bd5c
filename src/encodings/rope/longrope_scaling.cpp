#include <cmath>

#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {
namespace {

constexpr std::array kLongRopeFields = {
    scaling_field<&LongRopeScaling::factor>(
        "factor", FieldRange::positive, WhenMissing::length_ratio,
        "Gives the amplitude sqrt(1 + ln factor / ln original_length)."),
    original_length_field<&LongRopeScaling::original_length>(),
    scaling_field<&LongRopeScaling::short_factor>(
        "short_factor", FieldRange::positive, WhenMissing::error,
        "Divides the frequencies up to the original length, one entry per pair."),
    scaling_field<&LongRopeScaling::long_factor>(
        "long_factor", FieldRange::positive, WhenMissing::error,
        "Divides the frequencies beyond the original length, one entry per pair."),
    scaling_field<&LongRopeScaling::attention_factor>("attention_factor", FieldRange::positive,
                                                      WhenMissing::not_used, "The amplitude."),
    scaling_field<&LongRopeScaling::short_mscale>("short_mscale", FieldRange::positive,
                                                  WhenMissing::not_used,
                                                  "The amplitude with short_factor."),
    scaling_field<&LongRopeScaling::long_mscale>("long_mscale", FieldRange::positive,
                                                 WhenMissing::not_used,
                                                 "The amplitude with long_factor."),
};

void check_list(std::string_view name, const std::vector<double>& list, std::int64_t pairs) {
  if (static_cast<std::int64_t>(list.size()) != pairs) {
    refuse(message("rope: longrope ", name, " must have ", pairs,
                   " entries (rotary_dim / 2; for images those of one axis), got ", list.size()));
  }
}

[[nodiscard]] bool is_long(const LongRopeScaling& scaling, const ScalingInput& input) {
  return input.context && *input.context > scaling.original_length;
}

[[nodiscard]] double amplitude_of(const LongRopeScaling& scaling, const ScalingInput& input) {
  const std::optional<double>& mscale =
      is_long(scaling, input) ? scaling.long_mscale : scaling.short_mscale;
  if (mscale) return *mscale;
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (scaling.factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(scaling.factor) /
                             std::log(static_cast<double>(scaling.original_length)));
}

void check(const LongRopeScaling& scaling, const ScalingInput& input) {
  check_list("short_factor", scaling.short_factor, input.width / 2);
  check_list("long_factor", scaling.long_factor, input.width / 2);
  if (scaling.attention_factor && (scaling.short_mscale || scaling.long_mscale)) {
    refuse(message("rope: longrope attention_factor ", *scaling.attention_factor,
                   " cannot be combined with short_mscale or long_mscale"));
  }
  const bool both_mscales = scaling.short_mscale && scaling.long_mscale;
  // The amplitude divides by ln original_length.
  if (scaling.factor > 1.0 && scaling.original_length == 1 && !scaling.attention_factor &&
      !both_mscales) {
    refuse("rope: longrope original_length must be above 1, got 1");
  }
}

ScaledFrequencies scale(const LongRopeScaling& scaling, const ScalingInput& input) {
  const std::vector<double>& list =
      is_long(scaling, input) ? scaling.long_factor : scaling.short_factor;
  const auto formula = [&]<class T>(std::type_identity<T>) {
    std::vector<T> frequencies = inverse_frequencies<T>(input.base, input.width, input.width / 2);
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      frequencies[i] = T(1.0) / (element<T>(list[i]) * frequencies[i]);
    }
    return frequencies;
  };
  return in_both_arithmetics(formula, amplitude_of(scaling, input));
}

bool reads_context(const LongRopeScaling&) { return true; }

}  // namespace

const ScalingRule& rule_of(std::type_identity<LongRopeScaling>) {
  static constexpr ScalingRule kRule = make_rule<LongRopeScaling, scale, check, reads_context>(
      "longrope", "f_i / short_factor_i, or f_i / long_factor_i beyond the original length",
      kLongRopeFields);
  return kRule;
}

}  // namespace phasor::encodings
