#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "phasor/io/internal/json.hpp"
#include "phasor/text/internal/trainer.hpp"
#include "text/bpe/tokenizer.hpp"
#include "text/pretokenizer.hpp"
#include "text/train/merge_pairs.hpp"
#include "text/unicode/unicode.hpp"
#include "text/wordpiece/wordpiece.hpp"

namespace phasor::text {
namespace {

using WordCounts = std::unordered_map<std::string, std::int64_t>;

void check_texts(std::span<const std::string_view> texts) {
  for (std::size_t i = 0; i < texts.size(); ++i)
    unicode::require_utf8(texts[i], message("train: text ", i));
}

TokenList special_list(const TrainerSettings& settings) {
  for (const auto& [name, value] :
       {std::pair<const char*, std::int64_t>{"min_frequency", settings.min_frequency},
        {"min_character_frequency", settings.min_character_frequency}}) {
    if (value < 1) refuse(message("train: ", name, " must be at least 1, got ", value));
  }
  TokenList tokens;
  for (const std::string& special :
       settings.specials.empty() ? default_specials(settings.kind) : settings.specials) {
    unicode::require_utf8(special, "train: special token");
    if (special.empty() || special.find_first_of("\r\n") != std::string::npos) {
      refuse(message("train: a special token must be a line of text, got '", io::one_line(special),
                     "'"));
    }
    if (!tokens.add(special))
      refuse(message("train: special token '", io::one_line(special), "' is listed twice"));
  }
  if (settings.kind == TokenizerKind::wordpiece && tokens.find("[UNK]") < 0)
    refuse("train: the special tokens of wordpiece must include [UNK]");
  return tokens;
}

void add_letter(TokenList& tokens, const std::string& letter) {
  if (!tokens.add(letter)) {
    refuse(message("train: special token '", io::one_line(letter),
                   "' is a token of the alphabet; choose another text for it"));
  }
}

void check_vocabulary(const TrainerSettings& settings, std::size_t specials, std::size_t all) {
  if (settings.vocabulary >= static_cast<std::int64_t>(all)) return;
  refuse(message("train: the vocabulary must have at least ", all, " tokens, ", specials,
                 " special ones and an alphabet of ", all - specials, ", got ",
                 settings.vocabulary));
}

void check_words(bool found, std::size_t texts) {
  if (!found) refuse(message("train: the corpus of ", texts, " texts has no word"));
}

std::string single(unsigned char byte) { return {static_cast<char>(byte)}; }

TrainedTokenizer train_bytes(TokenList tokens, std::span<const std::string_view> texts) {
  check_words(std::any_of(texts.begin(), texts.end(), [](auto text) { return !text.empty(); }),
              texts.size());
  TrainedTokenizer trained{.kind = TokenizerKind::bytes, .specials = tokens.size()};
  for (int byte = 0; byte < 256; ++byte)
    add_letter(tokens, to_byte_characters(single(static_cast<unsigned char>(byte))));
  trained.tokens = std::move(tokens).take();
  return trained;
}

TrainedTokenizer train_bpe(const TrainerSettings& settings, TokenList tokens,
                           std::span<const std::string_view> texts) {
  TrainedTokenizer trained{.kind = TokenizerKind::bpe, .specials = tokens.size()};
  std::array<std::string, 256> letters;
  for (std::size_t byte = 0; byte < letters.size(); ++byte)
    letters[byte] = to_byte_characters(single(static_cast<unsigned char>(byte)));
  std::array<std::string, 256> sorted = letters;  // UTF-8 sorts by code point
  std::sort(sorted.begin(), sorted.end());
  for (const std::string& letter : sorted) add_letter(tokens, letter);
  check_vocabulary(settings, trained.specials, tokens.size());

  WordCounts counts;
  const SplitRule rule = SplitRule::gpt2;
  std::string key;
  for (const std::string_view text : texts) {
    split({&rule, 1}, text, [&](std::string_view word) {
      key = word;
      ++counts[key];
    });
  }
  check_words(!counts.empty(), texts.size());
  std::vector<CountedWord> words;
  words.reserve(counts.size());
  for (const auto& [word, count] : counts) {
    CountedWord& counted = words.emplace_back();
    counted.count = count;
    counted.symbols.reserve(word.size());
    for (const char c : word)
      counted.symbols.push_back(tokens.find(letters[static_cast<unsigned char>(c)]));
  }
  const auto merges = merge_pairs(
      {.vocabulary = static_cast<std::size_t>(settings.vocabulary),
       .min_frequency = settings.min_frequency,
       .first_mergeable = static_cast<std::int32_t>(trained.specials),
       .join = [](const std::string& left, const std::string& right) { return left + right; }},
      std::move(words), tokens);
  for (const auto& [left, right] : merges) trained.merges.emplace_back(tokens[left], tokens[right]);
  trained.tokens = std::move(tokens).take();
  return trained;
}

struct Letter {
  std::int64_t count = 0;
  bool in_words = false;  // may be the second character of a word or a later one
};

std::string character(char32_t c) {
  std::string text;
  unicode::append(text, c);
  return text;
}

// Each word and each of its characters, counted. A word that encode() would not look at is left out.
std::map<char32_t, Letter> count_words(LetterCase letters, std::span<const std::string_view> texts,
                                       WordCounts& counts) {
  std::map<char32_t, Letter> alphabet;
  std::string key;
  for (const std::string_view text : texts) {
    split_bert_words(bert_normalised(text, letters), [&](std::string_view word, BertWord kind) {
      std::size_t characters = 0;
      for (std::size_t offset = 0; offset < word.size(); ++characters)
        (void)unicode::next(word, offset);
      if (kind == BertWord::word && characters > kMaxWordCharacters) return;
      for (std::size_t offset = 0; offset < word.size();) {
        Letter& letter = alphabet[unicode::next(word, offset)];
        ++letter.count;
        letter.in_words = kind == BertWord::word;
      }
      if (kind != BertWord::word || characters < 2) return;
      key = word;
      ++counts[key];
    });
  }
  return alphabet;
}

constexpr std::string_view kContinuation = "##";

TrainedTokenizer train_wordpiece(const TrainerSettings& settings, TokenList tokens,
                                 std::span<const std::string_view> texts) {
  TrainedTokenizer trained{
      .kind = TokenizerKind::wordpiece, .letters = settings.letters, .specials = tokens.size()};
  WordCounts counts;
  const std::map<char32_t, Letter> alphabet = count_words(settings.letters, texts, counts);
  check_words(!alphabet.empty(), texts.size());
  for (const auto& [c, letter] : alphabet) {
    if (letter.count < settings.min_character_frequency) continue;
    add_letter(tokens, character(c));
    if (letter.in_words) add_letter(tokens, std::string(kContinuation) + character(c));
  }
  check_vocabulary(settings, trained.specials, tokens.size());

  std::vector<CountedWord> words;
  words.reserve(counts.size());
  for (const auto& [word, count] : counts) {
    CountedWord counted{.count = count};
    for (std::size_t offset = 0; offset < word.size();) {
      const std::string prefix(offset == 0 ? "" : kContinuation);
      counted.symbols.push_back(tokens.find(prefix + character(unicode::next(word, offset))));
    }
    // A word with a rare character is [UNK] to encode().
    const auto& symbols = counted.symbols;
    if (std::find(symbols.begin(), symbols.end(), -1) == symbols.end())
      words.push_back(std::move(counted));
  }
  (void)merge_pairs(
      {.vocabulary = static_cast<std::size_t>(settings.vocabulary),
       .min_frequency = settings.min_frequency,
       .first_mergeable = static_cast<std::int32_t>(trained.specials),
       .join = [](const std::string& left,
                  const std::string& right) { return left + right.substr(kContinuation.size()); }},
      std::move(words), tokens);
  trained.tokens = std::move(tokens).take();
  return trained;
}

}  // namespace

std::vector<std::string> default_specials(TokenizerKind kind) {
  if (kind == TokenizerKind::wordpiece) return {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  return {"<pad>", "<s>", "</s>", "<mask>"};
}

TrainedTokenizer train_tokenizer(const TrainerSettings& settings,
                                 std::span<const std::string_view> texts) {
  check_texts(texts);
  TokenList tokens = special_list(settings);
  switch (settings.kind) {
    case TokenizerKind::bytes:
      return train_bytes(std::move(tokens), texts);
    case TokenizerKind::bpe:
      return train_bpe(settings, std::move(tokens), texts);
    case TokenizerKind::wordpiece:
      break;
  }
  return train_wordpiece(settings, std::move(tokens), texts);
}

}  // namespace phasor::text
