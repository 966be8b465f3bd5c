#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "phasor/io/internal/json.hpp"
#include "phasor/text/internal/trainer.hpp"
#include "support/temporary_folder.hpp"
#include "text/tokenizer_support.hpp"
#include "text/unicode/unicode.hpp"

namespace phasor::text::testing {
namespace {

using Texts = std::vector<std::string_view>;
using Merges = std::vector<std::pair<std::string, std::string>>;
using tests::expect_error;

constexpr std::string_view kProse =
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, "
    "must be "
    "in want of a wife. However little known the feelings or views of such a man may be on his "
    "first "
    "entering a neighbourhood, this truth is so well fixed in the minds of the surrounding "
    "families, "
    "that he is considered as the rightful property of some one or other of their daughters.";
constexpr std::string_view kChinese =
    "话说天下大势，分久必合，合久必分。天下大势 in the end: 天下。";

std::string file_of(const TrainedTokenizer& trained, std::string_view name) {
  for (const TokenizerFile& file : tokenizer_files(trained))
    if (file.name == name) return file.content;
  ADD_FAILURE() << "no file " << name;
  return "";
}

std::unique_ptr<Tokenizer> read_back(const TrainedTokenizer& trained) {
  return parse_tokenizer_json(file_of(trained, "tokenizer.json"), "tokenizer.json")
      .value_or_throw();
}

// Every few code points of each plane, surrogates left out.
std::string assorted_text() {
  std::string text;
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const auto c = static_cast<char32_t>(random() % (i % 2 == 0 ? 0x110000 : 0x3000));
    if (c < 0xd800 || c > 0xdfff) unicode::append(text, c);
  }
  return text;
}

// The definition: counts all pairs anew before each merge.
Merges plain_merges(const std::map<std::string, int>& words, std::vector<std::string> tokens,
                    std::size_t vocabulary, int min_frequency) {
  const auto id_of = [&](const std::string& token) {
    return std::find(tokens.begin(), tokens.end(), token) - tokens.begin();
  };
  std::vector<std::pair<std::vector<std::string>, int>> split;
  for (const auto& [word, count] : words) {
    std::vector<std::string> symbols;
    for (const char c : word) symbols.emplace_back(1, c);
    split.emplace_back(symbols, count);
  }
  Merges merges;
  while (tokens.size() < vocabulary) {
    std::map<std::pair<std::string, std::string>, int> counts;
    for (const auto& [symbols, count] : split)
      for (std::size_t i = 1; i < symbols.size(); ++i)
        counts[{symbols[i - 1], symbols[i]}] += count;
    std::pair<std::string, std::string> best;
    int most = 0;
    for (const auto& [pair, count] : counts) {
      const bool earlier = most > 0 && count == most &&
                           std::pair(id_of(pair.first), id_of(pair.second)) <
                               std::pair(id_of(best.first), id_of(best.second));
      if (count > most || earlier) {
        best = pair;
        most = count;
      }
    }
    if (most < min_frequency) break;
    merges.push_back(best);
    const std::string joined = best.first + best.second;
    if (static_cast<std::size_t>(id_of(joined)) == tokens.size()) tokens.push_back(joined);
    for (auto& [symbols, count] : split) {
      std::vector<std::string> merged;
      for (std::size_t i = 0; i < symbols.size(); ++i) {
        if (i + 1 < symbols.size() && symbols[i] == best.first && symbols[i + 1] == best.second) {
          merged.push_back(joined);
          ++i;
        } else {
          merged.push_back(symbols[i]);
        }
      }
      symbols = merged;
    }
  }
  return merges;
}

TEST(TrainTokenizer, MergesTheMostFrequentPairAndOfEqualOnesTheLowestIds) {
  // (l, o) and (o, w) occur 7 times each, (w, e) 6 times.
  const TrainedTokenizer trained =
      train_tokenizer({.vocabulary = 260 + 4, .min_frequency = 1},
                      Texts{"low\nlow\nlower\nlower\nlower\nlowe\nlowest"});
  const Merges expected = {{"l", "o"}, {"lo", "w"}, {"low", "e"}, {"lowe", "r"}};
  EXPECT_EQ(trained.merges, expected);
  EXPECT_EQ(trained.tokens.size(), 264U);
  EXPECT_EQ(trained.tokens[0], "<pad>");
  EXPECT_EQ(trained.tokens[4], "!");
  EXPECT_EQ(trained.tokens.back(), "lower");
}

TEST(TrainTokenizer, AgreesWithCountingAnewBeforeEachMerge) {
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    // Few letters and long words: overlaps and equal counts are frequent. Each line is a word.
    std::map<std::string, int> words;
    std::string text;
    const unsigned letters = 1 + random() % 3;
    for (int i = 0; i < 12; ++i) {
      std::string word;
      for (unsigned length = 1 + random() % 9; length > 0; --length)
        word += static_cast<char>('a' + random() % letters);
      ++words[word];
      text += word;
      text += '\n';
    }
    words.erase("");
    std::vector<std::string> tokens = default_specials(TokenizerKind::bpe);
    const TrainedTokenizer alphabet = train_tokenizer({.vocabulary = 260}, Texts{"a"});
    tokens = alphabet.tokens;
    const TrainedTokenizer trained =
        train_tokenizer({.vocabulary = 290, .min_frequency = 2}, Texts{text});
    // Line ends are words of one byte each and merge with nothing.
    EXPECT_EQ(trained.merges, plain_merges(words, tokens, 290, 2)) << text;
  }
}

