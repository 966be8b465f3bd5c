// Which layers see only a window of keys.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/hf/families.hpp"
#include "config/hf/layer_plan.hpp"
#include "phasor/config/config.hpp"
#include "phasor/config/internal/json_reader.hpp"

namespace phasor::config {

// Gives every group its window, splits a group whose layers differ in it, and notes the keys of
// windows that change nothing.
//
// throws   Error(invalid_argument) naming the key
void apply_windows(const ObjectReader& top, const Family* family, const LayerPlan& plan,
                   ModelConfig& config);

}  // namespace phasor::config
