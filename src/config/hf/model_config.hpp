// config.json of a model: keys, rope dictionaries and layer types brought together.
#pragma once

#include "phasor/config/config.hpp"
#include "phasor/config/internal/json_reader.hpp"

namespace phasor::config {

// throws   Error(invalid_argument | unsupported) naming the key
[[nodiscard]] ModelConfig read_model_config(const ObjectReader& top);

}  // namespace phasor::config
