// Unigram models that are not in SentencePiece's own format: tokenizer.json and GGUF hold the same pieces,
// scores and character map.
#pragma once

#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "text/tokenizer/settings.hpp"
#include "text/tokenizer/vocabulary.hpp"

namespace phasor::text {

struct Unigram {
  std::vector<Token> tokens;
  std::vector<float> scores;    // one for each token
  std::string character_map;    // precompiled_charsmap; empty: none
  bool adds_prefix = true;      // a space before the text
  bool removes_spaces = false;  // several spaces count as one, those at the ends as none
};

// The bytes of a SentencePiece model, which tokenizer_of_sentencepiece() checks.
[[nodiscard]] std::string serialised(const Unigram& unigram);

// The model of a tokenizer.json of this type and the stages around it. Adds to the settings what the
// file says about added tokens and spaces.
//
// throws   Error(unsupported): an unknown stage; Error(invalid_argument): a malformed file
[[nodiscard]] Unigram unigram_of_json(const io::Json& root, const std::vector<AddedToken>& added,
                                      TokenizerSettings& settings);

}  // namespace phasor::text
