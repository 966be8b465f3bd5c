// rope_scaling, rope_parameters or a plain spec's scaling: a type and the keys that type takes, no
// others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/config/internal/json_reader.hpp"
#include "phasor/encodings/rope_scaling.hpp"

namespace phasor::config {

enum class DictionaryForm : std::uint8_t {
  rope_parameters,  // carries the base; without a type it means "default"
  rope_scaling,     // the type is required
  plain_scaling,    // the type is required; base, width and sections stand outside
};

struct Lengths {
  std::optional<std::int64_t> max_position;
  std::optional<std::int64_t>
      original;  // given outside the dictionary: overrides the one inside (Phi-3)
};

struct RopeDictionary {
  encodings::RopeScaling scaling;
  bool axial = false;  // type "axial": default frequencies over two axes
  std::optional<double> base;
  std::optional<double> partial;  // for proportional: its proportion, already in `scaling`
  std::optional<std::vector<std::int64_t>> mrope_sections;
  std::optional<bool> mrope_interleaved;
  std::string type_key;             // where the type stood; empty: nowhere
  std::vector<KeyNote> notes = {};  // keys that change nothing, or not what they seem to
};

// throws   Error(invalid_argument | unsupported) naming the key
[[nodiscard]] RopeDictionary read_rope_dictionary(const ObjectReader& reader, DictionaryForm form,
                                                  const Lengths& lengths);

}  // namespace phasor::config
