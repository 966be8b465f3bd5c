// SGLang.
#include "porting/dialects/reading.hpp"
#include "porting/dialects/shared_rules.hpp"

namespace phasor::porting {
namespace {

using encodings::LongRopeScaling;
using encodings::MropeAxes;
using encodings::YarnScaling;

const RuleEntry kSglangTypes = {
    {"sglang-types",
     "rope types ntk, ntk_by_parts and telechat3-yarn and xPos are not supported: loading fails",
     "", Evidence::read, Touches::everything},
    [](EngineReading& reading, const Circumstances&) {
      return fail_to_load(reading, {"ntk", "ntk_by_parts", "telechat3-yarn"});
    }};

const RuleEntry kSglangLinear = {
    {"sglang-linear-positions",
     "linear scaling divides the positions instead of the frequencies: the same angles", "",
     Evidence::read, Touches::rounding},
    linear_by_positions};

const RuleEntry kSglangDynamic = {
    {"sglang-dynamic-at-load",
     "the base is fixed when the model is loaded, for max_position_embeddings * factor positions, "
     "also for sequences within the original length",
     "", Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances&) {
      return dynamic_at_load(reading, std::nullopt, "");
    }};

// mscale and mscale_all_dim are read when the config has both; attention_factor never is.
const RuleEntry kSglangYarnAmplitude = {
    {"sglang-yarn-amplitude",
     "YaRN's attention_factor is ignored: the amplitude follows mscale and mscale_all_dim, or else "
     "is 0.1 ln(factor) + 1",
     "", Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances& given) {
      return has_latent_attention(given.config.meaning) ? Effect{}
                                                        : yarn_attention_factor_ignored(reading);
    }};

const RuleEntry kSglangMropeMscale = {
    {"sglang-mrope-yarn-mscale",
     "YaRN with M-RoPE has no mscale and mscale_all_dim: loading fails when the config has one", "",
     Evidence::read, Touches::everything},
    [](EngineReading& reading, const Circumstances&) {
      const auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || !std::holds_alternative<MropeAxes>(reading.rope.axes) ||
          (yarn->mscale == 0.0 && yarn->mscale_all_dim == 0.0)) {
        return Effect{};
      }
      reading.refusal = "mscale is not an argument of its YaRN with M-RoPE";
      return Effect{reading.refusal};
    }};

const RuleEntry kSglangDeepseekYarn = {
    {"sglang-deepseek-yarn",
     "DeepSeek's own YaRN reads mscale and mscale_all_dim but not attention_factor and truncate",
     "", Evidence::read, Touches::everything},
    deepseek_yarn};

const RuleEntry kSglangLongRopeBatch = {
    {"sglang-longrope-by-batch",
     "one token beyond the original length gives every sequence of its batch the long factors; the "
     "last position within it is the original length, not one before",
     "", Evidence::read, Touches::cached_keys},
    [](EngineReading& reading, const Circumstances&) {
      const auto* longrope = std::get_if<LongRopeScaling>(&reading.rope.scaling);
      if (longrope == nullptr) return Effect{};
      return Effect{message("the short factors apply while no position of the batch is above ",
                            longrope->original_length),
                    false};
    }};

const RuleEntry kSglangLongRopeAmplitude = {
    {"sglang-longrope-amplitude",
     "LongRoPE's factor and attention_factor are ignored: the amplitude follows max / original, or "
     "short_mscale and long_mscale",
     "", Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances& given) {
      return longrope_amplitude_from_lengths(reading, given, ListAmplitudes::read);
    }};

}  // namespace

std::vector<DialectEntry> sglang_dialects() {
  return {
      {"sglang",
       "SGLang",
       "0.5.18, sources of August 2026",
       {&kSglangTypes, &kSglangLinear, &kSglangDynamic, &kSglangMropeMscale, &kSglangYarnAmplitude,
        &kSglangDeepseekYarn, &kSglangLongRopeBatch, &kSglangLongRopeAmplitude}}};
}

}  // namespace phasor::porting
