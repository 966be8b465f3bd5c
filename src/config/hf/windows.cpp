#include "config/hf/windows.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace phasor::config {
namespace {

constexpr std::string_view kWidth = "sliding_window";
constexpr std::string_view kLocal = "local_attention";      // ModernBERT's name
constexpr std::string_view kOwn = "attention_window_size";  // RecurrentGemma's name
constexpr std::string_view kUse = "use_sliding_window";
constexpr std::string_view kFirst = "max_window_layers";

constexpr std::int64_t kDefaultChunk = 8192;  // of Llama 4's config class

struct Width {
  std::int64_t keys = 0;
  std::string key;
};

[[nodiscard]] std::optional<Width> read_width(const ObjectReader& top) {
  for (const std::string_view key : {kWidth, kLocal, kOwn}) {
    // Older configs write false for no window.
    if (top.value(key).is_boolean() && !*top.flag(key)) continue;
    if (const std::optional<std::int64_t> width = top.integer(key)) {
      if (*width == 0) continue;
      if (*width < 0) top.refuse(key, message("must be a positive integer, got ", *width));
      return Width{*width, top.path_of(key)};
    }
  }
  return std::nullopt;
}

// Decides for one layer of a group; nullopt for a group without a list of layers.
class WindowRuleReader {
 public:
  WindowRuleReader(const ObjectReader& top, const RotaryFacts* family, const LayerPlan& plan)
      : rule_(family == nullptr ? WindowRule::by_layer_type : family->window),
        typed_(plan.uses(kSlidingAttention) || top.has("layer_types")),
        used_(top.flag(kUse)),
        first_(top.integer(kFirst).value_or(0)),
        plan_(plan) {}

  [[nodiscard]] bool slides(const LayerGroup& group, std::optional<std::int64_t> layer) const {
    if (switched_off()) return false;
    if (group.layer_type == kSlidingAttention) return true;
    if (never_rotates(group.layer_type)) return false;
    if (typed_) {
      return layer && plan_.types[static_cast<std::size_t>(*layer)] == kSlidingAttention;
    }
    switch (rule_) {
      case WindowRule::by_layer_type:
        return false;
      case WindowRule::every_layer:
        return true;
      case WindowRule::above_layer:
        return layer.value_or(0) >= first_;
      case WindowRule::alternating:
        return layer.value_or(0) % 2 == 0;
    }
    return false;
  }

  // Qwen2 configs have a width that use_sliding_window switches off; a missing flag means off.
  [[nodiscard]] bool switched_off() const noexcept {
    return used_ ? !*used_ : rule_ == WindowRule::above_layer && !typed_;
  }

 private:
  WindowRule rule_;
  bool typed_;
  std::optional<bool> used_;
  std::int64_t first_;
  const LayerPlan& plan_;
};

}  // namespace

void apply_windows(const ObjectReader& top, const RotaryFacts* family, const LayerPlan& plan,
                   ModelConfig& config) {
  const std::optional<Width> width = read_width(top);
  const WindowRuleReader rule(top, family, plan);
  if (!width) return;
  const auto give_window = [&](LayerGroup& group) {
    group.window = width->keys;
    group.sources.push_back({"window", width->key});
  };
  std::vector<LayerGroup> groups;
  bool used = false;
  for (LayerGroup& group : config.groups) {
    if (group.layers.empty()) {
      if (rule.slides(group, std::nullopt)) {
        give_window(group);
        used = true;
      }
      groups.push_back(std::move(group));
      continue;
    }
    LayerGroup full = group, sliding = std::move(group);
    std::erase_if(full.layers, [&](std::int64_t layer) { return rule.slides(full, layer); });
    std::erase_if(sliding.layers, [&](std::int64_t layer) { return !rule.slides(sliding, layer); });
    const bool both = !full.layers.empty() && !sliding.layers.empty();
    if (both && full.layer_type.empty()) {
      full.layer_type = kFullAttention;
      sliding.layer_type = kSlidingAttention;
    }
    if (!sliding.layers.empty()) {
      give_window(sliding);
      used = true;
    }
    if (!full.layers.empty()) groups.push_back(std::move(full));
    if (!sliding.layers.empty()) groups.push_back(std::move(sliding));
  }
  config.groups = std::move(groups);
  if (used) return;
  config.notes.push_back(
      {width->key, rule.switched_off()
                       ? message("not used: ", kUse, " is not true, so every layer sees all keys")
                       : "not used: no layer is a sliding layer"});
}

void apply_chunks(const ObjectReader& top, const RotaryFacts* family, ModelConfig& config) {
  constexpr std::string_view kKey = "attention_chunk_size";
  if (family == nullptr || family->quirk != Quirk::temperature) return;
  const std::optional<std::int64_t> given = top.integer(kKey);
  if (given && *given < 1) top.refuse(kKey, message("must be a positive integer, got ", *given));
  // Null means no chunks.
  if (!given && top.has_even_null(kKey)) return;
  for (LayerGroup& group : config.groups) {
    if (!group.rope) continue;
    group.chunk = given.value_or(kDefaultChunk);
    group.sources.push_back({"chunk", given
                                          ? top.path_of(kKey)
                                          : message("default of model_type ", config.model_type)});
  }
}

}  // namespace phasor::config
