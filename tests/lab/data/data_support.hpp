// Tokenizers and corpora of the tests.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/lab/internal/corpus.hpp"
#include "phasor/text/internal/trainer.hpp"

namespace phasor::lab::testing {

inline constexpr auto kBad = ErrorCode::invalid_argument;

// 256 bytes after <pad> <s> </s> <mask>: the id of a byte is its value and 4. `specials`: others, with the
// roles of their usual names.
class TrainedBytes {
 public:
  explicit TrainedBytes(std::vector<std::string> specials = {}) {
    const std::vector<std::string_view> texts = {"x"};
    tokenizer_ = text::tokenizer_of(text::train_tokenizer(
        {.kind = text::TokenizerKind::bytes, .specials = std::move(specials)}, texts));
  }
  [[nodiscard]] const text::Tokenizer& operator*() const { return *tokenizer_; }

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_;
};

inline const text::Tokenizer& byte_tokenizer() {
  static const TrainedBytes trained;
  return *trained;
}

inline TokenCorpus tokens_of(std::string_view text) {
  return {TextCorpus::of_text("test", text).value_or_throw(), byte_tokenizer()};
}

inline std::shared_ptr<const TokenCorpus> shared_tokens(std::string_view text) {
  return std::make_shared<const TokenCorpus>(tokens_of(text));
}

}  // namespace phasor::lab::testing
