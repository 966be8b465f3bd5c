// rope_scaling, rope_parameters or a plain spec's scaling: a type and the keys of that type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/config/internal/json_reader.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::config {

enum class DictionaryForm : std::uint8_t {
  rope_parameters,  // may contain the base; without a type it means "default"
  rope_scaling,     // the type is required
  plain_scaling,    // the type is required; base, width and sections are outside
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
  std::optional<double> query_beta;  // llama_4_scaling_beta, and the length that it counts in
  std::optional<std::int64_t> query_length;
  std::string type_key;             // path of the key that gave the type; empty: none did
  std::vector<KeyNote> notes = {};  // keys that change nothing, or not what their name says
};

// throws   Error(invalid_argument | unsupported) naming the key
[[nodiscard]] RopeDictionary read_rope_dictionary(const ObjectReader& reader, DictionaryForm form,
                                                  const Lengths& lengths);

}  // namespace phasor::config
