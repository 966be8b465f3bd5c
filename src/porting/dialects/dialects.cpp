// The dialects: what Hugging Face transformers, vLLM, llama.cpp and others do with a config where
// it is not what the config means. A rule is one entry here: a sentence, where it is known from,
// and the function that changes a reading.
#include "phasor/porting/dialects.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "porting/dialects/reading.hpp"

namespace phasor::porting {
namespace {

using encodings::DefaultScaling;
using encodings::DynamicScaling;
using encodings::LinearScaling;
using encodings::LongRopeScaling;
using encodings::MropeAxes;
using encodings::RopeSpec;
using encodings::YarnScaling;

[[nodiscard]] bool has_latent_attention(const config::ModelConfig& model) {
  return model.model_type.starts_with("deepseek") || model.model_type.starts_with("kimi");
}

// How far a key at the last position of the original length is off once the frequencies moved.
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

// The length that an engine was started for.
[[nodiscard]] std::int64_t started_for(const Circumstances& given) {
  if (given.state.max_length) return *given.state.max_length;
  return given.config.meaning.max_position.value_or(given.state.context);
}

// ---- Hugging Face transformers

const RuleEntry kHfDynamicBySequence = {
    {"hf-dynamic-by-sequence",
     "the base grows with the sequence and falls back once one is within the original length; keys "
     "already stored keep the base of their time",
     "transformers #25104, #27227", Evidence::reported, Touches::cached_keys},
    [](EngineReading& reading, const Circumstances& given) {
      const auto* dynamic = std::get_if<DynamicScaling>(&reading.rope.scaling);
      if (dynamic == nullptr || dynamic->alpha || given.state.context <= dynamic->original_length)
        return Effect{};
      reading.stale_key_angle =
          stale_angle(reading.rope, dynamic->original_length, given.state.context);
      return Effect{message("a key stored at position ", dynamic->original_length - 1,
                            " is turned wrong by up to ", shown(reading.stale_key_angle),
                            " rad when the sequence is ", given.state.context, " long"),
                    false};
    }};

const RuleEntry kHfLongRopeBySequence = {
    {"hf-longrope-by-sequence",
     "the long list applies once the sequence is longer than the original length; the cache is "
     "thrown away at that token",
     "transformers #33129", Evidence::reported, Touches::cached_keys},
    [](EngineReading& reading, const Circumstances& given) {
      const auto* longrope = std::get_if<LongRopeScaling>(&reading.rope.scaling);
      if (longrope == nullptr || given.state.context <= longrope->original_length) return Effect{};
      reading.stale_key_angle =
          stale_angle(reading.rope, longrope->original_length, given.state.context);
      return Effect{
          message("a key kept across position ", longrope->original_length,
                  " would be turned wrong by up to ", shown(reading.stale_key_angle), " rad"),
          false};
    }};

const RuleEntry kHfNestedTruncate = {
    {"hf-nested-truncate",
     "with one dictionary per layer type, `truncate` is looked for in the outer one, where it is "
     "not, so the correction range is rounded to whole pairs",
     "", Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances& given) {
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || yarn->truncate || given.config.form != ConfigForm::nested)
        return Effect{};
      yarn->truncate = true;
      return Effect{"truncate: false of the layer type is not seen"};
    }};

const RuleEntry kHfTypes = {
    {"hf-types", "there is no type ntk or ntk_by_parts, and no xPos: loading fails", "",
     Evidence::read, Touches::everything},
    [](EngineReading& reading, const Circumstances&) {
      const std::string_view type = encodings::name_of(reading.rope.scaling);
      if (type == "ntk" || type == "ntk_by_parts") {
        reading.refusal = message("it has no rope_type \"", type, "\"");
      } else if (reading.rope.xpos) {
        reading.refusal = "it has no xPos";
      }
      return Effect{reading.refusal};
    }};

const RuleEntry kHf4LegacyKeys = {
    {"hf4-legacy-keys",
     "rope_parameters is not known: without a warning the base is the model class's default (10000 "
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
        reading.refusal = message("without rope_parameters it has no rotation for layer type \"",
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
        add(message("base ", shown(before.base), " is read as ", shown(after.base)));
      if (before.scaling != after.scaling)
        add(message("scaling ", encodings::name_of(before.scaling), " is lost"));
      if (before.rotary_dim != after.rotary_dim)
        add(message("rotary_dim ", before.rotary_dim, " is read as ", after.rotary_dim));
      return Effect{text};
    }};

// ---- vLLM

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
      return Effect{message("positions are divided by ", shown(reading.position_divisor)), false};
    }};

