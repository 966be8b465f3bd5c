// Tokenizers made from text, and their files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::text {

enum class TokenizerKind : std::uint8_t {
  bytes,      // a token for each of the 256 bytes, no merges
  bpe,        // byte-level BPE with the words of GPT-2
  wordpiece,  // WordPiece with the words of BERT: each Chinese character is a word
};

struct TrainerSettings {
  TokenizerKind kind = TokenizerKind::bpe;
  // Tokens, special ones included. Fewer result if no pair reaches min_frequency; of `bytes`, 256 and
  // the special ones always.
  std::int64_t vocabulary = 8192;
  std::int64_t min_frequency = 2;  // a pair that occurs less often is not merged
  // wordpiece: a character that occurs less often has no token.
  std::int64_t min_character_frequency = 1;
  // Ids from 0, in this order; empty: default_specials(kind).
  std::vector<std::string> specials = {};
  LetterCase letters = LetterCase::keep;  // of wordpiece; lower also strips accents
};

// wordpiece: [PAD] [UNK] [CLS] [SEP] [MASK]. Others: <pad> <s> </s> <mask>, where <s> begins and
// classifies, and </s> ends and separates, as in RoBERTa.
[[nodiscard]] std::vector<std::string> default_specials(TokenizerKind kind);

struct TrainedTokenizer {
  TokenizerKind kind = TokenizerKind::bpe;
  LetterCase letters = LetterCase::keep;
  std::vector<std::string> tokens =
      {};                    // special ones, then the alphabet by code point, then merges
  std::size_t specials = 0;  // the first tokens
  // Byte-level forms of texts; their concatenation is a token. Empty for wordpiece.
  std::vector<std::pair<std::string, std::string>> merges = {};
};

// Each step merges the pair of neighbours that occurs most often in all words of all texts; of equally
// frequent ones, that with the lowest left id, then the lowest right id. In "aaa", (a, a) occurs twice.
// The alphabet is all 256 bytes (bpe), or each character c with at least min_character_frequency, and
// "##c" as well unless c is a word by itself (wordpiece). The result depends on the settings and on the
// multiset of texts only.
//
// throws   Error(invalid_argument): texts without a word, text that is not UTF-8 (with its number and
//          the byte offset), a vocabulary smaller than special tokens and alphabet (with both numbers),
//          a frequency below 1, special tokens that repeat, are empty or lack [UNK] for wordpiece
// cost     O(bytes + merges * (log pairs + words that hold the pair))
[[nodiscard]] TrainedTokenizer train_tokenizer(const TrainerSettings& settings,
                                               std::span<const std::string_view> texts);

// The files, by name: tokenizer.json (Hugging Face tokenizers), tokenizer_config.json (which special
// token is which), and vocab.txt (wordpiece) or vocab.json and merges.txt (others).
struct TokenizerFile {
  std::string name, content;
};
[[nodiscard]] std::vector<TokenizerFile> tokenizer_files(const TrainedTokenizer& trained);

// The tokenizer that read_tokenizer() reads from these files, without writing them.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_of(const TrainedTokenizer& trained);

// Writes them into a folder, which is created; each file is replaced atomically. read_tokenizer() reads
// the folder.
[[nodiscard]] Result<Done> save_tokenizer(const TrainedTokenizer& trained,
                                          const std::filesystem::path& folder);

}  // namespace phasor::text
