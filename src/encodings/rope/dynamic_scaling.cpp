#include <algorithm>

#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {
namespace {

constexpr Field<RopeScaling> dynamic_factor() {
  auto field = scaling_field<&DynamicScaling::factor>(
      "factor", FieldRange::positive, WhenMissing::error,
      "How fast the base grows with the length of the sequence.");
  field.unless = "alpha";
  return field;
}

// Not a key of the dictionary: Hugging Face measures the sequence against max_position_embeddings.
constexpr Field<RopeScaling> dynamic_length() {
  auto field = original_length_field<&DynamicScaling::original_length>();
  field.key = "max_position_embeddings";
  field.place = FieldPlace::outside;
  field.unless = "alpha";
  field.get = [](const RopeScaling& scaling) {
    const auto& dynamic = std::get<DynamicScaling>(scaling);
    return dynamic.alpha ? FieldValue() : FieldValue(dynamic.original_length);
  };
  return field;
}

constexpr std::array kDynamicFields = {
    dynamic_factor(),
    scaling_field<&DynamicScaling::alpha>(
        "alpha", FieldRange::positive, WhenMissing::not_used,
        "Multiplies the base by alpha^(dim/(dim-2)) at every length (Hunyuan)."),
    dynamic_length(),
};

void check(const DynamicScaling&, const ScalingInput& input) {
  // The exponent is dim / (dim - 2).
  if (input.width <= 2)
    refuse(message("rope: rotary_dim must be above 2 for dynamic scaling, got ", input.width));
}

bool reads_context(const DynamicScaling& scaling) { return !scaling.alpha; }

ScaledFrequencies scale(const DynamicScaling& scaling, const ScalingInput& input) {
  return in_both_arithmetics([&]<class T>(std::type_identity<T>) {
    using S = Setting<T>;
    S growth = scaling.alpha.value_or(1.0);
    if (!scaling.alpha) {
      const std::int64_t original = scaling.original_length;
      const std::int64_t length = std::max(input.context.value_or(original), original);
      const S factor = scaling.factor;
      const S stretched =
          factor * S(static_cast<double>(length)) / S(static_cast<double>(original));
      growth = stretched - (factor - S(1.0));
    }
    const auto width = static_cast<double>(input.width);
    const S base = S(input.base) * power(growth, S(width) / S(width - 2.0));
    return plain_frequencies<T>(base, input.width, input.width / 2);
  });
}

}  // namespace

const ScalingRule& rule_of(std::type_identity<DynamicScaling>) {
  static constexpr ScalingRule kRule = make_rule<DynamicScaling, scale, check, reads_context>(
      "dynamic", "base * (factor L/max - (factor - 1))^(dim/(dim-2)), L = max(context, max)",
      kDynamicFields);
  return kRule;
}

}  // namespace phasor::encodings
