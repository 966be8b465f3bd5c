// The rotation of the layers of one type: from the keys of a config to a RopeSpec, a factor on q.k and
// the source of each number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/hf/model_keys.hpp"
#include "config/hf/rope_dictionary.hpp"
#include "phasor/config/config.hpp"
#include "phasor/config/internal/json_reader.hpp"

namespace phasor::config {

inline constexpr std::string_view kRopeParameters = "rope_parameters";
inline constexpr std::string_view kRopeScaling = "rope_scaling";

// A rotation before it is put into a RopeSpec.
struct LayerRope {
  RopeDictionary dictionary;
  std::optional<double> base;
  std::string base_key;  // the source of the base
  std::int64_t head_dim = 0;
  std::string path;  // of the dictionary, for messages
};

// The dictionary that all layers share: rope_parameters, rope_scaling, or both if they are equal.
//
// throws   Error(invalid_argument | unsupported) with the key
[[nodiscard]] LayerRope read_flat(const ObjectReader& top, const ModelKeys& keys);

// The group of these layers; `rope` null: they do not rotate, for the reason `why`. The caller fills
// in the layers.
[[nodiscard]] LayerGroup group_of(const ObjectReader& top, const ModelKeys& keys,
                                  std::string_view layer_type, const LayerRope* rope,
                                  const std::string& why);

// Of full-attention layers, or of the others.
[[nodiscard]] std::int64_t head_dim_of(const ModelKeys& keys, std::string_view layer_type);

}  // namespace phasor::config
