// Encodings that are not rotations: their parameters, from the keys of a config and the facts of its family.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "phasor/config/config.hpp"
#include "phasor/config/internal/families.hpp"
#include "phasor/config/internal/json_reader.hpp"

namespace phasor::config {

// The first of these keys that the config has, its integer and its path; nullopt: none.
struct FoundInteger {
  std::int64_t value = 0;
  std::string key;
};
[[nodiscard]] std::optional<FoundInteger> find_integer(
    const ObjectReader& top, std::initializer_list<std::string_view> keys);

// Heads of a side's layers.
[[nodiscard]] std::optional<FoundInteger> find_heads(const ObjectReader& top, PositionSide side);
// Layers of a side.
[[nodiscard]] std::optional<FoundInteger> find_layers(const ObjectReader& top, PositionSide side);
// Features of a token.
[[nodiscard]] std::optional<FoundInteger> find_width(const ObjectReader& top);

// nullopt: the config switches this encoding off. `side` is encoder, decoder or all.
//
// throws   Error(invalid_argument | unsupported) with the key
[[nodiscard]] std::optional<PositionEncoding> read_position_encoding(const ObjectReader& top,
                                                                     std::string_view model_type,
                                                                     const PositionFacts& facts,
                                                                     PositionSide side);

// The factor on q.k that an encoding implies; 0: the usual one.
[[nodiscard]] double position_softmax_scale(const PositionEncoding& encoding,
                                            std::int64_t head_dim);

}  // namespace phasor::config
