// What the lab trains on: plain text, labelled texts and sentence pairs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::lab {

// Plain text: works, each with sections, which form feeds separate in a file. Never empty.
class TextCorpus {
 public:
  struct Work {
    std::string name;                   // of its file
    std::vector<std::string> sections;  // not empty
  };

  // Each path is a file, or a folder whose .txt files, at any depth and in the order of their names, are
  // works.
  //
  // error    Error(io): a file that cannot be read, a folder without .txt files.
  //          Error(invalid_argument): text that is not UTF-8 (file and byte offset), no text at all
  [[nodiscard]] static Result<TextCorpus> read(std::span<const std::filesystem::path> paths);
  // One work; `name` is its name in messages.
  [[nodiscard]] static Result<TextCorpus> of_text(std::string name, std::string_view text);

  [[nodiscard]] const std::vector<Work>& works() const noexcept { return works_; }
  // All sections, for train_tokenizer(); views into this object.
  [[nodiscard]] std::vector<std::string_view> texts() const;
  [[nodiscard]] std::int64_t bytes() const noexcept;
  // All but the last `sections` sections, and these.
  //
  // throws   Error(invalid_argument), with both numbers: a part would be empty
  struct Parts;
  [[nodiscard]] Parts hold_out_last(std::int64_t sections) const;
  // "xxh64:...", of names and texts in their order.
  [[nodiscard]] std::string hash() const;

 private:
  std::vector<Work> works_;
};

struct TextCorpus::Parts {
  TextCorpus train, held_out;
};

// A corpus as ids: all sections in their order, each followed by the tokenizer's end token (`separate`
// if it has no `end`; nothing if it has neither). Text that looks like a special token is text.
class TokenCorpus {
 public:
  // throws   Error(invalid_argument): a corpus without a token; std::bad_alloc
  TokenCorpus(const TextCorpus& corpus, const text::Tokenizer& tokenizer);

  struct Section {
    std::int64_t first = 0, count = 0;  // without the end token
    std::int32_t work = 0;
  };
  [[nodiscard]] std::int64_t size() const noexcept;  // tokens, end tokens included
  // precondition  0 <= at < size()
  [[nodiscard]] std::int32_t operator[](std::int64_t at) const noexcept {
    const auto i = static_cast<std::size_t>(at);
    return narrow_.empty() ? wide_[i] : narrow_[i];
  }
  [[nodiscard]] const std::vector<Section>& sections() const noexcept { return sections_; }

  // Of the tokenizer.
  [[nodiscard]] std::int64_t vocabulary() const noexcept { return vocabulary_; }
  [[nodiscard]] const text::SpecialTokens& specials() const noexcept { return specials_; }
  // Ids that are neither special nor the unknown token.
  [[nodiscard]] const std::vector<std::int32_t>& ordinary() const noexcept { return ordinary_; }
  [[nodiscard]] bool is_ordinary(std::int32_t id) const noexcept {
    return is_ordinary_[static_cast<std::size_t>(id)];
  }
  // "xxh64:...", of the ids.
  [[nodiscard]] std::string hash() const;

 private:
  std::vector<std::uint16_t> narrow_;  // a vocabulary of at most 2^16 tokens
  std::vector<std::int32_t> wide_;     // a larger one
  std::vector<Section> sections_;
  std::int64_t vocabulary_ = 0;
  text::SpecialTokens specials_;
  std::vector<std::int32_t> ordinary_;
  std::vector<bool> is_ordinary_;
};

// {"text": "...", "label": 0} on each line. Labels count from 0.
struct LabelledSet {
  struct Row {
    std::string text;
    std::int32_t label = 0;
  };
  std::vector<Row> rows;
  std::int32_t labels = 0;  // the largest label and 1
  std::string hash;         // of the file
};
// {"source": "...", "target": "..."} on each line.
struct PairSet {
  struct Row {
    std::string source, target;
  };
  std::vector<Row> rows;
  std::string hash;
};
inline constexpr std::int32_t kMaxLabels = 1000;

// error    Error(io): a file that cannot be read. Error(invalid_argument), with file and line: not a JSON
//          object, a missing, unknown or repeated key, an empty text, text that is not UTF-8 (with the
//          byte offset), a label outside of [0, kMaxLabels); a file without a line
[[nodiscard]] Result<LabelledSet> read_labelled(const std::filesystem::path& path);
[[nodiscard]] Result<PairSet> read_pairs(const std::filesystem::path& path);
// The same from text; `name` is the file's name in messages.
[[nodiscard]] Result<LabelledSet> parse_labelled(std::string_view lines, std::string_view name);
[[nodiscard]] Result<PairSet> parse_pairs(std::string_view lines, std::string_view name);

}  // namespace phasor::lab
