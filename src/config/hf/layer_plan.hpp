// Which layers are of which type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/config/internal/families.hpp"
#include "phasor/config/internal/json_reader.hpp"

namespace phasor::config {

// More layers than any model has are refused before anything is allocated for them.
inline constexpr std::int64_t kMaxLayers = 100000;

inline constexpr std::string_view kFullAttention = "full_attention";
inline constexpr std::string_view kSlidingAttention = "sliding_attention";
inline constexpr std::string_view kLinearAttention = "linear_attention";
// Full-attention layers of Cohere 2 MoE that rotate: those with a dense feed-forward.
inline constexpr std::string_view kDenseAttention = "dense_attention";

// One type name per layer; empty when the config has neither the types nor the number of layers. If
// the family has layers that do not rotate, the names are "rope" and "no_rope".
struct LayerPlan {
  std::vector<std::string> types;
  std::optional<KeyNote> note;  // the list has another length than the model

  // Indices of the layers of a type, ascending.
  [[nodiscard]] std::vector<std::int64_t> layers_of(std::string_view type) const;
  [[nodiscard]] bool uses(std::string_view type) const;
};

// throws   Error(invalid_argument)
[[nodiscard]] LayerPlan read_layer_plan(const ObjectReader& top, const RotaryFacts* family);

// Layers of these types mix tokens without rotating anything, or do not mix them.
[[nodiscard]] bool never_rotates(std::string_view layer_type) noexcept;

}  // namespace phasor::config
