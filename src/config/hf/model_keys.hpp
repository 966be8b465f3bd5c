// The top-level keys of a config.json that affect the rotation, under the names of every family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/hf/rope_dictionary.hpp"
#include "phasor/config/config.hpp"
#include "phasor/config/internal/families.hpp"
#include "phasor/config/internal/json_reader.hpp"

namespace phasor::config {

struct ModelKeys {
  std::string model_type;
  const RotaryFacts* family = nullptr;  // null: the model_type is not in the table
  Lengths lengths;

  std::int64_t head_dim = 0;         // of the rotating part where attention is latent
  std::int64_t global_head_dim = 0;  // of full-attention layers (Gemma 4); 0: the same
  bool latent = false;               // attention is latent: head_dim is its rotating part
  std::int64_t latent_width = 0;     // qk_nope_head_dim + qk_rope_head_dim; 0: not known

  std::optional<double> base;
  std::string base_key;  // the key that gave it, for messages
  std::string local_base_key, head_dim_key, heads_key, length_key, partial_key, layout_key;
  std::optional<double> local_base;  // of sliding layers
  std::optional<double> partial;
  std::optional<std::int64_t> rotary_dim;
  std::optional<core::PairLayout> layout;
  std::optional<encodings::AxialAxes::Kind> axial;
  std::optional<encodings::MropeAxes::Order> mrope;  // the family's own; set: sections are required

  std::optional<double> query_pre_attn_scalar;
  std::optional<double> attention_multiplier;
  std::optional<std::int64_t> heads, key_heads;
  std::optional<std::int64_t> trained_length;  // as in ModelConfig
  std::string trained_length_key;
  bool rotates_values = false;
  // Why nothing rotates, by the key that says so; empty: layers rotate.
  std::string no_rotation;
  std::string other_positions;             // as in ModelConfig
  std::optional<PositionFacts> positions;  // those that it has instead
  std::vector<KeyNote> notes;              // sizes that the config leaves out
  // layer_rope_theta: the base of each layer, 0 for one that does not rotate; empty: not given.
  std::vector<double> layer_bases;
};

// The source of a number that no key gave: the table of families.
[[nodiscard]] inline std::string default_of(const ModelKeys& keys) {
  return "default of model_type " + keys.model_type;
}

// Whether `top` is a part of a config: parts may leave out sizes that equal the defaults of their class.
[[nodiscard]] inline bool is_part(const ObjectReader& top) { return top.path_of("x") != "x"; }

// throws   Error(invalid_argument | unsupported) with the key
[[nodiscard]] ModelKeys read_model_keys(const ObjectReader& top);

// Whether a key is about positions: if it is unknown, the config is refused.
[[nodiscard]] bool is_about_positions(std::string_view key) noexcept;

}  // namespace phasor::config
