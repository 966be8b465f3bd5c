// llama.cpp.
#include "porting/dialects/reading.hpp"
#include "porting/dialects/shared_rules.hpp"

namespace phasor::porting {
namespace {

using encodings::DefaultScaling;
using encodings::DynamicScaling;
using encodings::MropeAxes;
using encodings::YarnScaling;

const RuleEntry kLlamaBaseOnly = {
    {"llamacpp-base-only",
     "dynamic and NTK scaling are not supported: a converted file holds only the config's base "
     "(with alpha multiplied into it)",
     "", Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances&) {
      const std::string_view type = encodings::name_of(reading.rope.scaling);
      const auto* dynamic = std::get_if<DynamicScaling>(&reading.rope.scaling);
      if (dynamic != nullptr && dynamic->alpha) return Effect{};
      if (dynamic == nullptr && type != "ntk" && type != "ntk_by_parts") return Effect{};
      reading.rope.scaling = DefaultScaling{};
      return Effect{message("rope type ", type, " is ignored: the frequencies are unscaled")};
    }};

const RuleEntry kLlamaYarnAttentionFactor = {
    {"llamacpp-yarn-attention-factor",
     "attention_factor is ignored: the amplitude is computed from the factor", "", Evidence::read,
     Touches::amplitude},
    [](EngineReading& reading, const Circumstances&) {
      return yarn_attention_factor_ignored(reading);
    }};

const RuleEntry kLlamaYarnMscale = {
    {"llamacpp-yarn-mscale",
     "of mscale and mscale_all_dim only mscale_all_dim is stored: mscale is taken as 1, for "
     "DeepSeek as mscale_all_dim",
     "llama.cpp #17945", Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances& given) {
      auto* yarn = std::get_if<YarnScaling>(&reading.rope.scaling);
      if (yarn == nullptr || yarn->mscale_all_dim == 0.0 || yarn->mscale == 0.0) return Effect{};
      const double mscale = has_latent_attention(given.config.meaning) ? yarn->mscale_all_dim : 1.0;
      if (mscale == yarn->mscale) return Effect{};
      yarn->mscale = mscale;
      const double after = encodings::resolve_frequencies(reading.rope).amplitude();
      return Effect{message("the amplitude becomes ", digits(after))};
    }};

const RuleEntry kLlamaYarnTruncate = {
    {"llamacpp-yarn-truncate",
     "YaRN's correction range is always rounded to whole pairs; truncate: false is ignored", "",
     Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances&) { return yarn_truncate_ignored(reading); }};

const RuleEntry kLlamaYarnExtrapolation = {
    {"llamacpp-yarn-extrapolation-factor",
     "conversion stores YaRN's extrapolation_factor; loading reads it for Grok only", "",
     Evidence::read, Touches::everything},
    extrapolation_factor_ignored};

const RuleEntry kLlamaLongRopeList = {
    {"llamacpp-longrope-by-context-size",
     "short or long factors are chosen by the allocated context size, not by the sequence",
     "llama.cpp #24823, #24875", Evidence::reported, Touches::frequencies},
    list_by_started_length};

const RuleEntry kLlamaLongRopeAmplitude = {
    {"llamacpp-longrope-amplitude",
     "conversion computes LongRoPE's amplitude from max / original; factor, attention_factor, "
     "short_mscale and long_mscale are ignored",
     "", Evidence::read, Touches::amplitude},
    [](EngineReading& reading, const Circumstances& given) {
      return longrope_amplitude_from_lengths(reading, given, ListAmplitudes::dropped);
    }};

const RuleEntry kLlamaShift = {
    {"llamacpp-k-shift-amplitude",
     "a context shift rotates the cached keys with the amplitude included, so every shift "
     "multiplies them by it",
     "llama.cpp #4097", Evidence::read, Touches::cached_keys},
    [](EngineReading& reading, const Circumstances& given) {
      const double amplitude =
          encodings::resolve_frequencies(reading.rope, reading.length).amplitude();
      if (amplitude == 1.0 || std::holds_alternative<MropeAxes>(reading.rope.axes)) return Effect{};
      reading.key_gain_per_shift = amplitude;
      return Effect{message("cached keys are multiplied by ", digits(amplitude), " at every shift"),
                    given.state.shifts > 0};
    }};

const RuleEntry kLlamaMropeShift = {
    {"llamacpp-no-mrope-shift", "the cache cannot be shifted with M-RoPE",
     "llama.cpp #13865, #19928", Evidence::reported, Touches::cached_keys},
    [](EngineReading& reading, const Circumstances&) {
      if (!std::holds_alternative<MropeAxes>(reading.rope.axes)) return Effect{};
      return Effect{"a full cache must be recomputed", false};
    }};

// rope_multi's IMROPE mode and the positions of text in llama-graph.cpp.
const RuleEntry kLlamaFourthRow = {
    {"llamacpp-interleaved-mrope-fourth-row",
     "pairs that the sections of interleaved M-RoPE leave read a fourth position, 0 for text", "",
     Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances&) {
      const auto* mrope = std::get_if<MropeAxes>(&reading.rope.axes);
      if (mrope == nullptr || mrope->order != MropeAxes::Order::interleaved ||
          mrope->sections.size() != 3)
        return Effect{};
      std::string pairs;
      for (std::int64_t i = 0; i < reading.rope.rotary_dim / 2; ++i) {
        if (i < 3 * mrope->sections[static_cast<std::size_t>(i % 3)]) continue;
        reading.still_pairs.push_back(static_cast<std::size_t>(i));
        pairs += message(pairs.empty() ? "" : ", ", i);
      }
      return Effect{pairs.empty() ? "" : message("pairs ", pairs, " of text are not rotated")};
    }};

const RuleEntry kLlamaRecurrence = {{"llamacpp-repeated-product",
                                     "the angle of each pair is a float32 product of the previous "
                                     "one, so rounding errors accumulate",
                                     "", Evidence::read, Touches::rounding},
                                    [](EngineReading& reading, const Circumstances&) {
                                      reading.path = FloatPath::recurrence;
                                      return Effect{};
                                    }};

const RuleEntry kLlamaXpos = {
    {"llamacpp-no-xpos", "xPos is not supported: loading fails", "", Evidence::read,
     Touches::everything},
    [](EngineReading& reading, const Circumstances&) { return fail_to_load(reading, {}); }};

}  // namespace

std::vector<DialectEntry> llama_cpp_dialects() {
  return {
      {"llama.cpp",
       "llama.cpp (ggml)",
       "mid-2026 sources",
       {&kLlamaXpos, &kLlamaRecurrence, &kLlamaBaseOnly, &kLlamaYarnAttentionFactor,
        &kLlamaYarnMscale, &kLlamaYarnTruncate, &kLlamaYarnExtrapolation, &kLlamaLongRopeList,
        &kLlamaLongRopeAmplitude, &kLlamaShift, &kLlamaMropeShift, &kLlamaFourthRow}},
  };
}

}  // namespace phasor::porting
