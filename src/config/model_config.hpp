// config.json of a model: keys, rope dictionaries and layer types brought together.
#pragma once

#include "config/json_reader.hpp"
#include "phasor/config/config.hpp"

namespace phasor::config {

// throws   Error(invalid_argument | unsupported) naming the key
[[nodiscard]] ModelConfig read_model_config(const ObjectReader& top);

}  // namespace phasor::config
