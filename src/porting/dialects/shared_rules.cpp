#include "porting/dialects/shared_rules.hpp"

#include <algorithm>
#include <utility>

namespace phasor::porting {
namespace {

using encodings::LongRopeScaling;

// The length that an engine was started with.
[[nodiscard]] std::int64_t started_for(const Circumstances& given) {
  if (given.state.max_length) return *given.state.max_length;
  return given.config.meaning.max_position.value_or(given.state.context);
}

}  // namespace

bool has_latent_attention(const config::ModelConfig& model) {
  return model.model_type.starts_with("deepseek") || model.model_type.starts_with("kimi");
}

Effect fail_to_load(EngineReading& reading, std::initializer_list<std::string_view> types) {
  const std::string_view type = encodings::name_of(reading.rope.scaling);
  if (std::find(types.begin(), types.end(), type) != types.end()) {
    reading.refusal = message("rope_type \"", type, "\" is not supported");
  } else if (reading.rope.xpos) {
    reading.refusal = "xPos is not supported";
  }
  return {reading.refusal};
}

Effect list_by_started_length(EngineReading& reading, const Circumstances& given) {
  const auto* longrope = std::get_if<LongRopeScaling>(&reading.rope.scaling);
  if (longrope == nullptr) return {};
  const std::int64_t length = started_for(given);
  reading.length = length;
  const bool is_long = length > longrope->original_length;
  const bool meant_long = given.state.context > longrope->original_length;
  if (is_long == meant_long) return {};
  return {message("started with ", length, " positions, so the ", is_long ? "long" : "short",
                  " factors apply to a sequence of ", given.state.context)};
}

Effect extrapolation_factor_ignored(EngineReading& reading, const Circumstances& /*given*/) {
  auto* yarn = std::get_if<encodings::YarnScaling>(&reading.rope.scaling);
  if (yarn == nullptr || yarn->extrapolation_factor == 1.0) return {};
  const double given = std::exchange(yarn->extrapolation_factor, 1.0);
  return {message("extrapolation_factor ", digits(given), " is ignored")};
}

Effect longrope_amplitude_from_lengths(EngineReading& reading, const Circumstances& given,
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
  return {message("the amplitude becomes ", digits(after), " instead of ", digits(before))};
}

}  // namespace phasor::porting