const RuleEntry kVllmDynamic = {
    {"vllm-dynamic-at-load",
     "the base is fixed when the model is loaded, for the length it is served with (max * factor "
     "unless told otherwise), also for sequences within the original length",
     "vLLM #3488, #41236, #52665", Evidence::reported, Touches::frequencies},
    [](EngineReading& reading, const Circumstances& given) {
      const auto* dynamic = std::get_if<DynamicScaling>(&reading.rope.scaling);
      if (dynamic == nullptr || dynamic->alpha) return Effect{};
      const auto original = static_cast<double>(dynamic->original_length);
      const double served = given.state.max_length ? static_cast<double>(*given.state.max_length)
                                                   : original * dynamic->factor;
      const double growth = dynamic->factor * served / original - (dynamic->factor - 1.0);
      if (!(growth > 0.0)) {
        reading.refusal = message("served with ", served, " positions, below the original ",
                                  original, ", its base would be the power of ", shown(growth),
                                  ": the table becomes NaN (vLLM #52665)");
        return Effect{reading.refusal};
      }
      // alpha is that growth, at every length.
      reading.rope.scaling = DynamicScaling{dynamic->factor, growth, dynamic->original_length};
      return Effect{message("base grows by ", shown(growth), "^(dim/(dim-2)) at every length")};
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
  return {message("the amplitude becomes 0.1 ln(", shown(yarn.factor),
                  ") + 1 = ", shown(encodings::yarn_amplitude(yarn.factor, 1.0)))};
}

const RuleEntry kVllmYarnAmplitude = {
    {"vllm-yarn-amplitude",
     "YaRN's attention_factor, mscale and mscale_all_dim are not passed on: the amplitude is "
     "always 0.1 ln(factor) + 1",
     "vLLM #48351, #48621", Evidence::reported, Touches::amplitude},
    [](EngineReading& reading, const Circumstances& given) {
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || has_latent_attention(given.config.meaning)) return Effect{};
      return amplitude_from_factor(*yarn);
    }};

const RuleEntry kVllmMropeRange = {
    {"vllm-mrope-yarn-range",
     "M-RoPE makes room for 4 times the original length before YaRN computes its correction range "
     "from it: the range moves and frequencies are up to 2.2 times off",
     "", Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances&) {
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || !std::holds_alternative<MropeAxes>(reading.rope.axes)) return Effect{};
      yarn->original_length *= 4;
      return Effect{message("the correction range is that of ", yarn->original_length,
                            " positions, not ", yarn->original_length / 4)};
    }};

const RuleEntry kVllmMropeAmplitude = {
    {"vllm-mrope-yarn-amplitude",
     "YaRN under M-RoPE takes neither attention_factor nor the mscale pair", "vLLM #48351",
     Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances&) {
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || !std::holds_alternative<MropeAxes>(reading.rope.axes)) return Effect{};
      return amplitude_from_factor(*yarn);
    }};

const RuleEntry kVllmDeepseekYarn = {
    {"vllm-deepseek-yarn",
     "DeepSeek's own YaRN takes mscale and mscale_all_dim, neither attention_factor nor truncate",
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
      return same ? Effect{} : Effect{message("the amplitude becomes ", shown(amplitude))};
    }};

// The list is chosen as if the sequence were as long as the engine was started for.
[[nodiscard]] Effect list_by_started_length(EngineReading& reading, const Circumstances& given) {
  const auto* longrope = std::get_if<LongRopeScaling>(&reading.rope.scaling);
  if (longrope == nullptr) return {};
  const std::int64_t length = started_for(given);
  reading.length = length;
  const bool is_long = length > longrope->original_length;
  const bool meant_long = given.state.context > longrope->original_length;
  if (is_long == meant_long) return {};
  return {message("started for ", length, " positions, so the ", is_long ? "long" : "short",
                  " list turns a sequence of ", given.state.context)};
}

// short_mscale and long_mscale, one amplitude per list.
enum class ListAmplitudes : std::uint8_t { read, dropped };

