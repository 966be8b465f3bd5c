// A serialised SentencePiece model, checked byte for byte before its library sees it: the library
// aborts on some wrong models and reads past the end of others.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/vocabulary.hpp"

namespace phasor::text {

struct SentencePieceModel {
  std::vector<Token> tokens;
  bool adds_prefix = true;  // a space before the text
  std::string bytes;        // of the pieces and settings that encoding needs, serialised
};

// throws   Error(invalid_argument): bytes that are no protocol buffer, pieces that are empty, too
//          long, not UTF-8 or there twice, scores that are not finite, not exactly one unknown
//          piece, byte pieces that are not all 256, a character map that leaves its memory;
//          Error(unsupported): a model that is neither unigram nor BPE
[[nodiscard]] SentencePieceModel read_sentencepiece(std::string_view bytes);

}  // namespace phasor::text
