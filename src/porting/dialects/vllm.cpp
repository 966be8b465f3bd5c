// vLLM.
#include "porting/dialects/reading.hpp"
#include "porting/dialects/shared_rules.hpp"

namespace phasor::porting {
namespace {

using encodings::MropeAxes;
using encodings::YarnScaling;

const RuleEntry kVllmLinear = {
    {"vllm-linear-positions",
     "linear scaling divides the positions instead of the frequencies: the same angles", "",
     Evidence::read, Touches::rounding},
    linear_by_positions};

const RuleEntry kVllmDynamic = {
    {"vllm-dynamic-at-load",
     "the base is fixed when the model is loaded, for the length it is served with (by default max "
     "* factor), also for sequences within the original length",
     "vLLM #3488, #41236, #52665", Evidence::reported, Touches::frequencies},
    [](EngineReading& reading, const Circumstances& given) {
      return dynamic_at_load(reading, given.state.max_length, "vLLM #52665");
    }};

const RuleEntry kVllmYarnAmplitude = {
    {"vllm-yarn-amplitude",
     "YaRN's attention_factor, mscale and mscale_all_dim are ignored: the amplitude is always 0.1 "
     "ln(factor) + 1",
     "vLLM #48351, #48621", Evidence::reported, Touches::amplitude},
    [](EngineReading& reading, const Circumstances& given) {
      return has_latent_attention(given.config.meaning) ? Effect{}
                                                        : yarn_amplitude_from_factor(reading);
    }};

const RuleEntry kVllmMropeRange = {
    {"vllm-mrope-yarn-range",
     "M-RoPE multiplies the original length by 4 before YaRN computes its correction range from "
     "it: frequencies are wrong by a factor of up to 2.2",
     "", Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances&) {
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || !std::holds_alternative<MropeAxes>(reading.rope.axes)) return Effect{};
      yarn->original_length *= 4;
      return Effect{message("the correction range is computed for ", yarn->original_length,
                            " positions instead of ", yarn->original_length / 4)};
    }};

const RuleEntry kVllmMropeAmplitude = {
    {"vllm-mrope-yarn-amplitude",
     "with M-RoPE, YaRN's attention_factor, mscale and mscale_all_dim are ignored", "vLLM #48351",
     Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances&) {
      return std::holds_alternative<MropeAxes>(reading.rope.axes)
                 ? yarn_amplitude_from_factor(reading)
                 : Effect{};
    }};

const RuleEntry kVllmDeepseekYarn = {
    {"vllm-deepseek-yarn",
     "DeepSeek's own YaRN reads mscale and mscale_all_dim but not attention_factor and truncate",
     "", Evidence::read, Touches::everything},
    deepseek_yarn};

const RuleEntry kVllmLongRopeList = {
    {"vllm-longrope-by-max-length",
     "short or long factors are chosen once, by the length that the server was started with, so "
     "short sequences may get the long factors",
     "", Evidence::read, Touches::frequencies},
    list_by_started_length};

const RuleEntry kVllmLongRopeAmplitude = {
    {"vllm-longrope-amplitude",
     "LongRoPE's factor and attention_factor are ignored: the amplitude follows max / original", "",
     Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances& given) {
      return longrope_amplitude_from_lengths(reading, given, ListAmplitudes::read);
    }};

const RuleEntry kVllmExtrapolation = {
    {"vllm-yarn-extrapolation-factor", "YaRN's extrapolation_factor is not read", "",
     Evidence::read, Touches::everything},
    extrapolation_factor_ignored};

const RuleEntry kVllmTypes = {
    {"vllm-types", "rope type ntk_by_parts and xPos are not supported: loading fails", "",
     Evidence::read, Touches::everything},
    [](EngineReading& reading, const Circumstances&) {
      return fail_to_load(reading, {"ntk_by_parts"});
    }};

}  // namespace

std::vector<DialectEntry> vllm_dialects() {
  return {
      {"vllm",
       "vLLM",
       "0.25, mid-2026 sources",
       {&kVllmTypes, &kVllmLinear, &kVllmDynamic, &kVllmYarnAmplitude, &kVllmDeepseekYarn,
        &kVllmMropeAmplitude, &kVllmMropeRange, &kVllmLongRopeList, &kVllmLongRopeAmplitude}},
      {"vllm-main",
       "vLLM",
       "0.33, measured: the amplitude of #48351 and #48621 is honoured",
       {&kVllmTypes, &kVllmLinear, &kVllmDynamic, &kVllmDeepseekYarn, &kVllmExtrapolation,
        &kVllmMropeRange, &kVllmLongRopeList, &kVllmLongRopeAmplitude}},
  };
}

}  // namespace phasor::porting
