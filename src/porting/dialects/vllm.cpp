// vLLM.
#include "porting/dialects/reading.hpp"
#include "porting/dialects/shared_rules.hpp"

namespace phasor::porting {
namespace {

using encodings::DefaultScaling;
using encodings::DynamicScaling;
using encodings::LinearScaling;
using encodings::MropeAxes;
using encodings::YarnScaling;

const RuleEntry kVllmLinear = {
    {"vllm-linear-positions",
     "linear scaling divides the positions instead of the frequencies: the same angles", "",
     Evidence::read, Touches::rounding},
    [](EngineReading& reading, const Circumstances&) {
      const auto* linear = std::get_if<LinearScaling>(&reading.rope.scaling);
      if (linear == nullptr) return Effect{};
      reading.position_divisor = linear->factor;
      reading.path = FloatPath::divided_positions;
      reading.rope.scaling = DefaultScaling{};
      return Effect{message("positions are divided by ", digits(reading.position_divisor)), false};
    }};

const RuleEntry kVllmDynamic = {
    {"vllm-dynamic-at-load",
     "the base is fixed when the model is loaded, for the length it is served with (by default max "
     "* factor), also for sequences within the original length",
     "vLLM #3488, #41236, #52665", Evidence::reported, Touches::frequencies},
    [](EngineReading& reading, const Circumstances& given) {
      const auto* dynamic = std::get_if<DynamicScaling>(&reading.rope.scaling);
      if (dynamic == nullptr || dynamic->alpha) return Effect{};
      const auto original = static_cast<double>(dynamic->original_length);
      const double served = given.state.max_length ? static_cast<double>(*given.state.max_length)
                                                   : original * dynamic->factor;
      const double growth = dynamic->factor * served / original - (dynamic->factor - 1.0);
      if (!(growth > 0.0)) {
        reading.refusal = message("served with ", served, " positions, fewer than the original ",
                                  original, ", the base is a power of ", digits(growth),
                                  " and the table is NaN (vLLM #52665)");
        return Effect{reading.refusal};
      }
      // alpha is the same growth at every length.
      reading.rope.scaling = DynamicScaling{dynamic->factor, growth, dynamic->original_length};
      return Effect{
          message("the base is multiplied by ", digits(growth), "^(dim/(dim-2)) at every length")};
    }};

[[nodiscard]] bool drop_yarn_amplitude(YarnScaling& yarn) {
  const bool pair = yarn.mscale != 0.0 && yarn.mscale_all_dim != 0.0;
  if (!yarn.attention_factor && !pair) return false;
  yarn.attention_factor.reset();
  yarn.mscale = yarn.mscale_all_dim = 0.0;
  return true;
}

[[nodiscard]] Effect amplitude_from_factor(YarnScaling& yarn) {
  if (!drop_yarn_amplitude(yarn)) return {};
  return {message("the amplitude becomes 0.1 ln(", digits(yarn.factor),
                  ") + 1 = ", digits(encodings::yarn_amplitude(yarn.factor, 1.0)))};
}

const RuleEntry kVllmYarnAmplitude = {
    {"vllm-yarn-amplitude",
     "YaRN's attention_factor, mscale and mscale_all_dim are ignored: the amplitude is always 0.1 "
     "ln(factor) + 1",
     "vLLM #48351, #48621", Evidence::reported, Touches::amplitude},
    [](EngineReading& reading, const Circumstances& given) {
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || has_latent_attention(given.config.meaning)) return Effect{};
      return amplitude_from_factor(*yarn);
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
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || !std::holds_alternative<MropeAxes>(reading.rope.axes)) return Effect{};
      return amplitude_from_factor(*yarn);
    }};

const RuleEntry kVllmDeepseekYarn = {
    {"vllm-deepseek-yarn",
     "DeepSeek's own YaRN reads mscale and mscale_all_dim but not attention_factor and truncate",
     "", Evidence::read, Touches::everything},
    [](EngineReading& reading, const Circumstances& given) {
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || !has_latent_attention(given.config.meaning)) return Effect{};
      const double mscale = yarn->mscale == 0.0 ? 1.0 : yarn->mscale;
      const double amplitude = encodings::yarn_amplitude(yarn->factor, mscale) /
                               encodings::yarn_amplitude(yarn->factor, yarn->mscale_all_dim);
      const double meant = encodings::resolve_frequencies(reading.rope).amplitude();
      const bool same = amplitude == meant && yarn->truncate;
      yarn->attention_factor = amplitude;
      yarn->truncate = true;
      return same ? Effect{} : Effect{message("the amplitude becomes ", digits(amplitude))};
    }};

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
       "with the amplitude of #48351 and #48621 honoured",
       {&kVllmTypes, &kVllmLinear, &kVllmDynamic, &kVllmDeepseekYarn, &kVllmMropeAmplitude,
        &kVllmMropeRange, &kVllmLongRopeList, &kVllmLongRopeAmplitude}},
  };
}

}  // namespace phasor::porting
