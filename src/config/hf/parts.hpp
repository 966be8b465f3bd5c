// Models of several parts: which one is read.
#pragma once

#include <optional>
#include <string>

#include "phasor/config/config.hpp"
#include "phasor/config/internal/json_reader.hpp"

namespace phasor::config {

// The key of the part that is read; nullopt: the config itself describes a model.
[[nodiscard]] std::optional<std::string> part_to_read(const ObjectReader& top);

// The part under `key`, read by `read`, with a note that says so. Outer keys about positions that the
// part does not have are refused; those that differ are noted.
//
// throws   Error(invalid_argument | unsupported) with the key
[[nodiscard]] ModelConfig read_part(const ObjectReader& top, const std::string& key,
                                    ModelConfig (*read)(const ObjectReader&));

}  // namespace phasor::config
