// mlx-lm and mlx-vlm.
#include "porting/dialects/reading.hpp"
#include "porting/dialects/shared_rules.hpp"

namespace phasor::porting {
namespace {

using encodings::DefaultScaling;
using encodings::LinearScaling;
using encodings::LongRopeScaling;

const RuleEntry kMlxTypes = {
    {"mlx-types", "rope types ntk and ntk_by_parts and xPos are not supported: loading fails", "",
     Evidence::read, Touches::everything},
    [](EngineReading& reading, const Circumstances&) {
      return fail_to_load(reading, {"ntk", "ntk_by_parts"});
    }};

const RuleEntry kMlxLongRope = {
    {"mlx-longrope-always-long", "the long factors apply to sequences of every length", "",
     Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances& given) {
      const auto* longrope = std::get_if<LongRopeScaling>(&reading.rope.scaling);
      if (longrope == nullptr) return Effect{};
      reading.length = longrope->original_length + 1;
      if (given.state.context > longrope->original_length) return Effect{};
      return Effect{message("the long factors apply to a sequence of ", given.state.context)};
    }};

const RuleEntry kMlxExtrapolation = {
    {"mlx-yarn-extrapolation-factor", "YaRN's extrapolation_factor is not read", "", Evidence::read,
     Touches::everything},
    extrapolation_factor_ignored};

const RuleEntry kMlxYarnAttentionFactor = {
    {"mlx-yarn-attention-factor",
     "YaRN's attention_factor is ignored: the amplitude follows mscale and mscale_all_dim, or else "
     "is 0.1 ln(factor) + 1",
     "", Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances&) {
      return yarn_attention_factor_ignored(reading);
    }};

const RuleEntry kMlxYarnTruncate = {
    {"mlx-yarn-truncate",
     "YaRN's correction range is always rounded to whole pairs; truncate: false is ignored", "",
     Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances&) { return yarn_truncate_ignored(reading); }};

const RuleEntry kMlxLongRopeAmplitude = {
    {"mlx-longrope-amplitude",
     "LongRoPE's factor, attention_factor, short_mscale and long_mscale are ignored: the amplitude "
     "follows max / original",
     "", Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances& given) {
      return longrope_amplitude_from_lengths(reading, given, ListAmplitudes::dropped);
    }};

const RuleEntry kMlxVlmGemma = {
    {"mlxvlm-gemma3-global-scaling",
     "Gemma 3's rope_scaling is read and then ignored: the global layers are not scaled",
     "mlx-vlm #1709", Evidence::reported, Touches::frequencies},
    [](EngineReading& reading, const Circumstances& given) {
      const auto* linear = std::get_if<LinearScaling>(&reading.rope.scaling);
      if (linear == nullptr || !given.config.meaning.model_type.starts_with("gemma3"))
        return Effect{};
      const double factor = linear->factor;
      reading.rope.scaling = DefaultScaling{};
      return Effect{message("the factor ", digits(factor), " is ignored")};
    }};

}  // namespace

std::vector<DialectEntry> mlx_dialects() {
  return {
      {"mlx-lm",
       "mlx-lm",
       "0.32, measured",
       {&kMlxTypes, &kMlxLongRope, &kMlxLongRopeAmplitude, &kMlxYarnAttentionFactor,
        &kMlxYarnTruncate, &kMlxExtrapolation}},
      {"mlx-vlm", "mlx-vlm", "before #1709", {&kMlxVlmGemma}},
  };
}

}  // namespace phasor::porting