TEST(TrainTokenizer, DoesNotDependOnTheOrderOfTexts) {
  const TrainerSettings settings{.vocabulary = 330};
  const TrainedTokenizer one = train_tokenizer(settings, Texts{kProse, kChinese, "wife wife"});
  const TrainedTokenizer other = train_tokenizer(settings, Texts{"wife wife", kChinese, kProse});
  EXPECT_EQ(one.tokens, other.tokens);
  EXPECT_EQ(one.merges, other.merges);
  EXPECT_GT(one.merges.size(), 20U);
}

TEST(TrainTokenizer, BytesRoundTripAnyText) {
  const TrainedTokenizer trained =
      train_tokenizer({.kind = TokenizerKind::bytes, .vocabulary = 0}, Texts{"x"});
  ASSERT_EQ(trained.tokens.size(), 260U);
  const auto tokenizer = read_back(trained);
  EXPECT_EQ(tokenizer->encode("aé"), (Ids{4 + 'a', 4 + 0xc3, 4 + 0xa9}));
  for (const std::string& text :
       {assorted_text(), std::string(kChinese), std::string("\0\n ", 3)}) {
    const Ids ids = tokenizer->encode(text, SpecialText::as_text);
    EXPECT_EQ(ids.size(), text.size());
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
}

TEST(TrainTokenizer, BpeRoundTripsAnyText) {
  const auto tokenizer =
      read_back(train_tokenizer({.vocabulary = 400}, Texts{kProse, kChinese, kChinese}));
  for (const std::string& text : {assorted_text(), std::string(kProse), std::string(kChinese)})
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, SpecialText::as_text)), text);
  EXPECT_LT(tokenizer->encode(kProse).size(), kProse.size() * 6 / 10);
}

TEST(TrainTokenizer, NeverMergesIntoASpecialToken) {
  const TrainedTokenizer trained =
      train_tokenizer({.vocabulary = 300, .specials = {"ab"}}, Texts{"ab ab ab ab abc abc"});
  for (const auto& [left, right] : trained.merges) EXPECT_NE(left + right, "ab");
  EXPECT_EQ(std::count(trained.tokens.begin(), trained.tokens.end(), "ab"), 1);
  EXPECT_NO_THROW((void)read_back(trained));
}

// Merges and ids of the package `tokenizers` (data/make_trained.py).
class TrainedByTokenizers : public io::testing::TemporaryFolder {
 protected:
  static std::string data(std::string_view name) {
    return io::testing::get(std::filesystem::path(PHASOR_TEXT_DATA_DIR) / name);
  }
  const std::string corpus_ = data("train.txt");
  const io::Json expected_ = io::parse_object(data("trained.json"));
};

TEST_F(TrainedByTokenizers, BpeHasTheSameMergesAndIds) {
  const TrainedTokenizer trained = train_tokenizer({.vocabulary = 700}, Texts{corpus_});
  const io::Json& merges = expected_["merges"];
  ASSERT_EQ(trained.merges.size(), merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    EXPECT_EQ(trained.merges[i].first, merges[i][0].text()) << i;
    EXPECT_EQ(trained.merges[i].second, merges[i][1].text()) << i;
  }
  EXPECT_EQ(read_back(trained)->encode(expected_["text"].text()), expected_["bpe_ids"].get<Ids>());
}

TEST_F(TrainedByTokenizers, WordPieceHasTheSameIds) {
  const TrainedTokenizer trained = train_tokenizer(
      {.kind = TokenizerKind::wordpiece, .vocabulary = 1200, .letters = LetterCase::lower},
      Texts{corpus_});
  (void)save_tokenizer(trained, at("words")).value_or_throw();
  const auto tokenizer = read_tokenizer(at("words")).value_or_throw();
  EXPECT_EQ(tokenizer->encode(expected_["text"].text()), expected_["wordpiece_ids"].get<Ids>());
  EXPECT_EQ(read_back(trained)->encode(expected_["text"].text()),
            expected_["wordpiece_ids"].get<Ids>());
  EXPECT_EQ(encode_pair(*tokenizer, "The end", "of 天下").ids,
            expected_["wordpiece_pair_ids"].get<Ids>());
}

