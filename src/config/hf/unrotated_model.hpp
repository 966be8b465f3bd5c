// config.json of a model that rotates nothing.
#pragma once

#include "phasor/config/config.hpp"
#include "phasor/config/internal/families.hpp"
#include "phasor/config/internal/json_reader.hpp"

namespace phasor::config {

// The positions that such a model has instead, for the layers of each side or type.
//
// throws   Error(invalid_argument | unsupported) with the key
[[nodiscard]] ModelConfig read_unrotated_model(const ObjectReader& top, const Family& row);

}  // namespace phasor::config
