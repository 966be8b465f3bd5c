// The stages of a tokenizer.json around its model: normalizer, pre_tokenizer, post_processor,
// decoder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "text/bpe/tokenizer.hpp"

namespace phasor::text {

struct Stages {
  bool byte_level = false;      // words are made of the 256 characters for bytes
  bool visible_spaces = false;  // spaces become U+2581
  bool normalises = false;      // by the normalizer, which added tokens pass too
  bool prepends = false;        // the normalizer puts a space first
  ByteLevelSettings bytes;
  CharacterSettings characters;
  std::optional<std::string> begin;  // what the post-processor puts first
};

// throws   Error(unsupported) naming a stage that Phasor does not have, Error(invalid_argument) for
//          one that is not as it must be
[[nodiscard]] Stages read_stages(const io::Json& root);

// Members of a JSON object, as one kind or refused; absent and null read as nullopt.
[[nodiscard]] const io::Json* member(const io::Json& object, const char* key);
[[nodiscard]] std::optional<std::string> text_member(const io::Json& object, const char* key);
[[nodiscard]] std::optional<bool> flag_member(const io::Json& object, const char* key);

}  // namespace phasor::text
