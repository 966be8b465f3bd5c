// Positions of the architectures that do not rotate.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "config/gguf/keys.hpp"
#include "phasor/config/config.hpp"

namespace phasor::config {

// Empty: the architecture has no positions, or they are not known. `config` has the heads and the
// length.
//
// throws   Error(invalid_argument) with the key
[[nodiscard]] std::vector<PositionEncoding> read_gguf_positions(GgufKeys& keys,
                                                                std::string_view architecture,
                                                                const ModelConfig& config);

}  // namespace phasor::config
