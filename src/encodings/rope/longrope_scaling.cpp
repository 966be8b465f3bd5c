#include <cmath>
#include <string>

#include "encodings/rope/scalings.hpp"
#include "phasor/core/error.hpp"

namespace phasor::encodings {
namespace {

void check_list(std::string_view name, const std::vector<double>& list, std::int64_t pairs) {
  if (static_cast<std::int64_t>(list.size()) != pairs) {
    throw Error(ErrorCode::invalid_argument,
                message("rope: longrope ", name, " must have rotary_dim / 2 = ", pairs,
                        " entries, got ", list.size()));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    require_positive(message("longrope ", name, "[", i, "]"), list[i]);
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

}  // namespace

void check(const LongRopeScaling& scaling, const ScalingInput& input) {
  require_positive("longrope factor", scaling.factor);
  require_positive("longrope original_length", scaling.original_length);
  check_list("short_factor", scaling.short_factor, input.width / 2);
  check_list("long_factor", scaling.long_factor, input.width / 2);
  if (scaling.attention_factor)
    require_positive("longrope attention_factor", *scaling.attention_factor);
  if (scaling.short_mscale) require_positive("longrope short_mscale", *scaling.short_mscale);
  if (scaling.long_mscale) require_positive("longrope long_mscale", *scaling.long_mscale);
  if (scaling.attention_factor && (scaling.short_mscale || scaling.long_mscale)) {
    throw Error(
        ErrorCode::invalid_argument,
        "rope: longrope amplitude must be given once, got attention_factor beside short_mscale or "
        "long_mscale");
  }
  const bool both_mscales = scaling.short_mscale && scaling.long_mscale;
  // The amplitude divides by ln original_length.
  if (scaling.factor > 1.0 && scaling.original_length == 1 && !scaling.attention_factor &&
      !both_mscales) {
    throw Error(ErrorCode::invalid_argument,
                "rope: longrope original_length must be above 1, got 1");
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

}  // namespace phasor::encodings
