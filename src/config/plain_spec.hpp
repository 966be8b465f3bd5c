// The plain spec: {"head_dim": 8, "base": 10000, "layout": "interleaved", ...}.
#pragma once

#include "phasor/config/config.hpp"
#include "phasor/config/internal/json_reader.hpp"

namespace phasor::config {

// Whether the object is a plain spec rather than a config.json; config.hpp states the rule.
[[nodiscard]] bool is_plain_spec(const ObjectReader& top);

// throws   Error(invalid_argument) naming the key
[[nodiscard]] ModelConfig read_plain_spec(const ObjectReader& top);

}  // namespace phasor::config
