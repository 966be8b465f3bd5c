#include "config/hf/parts.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "config/hf/model_keys.hpp"

namespace phasor::config {
namespace {

// The part that generates text, under the names that configs use. It is read even if the outer config has
// a model_type that is known.
constexpr auto kTextParts = std::to_array<std::string_view>({"text_config", "llm_config"});
// Parts of configs that describe no model themselves, in the order of preference.
constexpr auto kOtherParts = std::to_array<std::string_view>(
    {"language_config", "thinker_config", "vlm_config", "decoder", "decoder_config", "generator",
     "detector_config", "dit_config", "encoder", "encoder_config", "model_config",
     "semantic_config", "vision_config", "backbone_config", "audio_config", "asr_config",
     "esmc_config", "image_model_config", "acoustic_model_config"});

[[nodiscard]] bool describes_a_model(const ObjectReader& top) {
  const Family* row = find_family(top.text("model_type").value_or(""));
  if (row != nullptr && row->rotary) return true;
  const auto has_one = [&](std::initializer_list<std::string_view> keys) {
    return std::any_of(keys.begin(), keys.end(),
                       [&](std::string_view key) { return top.has(key); });
  };
  return has_one({"head_dim", "num_attention_heads", "n_head", "num_heads", "qk_rope_head_dim"});
}

// Outer keys about positions. If the part has such a key itself, its own counts, as in transformers, and
// the outer one is noted. If it has none, the outer key would be lost. Configs around other parts than text
// have lengths and positions of their own.
[[nodiscard]] std::vector<KeyNote> outer_keys(const ObjectReader& top, const Json& part,
                                              std::string_view part_key) {
  std::vector<KeyNote> notes;
  const bool text = std::find(kTextParts.begin(), kTextParts.end(), part_key) != kTextParts.end();
  for (const std::string& key : top.keys()) {
    if (!is_about_positions(key) || top.value(key).is_null()) continue;
    if (!text && key.find("position") != std::string::npos) continue;
    if (!part.contains(key)) {
      top.refuse(key,
                 message("must be equal to ", part_key, ".", key, ", got ", shown(top.value(key))));
    }
    if (part[key] != top.value(key)) {
      notes.push_back(
          {top.path_of(key), message("not read: ", part_key, ".", key, " is another value"), true});
    }
  }
  return notes;
}

}  // namespace

std::optional<std::string> part_to_read(const ObjectReader& top) {
  // A model that is answered or refused by its own name.
  if (const Family* row = find_family(top.text("model_type").value_or(""));
      row != nullptr && !row->rotary &&
      !(row->other_positions.empty() && row->unsupported.empty())) {
    return std::nullopt;
  }
  for (const std::string_view key : kTextParts) {
    if (top.object(key)) return std::string(key);
  }
  if (describes_a_model(top)) return std::nullopt;
  for (const std::string_view key : kOtherParts) {
    const Json& part = top.value(key);
    if (part.is_object() && part.contains("model_type")) return std::string(key);
  }
  return std::nullopt;
}

ModelConfig read_part(const ObjectReader& top, const std::string& key,
                      ModelConfig (*read)(const ObjectReader&)) {
  const Json& part = top.value(key);
  const std::vector<KeyNote> notes = outer_keys(top, part, key);
  Json inner = part;
  if (!inner.contains("model_type") && top.has("model_type"))
    inner["model_type"] = top.value("model_type");
  const std::string path = top.path_of(key);
  ModelConfig config = read(ObjectReader(inner, path));
  config.notes.insert(config.notes.end(), notes.begin(), notes.end());
  if (config.part.empty()) {
    config.part = path;
    config.notes.push_back({path, "only this part is read, not the other parts of the model"});
  }
  return config;
}

}  // namespace phasor::config
