#include "config/hf/unrotated_model.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/hf/layer_plan.hpp"
#include "config/hf/position_encodings.hpp"

namespace phasor::config {
namespace {

// Rotation that a model is not known to have must not be ignored.
void refuse_rotation(const ObjectReader& top, const Family& row) {
  // Kimi Linear has the keys of its sister models and says that it does not use them.
  const bool unused = top.flag("mla_use_nope").value_or(false);
  for (const std::string_view key : {"rope_theta", "rope_parameters", "rope_scaling", "rotary_dim",
                                     "position_embedding_type", "position_embeddings_type"}) {
    const Json& value = top.value(key);
    const bool says_so = value.is_string()
                             ? value.get<std::string>().find("rot") != std::string::npos
                             : !value.is_null();
    if (says_so && !unused) {
      top.refuse_as(ErrorCode::unsupported, key,
                    message("model_type ", row.model_type, " is known with ", row.other_positions,
                            ", not with rotation, got ", shown(value)));
    }
  }
  if (unused) {
    for (const std::string_view key : {"rope_theta", "rope_parameters", "rope_scaling"})
      top.mark_understood(key);
  }
}

[[nodiscard]] bool covers(PositionSide of_facts, PositionSide side) {
  return of_facts == side || of_facts == PositionSide::both || of_facts == PositionSide::all;
}

[[nodiscard]] std::vector<std::int64_t> first_layers(std::int64_t count) {
  std::vector<std::int64_t> layers(static_cast<std::size_t>(std::min(count, kMaxLayers)));
  std::iota(layers.begin(), layers.end(), std::int64_t{0});
  return layers;
}

class UnrotatedReader {
 public:
  UnrotatedReader(const ObjectReader& top, const Family& row)
      : top_(top), row_(row), facts_(position_facts(row.model_type)) {}

  [[nodiscard]] ModelConfig read() {
    config_.model_type = row_.model_type;
    config_.other_positions = row_.other_positions;
    read_sizes();
    const auto has_side = [&](PositionSide side) {
      return std::any_of(facts_.begin(), facts_.end(), [&](const PositionFacts& facts) {
        return facts.side == side || facts.side == PositionSide::both;
      });
    };
    const bool sides = has_side(PositionSide::encoder) || has_side(PositionSide::decoder);
    if (sides) {
      if (has_side(PositionSide::encoder)) add_side(PositionSide::encoder, "encoder");
      if (has_side(PositionSide::decoder) && top_.flag("is_encoder_decoder").value_or(true))
        add_side(PositionSide::decoder, "decoder");
    } else {
      add_by_type();
    }
    read_windows();
    name_positions();
    config_.unread_keys = top_.keys_not_understood();
    return std::move(config_);
  }

 private:
  void read_sizes() {
    const PositionSide side =
        top_.has("encoder_attention_heads") ? PositionSide::encoder : PositionSide::all;
    if (const std::optional<FoundInteger> heads = find_heads(top_, side)) {
      config_.heads = heads->value;
      const auto own = find_integer(top_, {"num_key_value_heads"});
      config_.key_heads = own ? own->value : heads->value;
    }
    // Some write 0 for a width that follows from others.
    const bool stated = !top_.value("head_dim").is_number() || top_.integer("head_dim") != 0;
    const std::optional<FoundInteger> head_dim =
        stated ? find_integer(top_, {"head_dim", "d_kv", "d_head", "attention_head_size"})
               : std::nullopt;
    const std::optional<FoundInteger> width = find_width(top_);
    if (head_dim) {
      config_.head_dim = head_dim->value;
    } else if (width && config_.heads && width->value % *config_.heads == 0) {
      config_.head_dim = width->value / *config_.heads;
    }
    for (const PositionFacts& facts : facts_) {
      const bool counts_positions = facts.length_key.find("positions") != std::string_view::npos ||
                                    facts.length_key.find("seq_len") != std::string_view::npos ||
                                    facts.length_key == "max_position_embeddings";
      if (config_.max_position || !counts_positions) continue;
      if (const auto length = find_integer(top_, {facts.length_key})) {
        config_.max_position = length->value;
        config_.max_position_key = length->key;
      }
    }
    // Lengths that bound no table: those of training.
    if (!config_.max_position) {
      if (const auto length = find_integer(
              top_, {"max_position_embeddings", "n_positions", "seq_length", "model_max_length"})) {
        config_.max_position = length->value;
        config_.max_position_key = length->key;
      }
    }
  }

  [[nodiscard]] LayerGroup group_of_side(PositionSide side, std::string_view layer_type) {
    LayerGroup group;
    group.layer_type = layer_type;
    group.sources = {
        {"encoding", message("model_type ", row_.model_type, ": ", row_.other_positions)}};
    for (const PositionFacts& facts : facts_) {
      if (!covers(facts.side, side)) continue;
      std::optional<PositionEncoding> made =
          read_position_encoding(top_, row_.model_type, facts, side);
      if (!made) continue;
      const double scale = position_softmax_scale(*made, config_.head_dim);
      if (scale != 0.0 && group.softmax_scale == 0.0) {
        group.softmax_scale = scale;
        group.sources.push_back({"softmax_scale", message("model_type ", row_.model_type)});
      }
      group.positions.push_back(*std::move(made));
    }
    return group;
  }