// The amplitude follows max / original; what the config says about it is not read.
[[nodiscard]] Effect longrope_amplitude_from_lengths(EngineReading& reading,
                                                     const Circumstances& given,
                                                     ListAmplitudes per_list) {
  auto* longrope = std::get_if<LongRopeScaling>(&reading.rope.scaling);
  if (longrope == nullptr || !given.config.meaning.max_position) return {};
  const double before = encodings::resolve_frequencies(reading.rope, reading.length).amplitude();
  longrope->attention_factor.reset();
  if (per_list == ListAmplitudes::dropped) {
    longrope->short_mscale.reset();
    longrope->long_mscale.reset();
  }
  longrope->factor = static_cast<double>(*given.config.meaning.max_position) /
                     static_cast<double>(longrope->original_length);
  const double after = encodings::resolve_frequencies(reading.rope, reading.length).amplitude();
  if (before == after) return {};
  return {message("the amplitude becomes ", shown(after), " instead of ", shown(before))};
}

const RuleEntry kVllmLongRopeList = {
    {"vllm-longrope-by-max-length",
     "the list is chosen once by the length that the server was started for, so short sequences "
     "get the long list too",
     "", Evidence::read, Touches::frequencies},
    list_by_started_length};

const RuleEntry kVllmLongRopeAmplitude = {
    {"vllm-longrope-amplitude",
     "LongRoPE's factor and attention_factor are not read: the amplitude follows max / original",
     "", Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances& given) {
      return longrope_amplitude_from_lengths(reading, given, ListAmplitudes::read);
    }};

const RuleEntry kVllmTypes = {
    {"vllm-types", "there is no type ntk_by_parts and no xPos: loading fails", "", Evidence::read,
     Touches::everything},
    [](EngineReading& reading, const Circumstances&) {
      const std::string_view type = encodings::name_of(reading.rope.scaling);
      if (type == "ntk_by_parts") {
        reading.refusal = message("it has no rope_type \"", type, "\"");
      } else if (reading.rope.xpos) {
        reading.refusal = "it has no xPos";
      }
      return Effect{reading.refusal};
    }};

// ---- llama.cpp

const RuleEntry kLlamaBaseOnly = {
    {"llamacpp-base-only",
     "there is no dynamic or NTK scaling: only the base can be set, and the config's own is what a "
     "converted file holds (alpha is folded into it)",
     "", Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances&) {
      const std::string_view type = encodings::name_of(reading.rope.scaling);
      const auto* dynamic = std::get_if<DynamicScaling>(&reading.rope.scaling);
      if (dynamic != nullptr && dynamic->alpha) return Effect{};
      if (dynamic == nullptr && type != "ntk" && type != "ntk_by_parts") return Effect{};
      reading.rope.scaling = DefaultScaling{};
      return Effect{message("type ", type, " leaves the frequencies unscaled")};
    }};

const RuleEntry kLlamaYarnAttentionFactor = {
    {"llamacpp-yarn-attention-factor",
     "a stored attention_factor is overwritten by the amplitude that follows from the factor", "",
     Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances&) {
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || !yarn->attention_factor) return Effect{};
      yarn->attention_factor.reset();
      const double after = encodings::resolve_frequencies(reading.rope).amplitude();
      return Effect{message("the amplitude becomes ", shown(after))};
    }};

const RuleEntry kLlamaYarnMscale = {
    {"llamacpp-yarn-mscale",
     "of the mscale pair only mscale_all_dim is stored: mscale counts as 1, or as the same for "
     "DeepSeek",
     "llama.cpp #17945", Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances& given) {
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || yarn->mscale_all_dim == 0.0 || yarn->mscale == 0.0) return Effect{};
      const double mscale = has_latent_attention(given.config.meaning) ? yarn->mscale_all_dim : 1.0;
      if (mscale == yarn->mscale) return Effect{};
      yarn->mscale = mscale;
      const double after = encodings::resolve_frequencies(reading.rope).amplitude();
      return Effect{message("the amplitude becomes ", shown(after))};
    }};

const RuleEntry kLlamaYarnTruncate = {
    {"llamacpp-yarn-truncate",
     "YaRN's correction range is always rounded to whole pairs; truncate: false is not read", "",
     Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances&) {
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || yarn->truncate) return Effect{};
      yarn->truncate = true;
      return Effect{"truncate: false is not seen"};
    }};

const RuleEntry kLlamaLongRopeList = {
    {"llamacpp-longrope-by-context-size",
     "the list is chosen by the size of the context that was allocated, not by the sequence",
     "llama.cpp #24823, #24875", Evidence::reported, Touches::frequencies},
    list_by_started_length};

const RuleEntry kLlamaLongRopeAmplitude = {
    {"llamacpp-longrope-amplitude",
     "conversion computes LongRoPE's amplitude from max / original; factor, attention_factor and "
     "the mscales are not read",
     "", Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances& given) {
      return longrope_amplitude_from_lengths(reading, given, ListAmplitudes::dropped);
    }};

