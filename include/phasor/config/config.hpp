// From a config.json of any family, old form or new, or a plain spec, to each layer's encoding.
// Refuses what it does not understand, by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::config {

// Layers that share an encoding.
struct LayerGroup {
  std::string layer_type;  // "full_attention", ...; empty when the config has one group
  std::optional<encodings::RopeSpec> rope;  // none: these layers do not rotate
  // Indices, ascending; empty when the config does not say how many, or when no layer is of this
  // type.
  std::vector<std::int64_t> layers;
  double softmax_scale = 0.0;  // the factor on q.k; 0 when the config does not tell
};

struct ModelConfig {
  std::string model_type;  // empty for a plain spec
  std::vector<LayerGroup> groups;
  std::optional<std::int64_t> max_position;  // the trained length, as the config gives it
  // The value turns too (RoFormer's rotary_value).
  bool rotates_values = false;
};

// Parses a config.json or a plain spec {"head_dim": 8, "base": 10000, "layout": "interleaved",
// "rotary_dim": 8, "scaling": {...}}. `name` stands at the front of every message.
//
// It is a config.json when it has one of model_type, architectures, hidden_size, n_embd, embed_dim,
// num_attention_heads, text_config, vision_config or rope_parameters, or when it has rope_theta,
// rope_scaling, rotary_emb_base, rotary_pct or qk_rope_head_dim and no key that only a plain spec
// has (base, layout, scaling, mrope, axial, xpos, rotary_offset); else a plain spec. Of a model of
// text and images (text_config), the text part counts. Null stands for absent, except for a layer
// type.
//
// plain spec   head_dim; rotary_dim (head_dim - rotary_offset); rotary_offset (0); base (10000);
//              layout; max_position_embeddings; scaling {type, ...};
//              mrope {sections, order: chunked | interleaved | alternating};
//              axial: concatenated | alternating | per_half_head;
//              xpos {scale_base, gamma, centre: number | middle_floor | middle_ceil}
// layer types  the config's own; "rope" and "no_rope" where every n-th layer does not rotate
// refuses      keys that repeat; unknown keys of a plain spec or a rope dictionary; unknown
//              top-level keys that speak of positions; dictionaries, bases and widths that
//              contradict each other; a missing base when the model_type has no known one
[[nodiscard]] Result<ModelConfig> parse_config(std::string_view text,
                                               std::string_view name = "config");
// A file, or a directory that holds config.json.
[[nodiscard]] Result<ModelConfig> read_config(const std::filesystem::path& path);

// The group of a layer, given as an index ("0") or a layer type ("full_attention"). An empty
// selector is fine while there is one group, or one that rotates; with more, the error lists them.
[[nodiscard]] Result<LayerGroup> select_layer(const ModelConfig& config, std::string_view selector);

}  // namespace phasor::config
