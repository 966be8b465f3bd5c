// Hugging Face transformers.
#include <algorithm>
#include <cmath>
#include <utility>

#include "porting/dialects/reading.hpp"
#include "porting/dialects/shared_rules.hpp"

namespace phasor::porting {
namespace {

using encodings::DynamicScaling;
using encodings::LongRopeScaling;
using encodings::RopeSpec;
using encodings::YarnScaling;

// The largest angle error of a key cached at the last position of the original length after the
// frequencies changed.
[[nodiscard]] double stale_angle(const RopeSpec& rope, std::int64_t original,
                                 std::int64_t context) {
  const core::Frequencies before = encodings::resolve_frequencies(rope, original);
  const core::Frequencies after = encodings::resolve_frequencies(rope, context);
  double worst = 0.0;
  for (std::size_t i = 0; i < before.values().size(); ++i) {
    const double change = std::abs(before.values()[i] - after.values()[i]);
    worst = std::max(worst, change * static_cast<double>(original - 1));
  }
  return worst;
}

const RuleEntry kHfDynamicBySequence = {
    {"hf-dynamic-by-sequence",
     "the base grows with the sequence and is reset for sequences within the original length; "
     "cached keys keep the base they were rotated with",
     "transformers #25104, #27227", Evidence::reported, Touches::cached_keys},
    [](EngineReading& reading, const Circumstances& given) {
      const auto* dynamic = std::get_if<DynamicScaling>(&reading.rope.scaling);
      if (dynamic == nullptr || dynamic->alpha || given.state.context <= dynamic->original_length)
        return Effect{};
      reading.stale_key_angle =
          stale_angle(reading.rope, dynamic->original_length, given.state.context);
      return Effect{message("the angle of a key cached at position ", dynamic->original_length - 1,
                            " is wrong by up to ", digits(reading.stale_key_angle),
                            " rad at sequence length ", given.state.context),
                    false};
    }};

const RuleEntry kHfLongRopeBySequence = {
    {"hf-longrope-by-sequence",
     "the long factors apply once the sequence is longer than the original length; the cache is "
     "discarded at that token",
     "transformers #33129", Evidence::reported, Touches::cached_keys},
    [](EngineReading& reading, const Circumstances& given) {
      const auto* longrope = std::get_if<LongRopeScaling>(&reading.rope.scaling);
      if (longrope == nullptr || given.state.context <= longrope->original_length) return Effect{};
      reading.stale_key_angle =
          stale_angle(reading.rope, longrope->original_length, given.state.context);
      return Effect{message("the angle of a key kept in the cache beyond position ",
                            longrope->original_length, " would be wrong by up to ",
                            digits(reading.stale_key_angle), " rad"),
                    false};
    }};

const RuleEntry kHfNestedTruncate = {
    {"hf-nested-truncate",
     "with one dictionary per layer type, `truncate` is read from the outer dictionary, where it "
     "is missing, so the correction range is rounded to whole pairs",
     "", Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances& given) {
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || yarn->truncate || given.config.form != ConfigForm::nested)
        return Effect{};
      yarn->truncate = true;
      return Effect{"truncate: false of the layer type is ignored"};
    }};

const RuleEntry kHfExtrapolation = {
    {"hf-yarn-extrapolation-factor", "YaRN's extrapolation_factor is not read", "", Evidence::read,
     Touches::everything},
    extrapolation_factor_ignored};

const RuleEntry kHfTypes = {
    {"hf-types", "rope types ntk and ntk_by_parts and xPos are not supported: loading fails", "",
     Evidence::read, Touches::everything},
    [](EngineReading& reading, const Circumstances&) {
      return fail_to_load(reading, {"ntk", "ntk_by_parts"});
    }};

const RuleEntry kHf4LegacyKeys = {
    {"hf4-legacy-keys",
     "rope_parameters is ignored without a warning: the base is the model class's default (10000 "
     "for most) and every scaling is lost",
     "MarinFold #184, DeepSpeed #8345", Evidence::reported, Touches::everything},
    [](EngineReading& reading, const Circumstances& given) {
      if (given.config.form != ConfigForm::flat && given.config.form != ConfigForm::nested)
        return Effect{};
      if (!given.config.legacy) {
        reading.refusal = given.config.legacy_problem;
        return Effect{reading.refusal};
      }
      const auto& groups = given.config.legacy->groups;
      const auto same_type = [&](const config::LayerGroup& group) {
        return groups.size() == 1 || group.layer_type == given.group.layer_type;
      };
      const auto found = std::find_if(groups.begin(), groups.end(), same_type);
      if (found == groups.end() || !found->rope) {
        reading.refusal = message("without rope_parameters there is no rotation for layer type \"",
                                  given.group.layer_type, "\"");
        return Effect{reading.refusal};
      }
      const RopeSpec before = std::exchange(reading.rope, *found->rope);
      reading.softmax_scale = found->softmax_scale;
      const RopeSpec& after = reading.rope;
      if (before.base == after.base && before.scaling == after.scaling &&
          before.rotary_dim == after.rotary_dim) {
        return Effect{};
      }
      std::string text;
      const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
      if (before.base != after.base)
        add(message("base ", digits(before.base), " is read as ", digits(after.base)));
      if (before.scaling != after.scaling)
        add(message("scaling ", encodings::name_of(before.scaling), " is lost"));
      if (before.rotary_dim != after.rotary_dim)
        add(message("rotary_dim ", before.rotary_dim, " is read as ", after.rotary_dim));
      return Effect{text};
    }};

}  // namespace

std::vector<DialectEntry> hugging_face_dialects() {
  return {
      {"hf",
       "Hugging Face transformers",
       "5, mid-2026 sources",
       {&kHfDynamicBySequence, &kHfLongRopeBySequence, &kHfNestedTruncate, &kHfExtrapolation,
        &kHfTypes}},
      {"hf-4",
       "Hugging Face transformers",
       "4.57, and readers that know rope_theta and rope_scaling only",
       {&kHf4LegacyKeys, &kHfDynamicBySequence, &kHfLongRopeBySequence, &kHfExtrapolation,
        &kHfTypes}},
  };
}

}  // namespace phasor::porting
