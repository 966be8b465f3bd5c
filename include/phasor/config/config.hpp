// From a config.json of any family, old form or new, or a plain spec, to each layer's encoding.
// Refuses what it does not understand, by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/export.h"

namespace phasor::io {
class GgufFile;
}

namespace phasor::config {

// The source of a number: the path of the config's key ("rope_scaling.factor"), or a description of
// the default ("default of model_type llama").
struct Source {
  std::string what;  // "base", "layout", "rotary_dim", "scaling", ...
  std::string key;
};

// A copy that has no memory throws. libstdc++ 12 crashes instead when it copy-constructs a variant whose
// types it takes for never valueless (strings, vectors), but not when it assigns one.
struct PositionValue : std::variant<bool, std::int64_t, double, std::string, std::vector<double>> {
  using variant::variant;
  PositionValue() = default;
  PositionValue(const PositionValue& other) : variant() {
    variant::operator=(static_cast<const variant&>(other));
  }
  PositionValue(PositionValue&&) noexcept = default;
  PositionValue& operator=(const PositionValue&) = default;
  PositionValue& operator=(PositionValue&&) noexcept = default;
};

// A number, a choice or a list of an encoding that is not a rotation, and its source.
struct PositionParameter {
  std::string name;  // "rows", "first_row", "slopes", ...: docs/porting.md lists them
  PositionValue value;
  std::string key;  // as in Source
};

// Positions that layers have without a rotation.
struct PositionEncoding {
  // As encodings::name_of(), and "learned_absolute", "sinusoidal", "learned_boxes", "learned_axial",
  // "relative_bias_2d", "relative_bias_boxes", "convolution".
  std::string name;
  std::string acts_on;  // "input", "scores", "keys", "keys and values"
  std::vector<PositionParameter> parameters;
};

// Layers that share an encoding.
struct LayerGroup {
  std::string layer_type;  // "full_attention", ...; empty when the config has one group
  std::optional<encodings::RopeSpec> rope;  // none: these layers do not rotate
  // Indices, ascending; empty when the config does not say how many, or when no layer is of this
  // type.
  std::vector<std::int64_t> layers;
  double softmax_scale = 0.0;  // the factor on q.k; 0 when the config does not give it
  // Keys each query sees, itself included; nullopt: all of them, or unknown.
  std::optional<std::int64_t> window = std::nullopt;
  std::vector<Source> sources = {};
  // The factor on each query by its position; nullopt: 1.
  std::optional<encodings::QueryScale> query_scale = std::nullopt;
  // A query sees the keys of its own chunk of this many positions only (Llama 4); nullopt: no chunks.
  std::optional<std::int64_t> chunk = std::nullopt;
  // Of layers without a rotation; empty: they have no positions, or `other_positions` of the config is
  // all that is known.
  std::vector<PositionEncoding> positions = {};
};

// A known key that has no effect, or not the effect that its name suggests.
struct KeyNote {
  std::string key;
  std::string note;
  // The key belongs to another scaling than the one that the config names: perhaps a mistake, so callers
  // that only want the rotation show it too.
  bool leftover = false;
};

struct ModelConfig {
  std::string model_type;  // empty for a plain spec
  std::vector<LayerGroup> groups;
  std::optional<std::int64_t> max_position;  // the largest length, as the config gives it
  std::string max_position_key;              // its key
  // The length of training, when a key of its own gives it (nomic-bert's max_trained_positions).
  std::optional<std::int64_t> trained_length = std::nullopt;
  std::string trained_length_key = {};
  // Values rotate too (RoFormer's rotary_value).
  bool rotates_values = false;
  std::int64_t head_dim = 0;
  std::optional<std::int64_t> heads = std::nullopt, key_heads = std::nullopt;
  std::vector<KeyNote> notes = {};
  // Top-level keys that were not read. Those whose name says that they are about positions are refused
  // if a layer rotates.
  std::vector<std::string> unread_keys = {};
  // Of these, the ones that are not known: they may be about positions.
  std::vector<std::string> unknown_keys = {};
  // The part that was read, by its path ("text_config"); empty: the config itself.
  std::string part = {};
  // Of a model that rotates nothing: the positions that it has instead ("learned positions"). Its groups
  // have no rope.
  std::string other_positions = {};
};

// Parses a config.json or a plain spec {"head_dim": 8, "base": 10000, "layout": "interleaved",
// "rotary_dim": 8, "scaling": {...}}. Every message starts with `name`.
//
// It is a config.json when it has one of model_type, architectures, hidden_size, n_embd, embed_dim,
// num_attention_heads, text_config, vision_config or rope_parameters, or when it has rope_theta,
// rope_scaling, rotary_emb_base, rotary_pct or qk_rope_head_dim and no key that only a plain spec
// has (base, layout, scaling, mrope, axial, xpos, rotary_offset, frequencies); else a plain spec. Of
// a model of several parts, the text part is read (text_config, llm_config, ... decoder), or else
// the first part that has a model_type (encoder, vision_config, ...): `part` says which. Null means
// absent, except for a layer type.
//
// plain spec   head_dim; rotary_dim (head_dim - rotary_offset); rotary_offset (0); base (10000);
//              layout; max_position_embeddings; scaling {type, ...};
//              mrope {sections, order: chunked | interleaved | alternating};
//              axial: concatenated | alternating | per_half_head;
//              xpos {scale_base, gamma, centre: number | middle_floor | middle_ceil};
//              frequencies [...], in place of base; frequency_factors [...]; amplitude (1)
// layer types  the config's own; "rope" and "no_rope" if every n-th layer does not rotate
// other models a model_type that is known to rotate nothing gives one group without a rope
// leftovers    keys of another scaling in a rope dictionary are noted, not read; so are layer_types
//              of another length than the number of layers, which are then read by index
// refuses      repeated keys; unknown keys of a plain spec or a rope dictionary; unknown
//              top-level keys about positions; dictionaries, bases and widths that
//              contradict each other; a missing base when the model_type has no known one; models
//              that rotate in a way that no RopeSpec describes. Every message names the model_type
[[nodiscard]] PHASOR_API Result<ModelConfig> parse_config(std::string_view text,
                                                          std::string_view name = "config");
// The rotation that GGUF metadata describes, as llama.cpp reads it: the layout is that of the
// architecture's kernel, since converting to GGUF permutes q and k if the two differ. Tensors of
// frequency factors (rope_freqs.weight, rope_factors_long.weight, rope_factors_short.weight) are read.
//
// refuses  an architecture whose layout is not known; unknown keys {arch}.rope.*
[[nodiscard]] PHASOR_API Result<ModelConfig> config_of_gguf(const io::GgufFile& file);

// A config.json, a directory that holds one, or a GGUF file. A directory that `phasor convert`
// wrote also has the layout of its weights, which is used.
[[nodiscard]] PHASOR_API Result<ModelConfig> read_config(const std::filesystem::path& path);

// The group of a layer, given as an index ("0") or a layer type ("full_attention"). An empty
// selector is allowed if all groups that rotate are equal; else the error lists them.
[[nodiscard]] PHASOR_API Result<LayerGroup> select_layer(const ModelConfig& config,
                                                         std::string_view selector);

// The plain spec that parse_config() reads as this value again. Keys are in a fixed order: equal
// specs give equal text.
[[nodiscard]] PHASOR_API std::string plain_spec_json(const encodings::RopeSpec& spec);

}  // namespace phasor::config
