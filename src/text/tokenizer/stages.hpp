// The stages of a tokenizer.json around its model: normalizer, pre_tokenizer, post_processor,
// decoder.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "text/bpe/tokenizer.hpp"

namespace phasor::text {

struct Stages {
  bool byte_level = false;      // words consist of the 256 characters for bytes
  bool visible_spaces = false;  // spaces become U+2581
  bool normalises = false;      // the normalizer changes text and added tokens
  bool prepends = false;        // the normalizer adds a space in front
  ByteLevelSettings bytes;
  CharacterSettings characters;
  std::optional<std::string> begin;  // the token that the post-processor adds in front
};

// throws   Error(unsupported): an unknown stage; Error(invalid_argument): a malformed one
[[nodiscard]] Stages read_stages(const io::Json& root);

// Members of a JSON object; nullopt when absent or null, Error(invalid_argument) for another type.
[[nodiscard]] const io::Json* member(const io::Json& object, const char* key);
[[nodiscard]] std::optional<std::string> text_member(const io::Json& object, const char* key);
[[nodiscard]] std::optional<bool> flag_member(const io::Json& object, const char* key);

// Calls `act` for the stage at `where` with its type, or for each one in `list` of a Sequence.
void for_each_stage(const io::Json& root, const char* where, const char* list,
                    const std::function<void(const io::Json&, const std::string&)>& act);
// Of a stage: {"String": ...} or {"Regex": ...}.
[[nodiscard]] std::optional<std::string> pattern_of(const io::Json& stage, const char* kind);
// Where Metaspace adds a space: first, always or never.
//
// throws   Error(invalid_argument): another scheme, another character for spaces
[[nodiscard]] std::string prepend_scheme(const io::Json& stage);

// Content and flags of an added token, without id and `normalized`.
//
// throws   Error(invalid_argument), with `where` in front: no content, a member of another type
[[nodiscard]] AddedToken added_token(const io::Json& entry, std::string_view where);

}  // namespace phasor::text
