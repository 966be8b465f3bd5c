// Keys of config.json that are known not to be about positions.
#pragma once

#include <string_view>

namespace phasor::config {

// Sizes, tokens, dropout, experts, quantisation, ...: keys that hundreds of families have. A key that
// could be about distances, windows, segments or kinds of layers is never known here.
[[nodiscard]] bool is_known_elsewhere(std::string_view key) noexcept;

}  // namespace phasor::config
