#include "porting/dialects/shared_rules.hpp"

#include <algorithm>
#include <cmath>
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

Effect amplitude_becomes(double before, double after, const std::string& how) {
  if (std::abs(before - after) <= kSameRule * std::max(std::abs(before), std::abs(after)))
    return {};
  return {message("the amplitude becomes ", how, how.empty() ? "" : " = ", digits(after),
                  " instead of ", digits(before))};
}

Effect yarn_amplitude_from_factor(EngineReading& reading) {
  auto* yarn = std::get_if<encodings::YarnScaling>(&reading.rope.scaling);
  if (yarn == nullptr) return {};
  const double before = encodings::resolve_frequencies(reading.rope).amplitude();
  yarn->attention_factor.reset();
  yarn->mscale = yarn->mscale_all_dim = 0.0;
  const double after = encodings::resolve_frequencies(reading.rope).amplitude();
  return amplitude_becomes(before, after, message("0.1 ln(", digits(yarn->factor), ") + 1"));
}

Effect yarn_attention_factor_ignored(EngineReading& reading) {
  auto* yarn = std::get_if<encodings::YarnScaling>(&reading.rope.scaling);
  if (yarn == nullptr || !yarn->attention_factor) return {};
  const double before = encodings::resolve_frequencies(reading.rope).amplitude();
  yarn->attention_factor.reset();
  return amplitude_becomes(before, encodings::resolve_frequencies(reading.rope).amplitude());
}

Effect yarn_truncate_ignored(EngineReading& reading) {
  auto* yarn = std::get_if<encodings::YarnScaling>(&reading.rope.scaling);
  if (yarn == nullptr || yarn->truncate) return {};
  yarn->truncate = true;
  return {"truncate: false is ignored"};
}

Effect deepseek_yarn(EngineReading& reading, const Circumstances& given) {
  auto* yarn = std::get_if<encodings::YarnScaling>(&reading.rope.scaling);
  if (yarn == nullptr || !has_latent_attention(given.config.meaning)) return {};
  const double mscale = yarn->mscale == 0.0 ? 1.0 : yarn->mscale;
  const double amplitude = encodings::yarn_amplitude(yarn->factor, mscale) /
                           encodings::yarn_amplitude(yarn->factor, yarn->mscale_all_dim);
  const double meant = encodings::resolve_frequencies(reading.rope).amplitude();
  const bool truncated = yarn->truncate;
  yarn->attention_factor = amplitude;
  yarn->truncate = true;
  Effect effect = amplitude_becomes(meant, amplitude);
  if (effect.text.empty() && !truncated) effect.text = "truncate false is ignored";
  return effect;
}

Effect dynamic_at_load(EngineReading& reading, std::optional<std::int64_t> served,
                       std::string_view report) {
  const auto* dynamic = std::get_if<encodings::DynamicScaling>(&reading.rope.scaling);
  if (dynamic == nullptr || dynamic->alpha) return {};
  const auto original = static_cast<double>(dynamic->original_length);
  const double length = served ? static_cast<double>(*served) : original * dynamic->factor;
  const double growth = dynamic->factor * length / original - (dynamic->factor - 1.0);
  if (!(growth > 0.0)) {
    reading.refusal =
        message("served with ", length, " positions, fewer than the original ", original,
                ", the base is a power of ", digits(growth), " and the table is NaN",
                report.empty() ? "" : " (", report, report.empty() ? "" : ")");
    return {reading.refusal};
  }
  // alpha is the same growth at every length.
  reading.rope.scaling =
      encodings::DynamicScaling{dynamic->factor, growth, dynamic->original_length};
  return {message("the base is multiplied by ", digits(growth), "^(dim/(dim-2)) at every length")};
}

Effect linear_by_positions(EngineReading& reading, const Circumstances& /*given*/) {
  const auto* linear = std::get_if<encodings::LinearScaling>(&reading.rope.scaling);
  if (linear == nullptr) return {};
  reading.position_divisor = linear->factor;
  reading.path = FloatPath::divided_positions;
  reading.rope.scaling = encodings::DefaultScaling{};
  return {message("positions are divided by ", digits(reading.position_divisor)), false};
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