class TrainedFiles : public io::testing::TemporaryFolder {};

TEST_F(TrainedFiles, SpecialTokensHaveTheirRoles) {
  ASSERT_TRUE(
      save_tokenizer(train_tokenizer({.vocabulary = 300}, Texts{kProse}), at("new/bpe")).ok());
  const auto tokenizer = read_tokenizer(at("new/bpe")).value_or_throw();
  const SpecialTokens& specials = tokenizer->specials();
  EXPECT_EQ(specials.pad, 0);
  EXPECT_EQ(specials.begin, 1);
  EXPECT_EQ(specials.classify, 1);
  EXPECT_EQ(specials.end, 2);
  EXPECT_EQ(specials.separate, 2);
  EXPECT_EQ(specials.mask, 3);
  EXPECT_FALSE(specials.add_begin);
  EXPECT_EQ(tokenizer->encode("<mask>"), Ids{3});
  EXPECT_EQ(io::testing::get(at("new/bpe/merges.txt")).substr(0, 14), "#version: 0.2\n");
}

TEST_F(TrainedFiles, WordPieceIsReadBack) {
  const TrainedTokenizer trained = train_tokenizer(
      {.kind = TokenizerKind::wordpiece, .vocabulary = 150, .letters = LetterCase::lower},
      Texts{kProse, kChinese});
  ASSERT_TRUE(save_tokenizer(trained, at("words")).ok());
  const auto tokenizer = read_tokenizer(at("words")).value_or_throw();
  ASSERT_EQ(tokenizer->size(), static_cast<std::int64_t>(trained.tokens.size()));
  for (std::int64_t id = 0; id < tokenizer->size(); ++id)
    EXPECT_EQ(tokenizer->find(trained.tokens[static_cast<std::size_t>(id)]), id);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("The TRUTH of a 天下")), "the truth of a天下");
  EXPECT_EQ(tokenizer->specials().mask, 4);
  // Each Chinese character is a word; letters of words have both forms.
  EXPECT_FALSE(tokenizer->find("天下"));
  EXPECT_FALSE(tokenizer->find("##天"));
  EXPECT_TRUE(tokenizer->find("##q") || !tokenizer->find("q"));
  EXPECT_TRUE(tokenizer->find("##w") && tokenizer->find("w"));
  EXPECT_TRUE(tokenizer->find("the"));
}

// The same tokenizer without files, and by its files.
TEST_F(TrainedFiles, AreNotNeeded) {
  for (const TrainerSettings& settings :
       {TrainerSettings{.kind = TokenizerKind::bytes},
        {.kind = TokenizerKind::bpe, .vocabulary = 300},
        {.kind = TokenizerKind::wordpiece, .vocabulary = 150},
        {.kind = TokenizerKind::wordpiece, .vocabulary = 150, .letters = LetterCase::lower}}) {
    const TrainedTokenizer trained = train_tokenizer(settings, Texts{kProse, kChinese});
    ASSERT_TRUE(save_tokenizer(trained, at("made")).ok());
    const auto made = tokenizer_of(trained), read = read_tokenizer(at("made")).value_or_throw();
    const std::string text = "However IN the É天下 <mask> [MASK]";
    EXPECT_EQ(made->encode(text), read->encode(text));
    EXPECT_EQ(made->size(), read->size());
    EXPECT_EQ(made->description(), read->description());
    const SpecialTokens &one = made->specials(), &other = read->specials();
    for (const auto role :
         {&SpecialTokens::begin, &SpecialTokens::end, &SpecialTokens::pad, &SpecialTokens::mask,
          &SpecialTokens::classify, &SpecialTokens::separate, &SpecialTokens::unknown}) {
      EXPECT_EQ(one.*role, other.*role);
    }
    EXPECT_TRUE(one.mask && one.separate);
    std::filesystem::remove_all(at("made"));
  }
}

