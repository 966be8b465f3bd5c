// Reads a config as each engine does.
#include <algorithm>
#include <cmath>
#include <system_error>

#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/json.hpp"
#include "porting/dialects/reading.hpp"
#include "porting/plan/scaling_keys.hpp"
#include "porting/rounding.hpp"

namespace phasor::porting {
namespace {

using io::Json;

[[nodiscard]] ConfigForm form_of(const config::ModelConfig& meaning, const Json& part) {
  if (meaning.model_type.empty() && !part.contains("rope_parameters")) return ConfigForm::plain;
  const auto parameters = part.find("rope_parameters");
  if (parameters == part.end() || !parameters->is_object()) return ConfigForm::legacy;
  const bool nested = std::any_of(parameters->begin(), parameters->end(),
                                  [](const Json& value) { return value.is_object(); });
  return nested ? ConfigForm::nested : ConfigForm::flat;
}

// What two model classes of transformers 4 use when the older keys are missing; measured with 4.57.
void add_class_defaults(Json& part) {
  const auto type = part.find("model_type");
  if (type == part.end() || part.contains("rope_theta") || part.contains("rope_scaling")) return;
  if (*type == "falcon_h1") part["rope_theta"] = 1e5;
  if (*type == "gpt_oss") {
    part["rope_theta"] = 1.5e5;
    part["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 32.0},
                            {"beta_fast", 32.0},   {"beta_slow", 1.0},
                            {"truncate", false},   {"original_max_position_embeddings", 4096}};
  }
}

void read_without_parameters(ReadableConfig& readable, const Json& parsed) {
  Json stripped = parsed;
  text_part(stripped).erase("rope_parameters");
  if (stripped.contains("text_config")) stripped.erase("rope_parameters");
  add_class_defaults(text_part(stripped));
  Result<config::ModelConfig> legacy = config::parse_config(stripped.dump(), "legacy keys");
  if (!legacy && !text_part(stripped).contains("rope_theta")) {
    // Most readers use base 10000 when neither the config nor the model class gives one.
    text_part(stripped)["rope_theta"] = 10000.0;
    Result<config::ModelConfig> fallback = config::parse_config(stripped.dump(), "legacy keys");
    if (fallback) legacy = std::move(fallback);
  }
  if (legacy) {
    readable.legacy = std::move(legacy).value();
  } else {
    readable.legacy_problem = legacy.error().what();
  }
}

void check(const ReadableConfig& config, std::size_t group, const RunState& state) {
  if (group >= config.meaning.groups.size() || !config.meaning.groups[group].rope) {
    refuse(ErrorCode::invalid_argument,
           message("dialects: layer group ", group, " does not exist or has no rotation"));
  }
  if (state.context < 1 || state.context >= kContextLimit) {
    refuse(ErrorCode::invalid_argument,
           message("dialects: context must be at least 1 and below 2^40, got ", state.context));
  }
  if (state.max_length && *state.max_length < 1) {
    refuse(ErrorCode::invalid_argument,
           message("dialects: max_length must be at least 1, got ", *state.max_length));
  }
  if (state.shifts < 0)
    refuse(ErrorCode::invalid_argument,
           message("dialects: shifts must not be negative, got ", state.shifts));
}

[[nodiscard]] const DialectEntry& find_dialect(std::string_view name) {
  std::vector<std::string_view> names;
  for (const DialectEntry& entry : dialect_entries()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  refuse(ErrorCode::invalid_argument,
         message("unknown engine \"", name, "\"; must be ", core::list_text(names)));
}

}  // namespace

std::string_view name_of(Touches touches) noexcept {
  static constexpr core::EnumNames<Touches::rounding> kNames(
      "everything", "frequencies", "amplitude", "cached_keys", "rounding");
  return kNames[touches];
}

std::string_view name_of(Evidence evidence) noexcept {
  return evidence == Evidence::reported ? "reported" : "read";
}

std::span<const Dialect> dialects() {
  static const std::vector<Dialect> list = [] {
    std::vector<Dialect> made;
    for (const DialectEntry& entry : dialect_entries()) {
      Dialect dialect{entry.name, entry.engine, entry.version, {}};
      for (const RuleEntry* rule : entry.rules) dialect.rules.push_back(rule->rule);
      made.push_back(std::move(dialect));
    }
    return made;
  }();
  return list;
}

Result<ReadableConfig> parse_readable_config(std::string_view text, std::string_view name) {
  Result<config::ModelConfig> meaning = config::parse_config(text, name);
  if (!meaning) return meaning.error();
  ReadableConfig readable;
  readable.meaning = std::move(meaning).value();
  readable.text = text;
  Json parsed = io::parse_python_object(text);  // as parse_config() does
  readable.form = form_of(readable.meaning, text_part(parsed));
  if (readable.form == ConfigForm::flat || readable.form == ConfigForm::nested)
    read_without_parameters(readable, parsed);
  return readable;
}

Result<ReadableConfig> read_readable_config(const std::filesystem::path& path) {
  Result<config::ModelConfig> meaning = config::read_config(path);
  if (!meaning) return meaning.error();
  std::error_code ignored;
  const std::filesystem::path file =
      std::filesystem::is_directory(path, ignored) ? io::as_folder(path) / "config.json" : path;
  const Result<std::string> text = io::read_text(file);
  const std::size_t first = text ? text->find_first_not_of(" \t\r\n") : std::string::npos;
  if (first == std::string::npos || (*text)[first] != '{') {
    ReadableConfig readable;
    readable.meaning = std::move(meaning).value();
    return readable;
  }
  Result<ReadableConfig> readable = parse_readable_config(*text, file.string());
  if (!readable) return readable;
  // read_config() also knows the layout of a sidecar.
  ReadableConfig result = std::move(readable).value();
  result.meaning = std::move(meaning).value();
  return result;
}

EngineView view_of(std::string_view dialect, const ReadableConfig& config, std::size_t group,
                   const RunState& state) {
  const DialectEntry& entry = find_dialect(dialect);
  check(config, group, state);
  const config::LayerGroup& layers = config.meaning.groups[group];
  EngineReading reading;
  reading.rope = *layers.rope;
  reading.length = state.context;
  reading.softmax_scale = layers.softmax_scale;
  EngineView view;
  view.dialect = dialect;
  for (const RuleEntry* rule : entry.rules) {
    Effect effect = rule->apply(reading, {config, layers, state});
    if (!effect.text.empty())
      view.rules.push_back({rule->rule, std::move(effect.text), effect.changes});
    if (reading.refusal.empty()) continue;
    view.refusal = reading.refusal;
    return view;
  }
  const core::Frequencies resolved = encodings::resolve_frequencies(reading.rope, reading.length);
  for (const double value : resolved.values()) {
    const double kept = reading.path == FloatPath::narrow ? rounded(value, reading.type) : value;
    view.frequencies.push_back(kept / reading.position_divisor);
  }
  for (const std::size_t pair : reading.still_pairs) view.frequencies[pair] = 0.0;
  view.position_divisor = reading.position_divisor;
  view.amplitude = resolved.amplitude();
  view.softmax_scale = reading.softmax_scale;
  view.key_gain_per_shift = reading.key_gain_per_shift;
  view.key_gain = std::pow(reading.key_gain_per_shift, static_cast<double>(state.shifts));
  view.stale_key_angle = reading.stale_key_angle;
  view.rounding = rounding_of(reading, resolved, state.context - 1);
  return view;
}

}  // namespace phasor::porting