  void add_side(PositionSide side, std::string_view name) {
    LayerGroup group = group_of_side(side, name);
    if (const std::optional<FoundInteger> count = find_layers(top_, side))
      group.layers = first_layers(count->value);
    config_.groups.push_back(std::move(group));
  }

  // Most models have one group; hybrids have one for each type of layer.
  void add_by_type() {
    const LayerPlan plan = layer_plan();
    const std::set<std::string> types(plan.types.begin(), plan.types.end());
    if (types.size() < 2) {
      LayerGroup group =
          group_of_side(PositionSide::all, types.empty() ? "" : plain(*types.begin()));
      if (!plan.types.empty()) {
        group.layers = first_layers(static_cast<std::int64_t>(plan.types.size()));
      } else if (const auto count = find_layers(top_, PositionSide::all)) {
        group.layers = first_layers(count->value);
      }
      config_.groups.push_back(std::move(group));
      return;
    }
    std::set<std::string> done;
    for (const std::string& type : plan.types) {
      if (!done.insert(type).second) continue;
      LayerGroup group = group_of_side(PositionSide::all, type);
      group.layers = plan.layers_of(type);
      if (group.positions.empty()) {
        group.sources = {
            {"encoding",
             never_rotates(type)
                 ? message("layer type ", type, ": no attention over positions")
                 : message("model_type ", row_.model_type, ": attention without positions")}};
      }
      config_.groups.push_back(std::move(group));
    }
  }
  [[nodiscard]] LayerPlan layer_plan() const {
    // Models of images, and Funnel, list the layers of each stage; some count the layers of each of
    // their parts.
    for (const std::string_view key : {"depths", "block_sizes"}) {
      if (!top_.value(key).is_array()) continue;
      const std::vector<std::int64_t> depths =
          top_.integers(key).value_or(std::vector<std::int64_t>());
      std::int64_t count = 0;
      for (const std::int64_t depth : depths) {
        if (depth < 0 || depth > kMaxLayers || count + depth > kMaxLayers)
          top_.refuse(key, message("must sum up to at most ", kMaxLayers, " layers"));
        count += depth;
      }
      LayerPlan plan;
      plan.types.assign(static_cast<std::size_t>(count), std::string(kFullAttention));
      return plan;
    }
    for (const std::string_view key : {"num_hidden_layers", "n_layer", "num_layers", "n_layers"}) {
      if (!top_.value(key).is_null() && !top_.value(key).is_number()) return {};
    }
    return read_layer_plan(top_, nullptr);
  }
  // "full_attention" is what the plan says when nothing names a type.
  [[nodiscard]] static std::string_view plain(std::string_view type) {
    return type == kFullAttention ? std::string_view() : type;
  }

  // Longformer's and GPT-Neo's windows.
  void read_windows() {
    const Json& listed = top_.value("attention_window");
    if (!listed.is_null()) {
      std::vector<std::int64_t> widths;
      if (listed.is_array()) {
        widths = *top_.integers("attention_window");
      } else if (const auto width = find_integer(top_, {"attention_window"})) {
        widths = {width->value};
      }
      const bool alike = !widths.empty() && std::all_of(widths.begin(), widths.end(), [&](auto w) {
        return w == widths.front();
      });
      for (LayerGroup& group : config_.groups) {
        if (!alike || group.layer_type == "decoder" || widths.front() < 1) continue;
        // Half of the width on each side, and the token itself.
        group.window = widths.front() / 2 * 2 + 1;
        group.sources.push_back({"window", top_.path_of("attention_window")});
      }
    }
    for (LayerGroup& group : config_.groups) {
      if (group.layer_type != "local" || row_.model_type != "gpt_neo") continue;
      const auto width = find_integer(top_, {"window_size"});
      group.window = width ? width->value : 256;
      group.sources.push_back({"window", width ? width->key : "default of model_type gpt_neo"});
    }
  }

  // A key may choose other positions than those that the family usually has.
  void name_positions() {
    if (config_.groups.empty() || config_.groups.front().positions.empty()) return;
    const PositionEncoding& first = config_.groups.front().positions.front();
    if (first.name == "alibi") config_.other_positions = kAlibiPositions;
    if (first.name == "bert_relative") config_.other_positions = kRelativePositions;
    if (first.name == "learned_absolute" && config_.groups.front().positions.size() == 1)
      config_.other_positions = kAbsolutePositions;
    for (LayerGroup& group : config_.groups) {
      group.sources.front() = {
          "encoding", message("model_type ", row_.model_type, ": ", config_.other_positions)};
    }
  }

  const ObjectReader& top_;
  const Family& row_;
  std::vector<PositionFacts> facts_;
  ModelConfig config_;
};

}  // namespace

ModelConfig read_unrotated_model(const ObjectReader& top, const Family& row) {
  refuse_rotation(top, row);
  return UnrotatedReader(top, row).read();
}

}  // namespace phasor::config
