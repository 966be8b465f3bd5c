// Reading and writing the keys of a config.
#pragma once

#include <cstdint>

#include "phasor/config/internal/spec_json.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::porting {

// The largest context that is accepted, so that sums of lengths cannot overflow.
inline constexpr std::int64_t kContextLimit = std::int64_t{1} << 40;

// The part of a config that describes the language model.
[[nodiscard]] inline io::Json& text_part(io::Json& config) {
  const auto text = config.find("text_config");
  return text != config.end() && text->is_object() ? *text : config;
}

using config::DefaultKeys;
using config::write_scaling_keys;

}  // namespace phasor::porting