const RuleEntry kLlamaShift = {
    {"llamacpp-k-shift-amplitude",
     "shifting the cache turns the stored keys with the amplitude in it, so they grow by it at "
     "every shift",
     "llama.cpp #4097", Evidence::read, Touches::cached_keys},
    [](EngineReading& reading, const Circumstances& given) {
      const double amplitude =
          encodings::resolve_frequencies(reading.rope, reading.length).amplitude();
      if (amplitude == 1.0 || std::holds_alternative<MropeAxes>(reading.rope.axes)) return Effect{};
      reading.key_gain_per_shift = amplitude;
      return Effect{message("stored keys grow by ", shown(amplitude), " at every shift"),
                    given.state.shifts > 0};
    }};

const RuleEntry kLlamaMropeShift = {
    {"llamacpp-no-mrope-shift", "the cache cannot be shifted under M-RoPE",
     "llama.cpp #13865, #19928", Evidence::reported, Touches::cached_keys},
    [](EngineReading& reading, const Circumstances&) {
      if (!std::holds_alternative<MropeAxes>(reading.rope.axes)) return Effect{};
      return Effect{"a full cache must be recomputed", false};
    }};

const RuleEntry kLlamaRecurrence = {
    {"llamacpp-repeated-product",
     "angles come from one float32 product after the other along the pairs, so rounding adds up",
     "", Evidence::read, Touches::rounding},
    [](EngineReading& reading, const Circumstances&) {
      reading.path = FloatPath::recurrence;
      return Effect{};
    }};

const RuleEntry kLlamaXpos = {
    {"llamacpp-no-xpos", "there is no xPos", "", Evidence::read, Touches::everything},
    [](EngineReading& reading, const Circumstances&) {
      if (reading.rope.xpos) reading.refusal = "it has no xPos";
      return Effect{reading.refusal};
    }};

// ---- MLX

const RuleEntry kMlxLongRope = {
    {"mlx-longrope-always-long", "the long list turns sequences of every length", "",
     Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances& given) {
      const auto* longrope = std::get_if<LongRopeScaling>(&reading.rope.scaling);
      if (longrope == nullptr) return Effect{};
      reading.length = longrope->original_length + 1;
      if (given.state.context > longrope->original_length) return Effect{};
      return Effect{message("the long list turns a sequence of ", given.state.context)};
    }};

const RuleEntry kMlxVlmGemma = {
    {"mlxvlm-gemma3-global-scaling",
     "Gemma 3's rope_scaling is declared and never passed on: the global layers turn unscaled",
     "mlx-vlm #1709", Evidence::reported, Touches::frequencies},
    [](EngineReading& reading, const Circumstances& given) {
      const auto* linear = std::get_if<LinearScaling>(&reading.rope.scaling);
      if (linear == nullptr || !given.config.meaning.model_type.starts_with("gemma3"))
        return Effect{};
      const double factor = linear->factor;
      reading.rope.scaling = DefaultScaling{};
      return Effect{message("the factor ", shown(factor), " is dropped")};
    }};

}  // namespace

const std::vector<DialectEntry>& dialect_entries() {
  static const std::vector<DialectEntry> entries = {
      {"hf",
       "Hugging Face transformers",
       "5, mid-2026 sources",
       {&kHfDynamicBySequence, &kHfLongRopeBySequence, &kHfNestedTruncate, &kHfTypes}},
      {"hf-4",
       "Hugging Face transformers",
       "4, and readers that know rope_theta and rope_scaling only",
       {&kHf4LegacyKeys, &kHfDynamicBySequence, &kHfLongRopeBySequence, &kHfTypes}},
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
      {"llama.cpp",
       "llama.cpp (ggml)",
       "mid-2026 sources",
       {&kLlamaXpos, &kLlamaRecurrence, &kLlamaBaseOnly, &kLlamaYarnAttentionFactor,
        &kLlamaYarnMscale, &kLlamaYarnTruncate, &kLlamaLongRopeList, &kLlamaLongRopeAmplitude,
        &kLlamaShift, &kLlamaMropeShift}},
      {"mlx-lm", "mlx-lm", "mid-2026 sources", {&kMlxLongRope}},
      {"mlx-vlm", "mlx-vlm", "before #1709", {&kMlxVlmGemma}},
  };
  return entries;
}

}  // namespace phasor::porting