TEST_F(TrainedFiles, WordPieceIsReadFromTokenizerJson) {
  for (const LetterCase letters : {LetterCase::keep, LetterCase::lower}) {
    const TrainedTokenizer trained =
        train_tokenizer({.kind = TokenizerKind::wordpiece, .vocabulary = 150, .letters = letters},
                        Texts{kProse, kChinese});
    ASSERT_TRUE(save_tokenizer(trained, at("words")).ok());
    const std::string text = "However IN the É天下 [MASK]";
    const Ids by_lines = read_tokenizer(at("words")).value_or_throw()->encode(text);
    ASSERT_TRUE(std::filesystem::remove(at("words/vocab.txt")));
    const auto tokenizer = read_tokenizer(at("words")).value_or_throw();
    EXPECT_EQ(tokenizer->encode(text), by_lines);
    EXPECT_EQ(tokenizer->specials().mask, 4);
    EXPECT_EQ(tokenizer->description(), "wordpiece/bert");
    io::testing::put(at("words/config.json"), R"({"model_type": "roformer"})");
    EXPECT_EQ(read_tokenizer(at("words")).value_or_throw()->description(), "wordpiece/roformer");
    ASSERT_TRUE(std::filesystem::remove(at("words/config.json")));
  }
}

TEST_F(TrainedFiles, WordPieceOfAnotherFormIsRefused) {
  const TrainedTokenizer trained = train_tokenizer(
      {.kind = TokenizerKind::wordpiece, .vocabulary = 150, .letters = LetterCase::lower},
      Texts{kProse});
  const std::string good = file_of(trained, "tokenizer.json");
  const auto refused = [&](std::string_view from, std::string_view to, std::string_view value,
                           ErrorCode code = ErrorCode::unsupported) {
    std::string text = good;
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    expect_refusal(parse_tokenizer_json(text, "tokenizer.json"), value, code);
  };
  refused("BertNormalizer", "Lowercase", "Lowercase");
  refused("BertPreTokenizer", "Whitespace", "Whitespace");
  refused("\"clean_text\": true", "\"clean_text\": false", "clean_text");
  refused("\"strip_accents\": null", "\"strip_accents\": false", "strip_accents");
  refused("\"max_input_chars_per_word\": 100", "\"max_input_chars_per_word\": 50", "50");
  refused("\"continuing_subword_prefix\": \"##\"", "\"continuing_subword_prefix\": \"@@\"", "@@");
  refused("\"[UNK]\": 1", "\"[UNK]\": 200", "200", ErrorCode::invalid_argument);
}

TEST(TrainTokenizer, RareCharactersHaveNoTokenWhenAsked) {
  const TrainedTokenizer trained = train_tokenizer(
      {.kind = TokenizerKind::wordpiece, .vocabulary = 100, .min_character_frequency = 2},
      Texts{"天天地 on on ox"});
  const std::set<std::string> tokens(trained.tokens.begin(), trained.tokens.end());
  EXPECT_TRUE(tokens.contains("天"));
  EXPECT_FALSE(tokens.contains("地"));
  EXPECT_TRUE(tokens.contains("on"));
  EXPECT_FALSE(tokens.contains("##x"));
}

TEST(TrainTokenizer, Refusals) {
  const auto train = [](const TrainerSettings& settings, const Texts& texts) {
    return [=] { return train_tokenizer(settings, texts); };
  };
  const auto bad = ErrorCode::invalid_argument;
  for (const TokenizerKind kind :
       {TokenizerKind::bytes, TokenizerKind::bpe, TokenizerKind::wordpiece}) {
    expect_error(bad, {"0 texts"}, train({.kind = kind}, {}));
    expect_error(bad, {"2 texts"}, train({.kind = kind}, {"", ""}));
    expect_error(bad, {"text 1", "0xff", "offset 2"}, train({.kind = kind}, {"a", "b\n\xff"}));
    expect_error(bad, {"[X]"}, train({.kind = kind, .specials = {"[UNK]", "[X]", "[X]"}}, {"a"}));
    expect_error(bad, {"''"}, train({.kind = kind, .specials = {"[UNK]", ""}}, {"a"}));
  }
  expect_error(bad, {"260", "256", "259"}, train({.vocabulary = 259}, {"a"}));
  // 5 special tokens; a, ##a and the full stop.
  expect_error(bad, {"8", "5", "3", "7"},
               train({.kind = TokenizerKind::wordpiece, .vocabulary = 7}, {"a ."}));
  expect_error(bad, {"min_frequency", "0"}, train({.min_frequency = 0}, {"a"}));
  expect_error(bad, {"[UNK]"},
               train({.kind = TokenizerKind::wordpiece, .specials = {"[PAD]"}}, {"a"}));
  expect_error(bad, {"'a'"}, train({.specials = {"a"}}, {"a"}));
}

TEST_F(TrainedFiles, AFolderThatCannotBeMadeIsRefused) {
  io::testing::put(at("file"), "x");
  const TrainedTokenizer trained = train_tokenizer({.kind = TokenizerKind::bytes}, Texts{"x"});
  expect_error(ErrorCode::io, {"file"}, save_tokenizer(trained, at("file")));
}

}  // namespace
}  // namespace phasor::text::testing
