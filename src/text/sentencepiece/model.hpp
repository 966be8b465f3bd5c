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

// throws   Error(invalid_argument): an invalid protocol buffer; pieces that are empty, too
//          long, not UTF-8 or repeated, scores that are not finite, not exactly one unknown
//          piece, byte pieces that are not all 256, a character map with offsets beyond its end;
//          Error(unsupported): a model other than unigram and BPE
[[nodiscard]] SentencePieceModel read_sentencepiece(std::string_view bytes);

}  // namespace phasor::text
