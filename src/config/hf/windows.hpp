// Which layers have a sliding window of keys.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/hf/layer_plan.hpp"
#include "phasor/config/config.hpp"
#include "phasor/config/internal/families.hpp"
#include "phasor/config/internal/json_reader.hpp"

namespace phasor::config {

// Sets the window of every group, splits a group whose layers differ in it, and adds a note for a
// window that no layer uses.
//
// throws   Error(invalid_argument) with the key
void apply_windows(const ObjectReader& top, const RotaryFacts* family, const LayerPlan& plan,
                   ModelConfig& config);

// Llama 4: a query of a layer that rotates sees the keys of its own chunk.
//
// throws   Error(invalid_argument) with the key
void apply_chunks(const ObjectReader& top, const RotaryFacts* family, ModelConfig& config);

}  // namespace phasor::config
