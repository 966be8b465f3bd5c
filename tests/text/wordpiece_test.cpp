#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "phasor/text/tokenizer.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"
#include "text/tokenizer_support.hpp"

namespace phasor::text {
namespace {

using testing::Ids;
constexpr std::int64_t kUnknown = 1, kClassify = 2, kSeparate = 3, kMask = 4;

std::unique_ptr<Tokenizer> tokenizer(const std::vector<std::string>& words,
                                     Segmentation segmentation = Segmentation::roformer,
                                     LetterCase letters = LetterCase::lower) {
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (const std::string& word : words) vocabulary += word + "\n";
  return parse_wordpiece(vocabulary, "vocab.txt", segmentation, letters).value_or_throw();
}

// English of BERT's notes; ids from 5 on. The ids below are those of BertWordPieceTokenizer of the
// Python package `tokenizers` for this vocabulary.
std::unique_ptr<Tokenizer> english(LetterCase letters = LetterCase::lower) {
  return tokenizer({"un", "##aff", "##able", "run", "##ning", "the", "cafe", "caf\u00e9", ",", "!",
                    "$", "a", "##a", "\u1100", "##\u1161", "i", "\u597d", "Run"},
                   Segmentation::bert, letters);
}

TEST(WordPiece, LongestPiecesOfAWord) {
  const auto pieces = english();
  EXPECT_EQ(pieces->encode("unaffable running"), (Ids{5, 6, 7, 8, 9}));
  EXPECT_EQ(pieces->encode("unaffordable the"), (Ids{kUnknown, 10}));  // one [UNK] for the word
  EXPECT_EQ(pieces->encode("the,the!$a"), (Ids{10, 13, 10, 14, 15, 16}));
  EXPECT_EQ(pieces->encode(std::string(100, 'a')).size(), 100U);
  EXPECT_EQ(pieces->encode(std::string(101, 'a')), (Ids{kUnknown}));
  EXPECT_TRUE(pieces->encode("").empty());
  EXPECT_TRUE(pieces->encode(" \t\r\n\u00a0\u3000\u2028").empty());
}

TEST(WordPiece, LowerCaseStripsAccents) {
  const auto lower = english();
  const auto kept = english(LetterCase::keep);
  EXPECT_EQ(lower->encode("CAF\u00c9 Cafe\u0301 RUN"), (Ids{11, 11, 8}));
  EXPECT_EQ(kept->encode("caf\u00e9 cafe Run RUN"), (Ids{12, 11, 22, kUnknown}));
  EXPECT_EQ(lower->encode("\u0130"), (Ids{20}));      // dotted capital I
  EXPECT_EQ(lower->encode("\uac00"), (Ids{18, 19}));  // Hangul falls into its letters
}

TEST(WordPiece, DropsControlCharacters) {
  const auto pieces = english();
  EXPECT_EQ(pieces->encode("r\u00adu\u200bn\x07 \ufffdthe"), (Ids{8, 10}));
  EXPECT_EQ(pieces->encode("the\u597d\u597drun"), (Ids{10, 21, 21, 8}));
}

TEST(WordPiece, SpecialTokensByName) {
  const auto pieces = english();
  EXPECT_EQ(pieces->specials().mask, kMask);
  EXPECT_EQ(pieces->specials().classify, kClassify);
  EXPECT_EQ(pieces->specials().separate, kSeparate);
  EXPECT_EQ(pieces->encode("[CLS]the[MASK]a [SEP]"), (Ids{kClassify, 10, kMask, 16, kSeparate}));
  EXPECT_EQ(pieces->encode("[the[MASK]"), (Ids{kUnknown, 10, kMask}));
  EXPECT_EQ(pieces->encode("[MASK]", SpecialText::as_text), (Ids{kUnknown, kUnknown, kUnknown}));
  EXPECT_EQ(pieces->encode("[mask]"), (Ids{kUnknown, kUnknown, kUnknown}));
  EXPECT_TRUE(pieces->is_special(kMask));
  EXPECT_FALSE(pieces->is_special(kUnknown));
  EXPECT_THROW((void)pieces->piece(23), Error);
  EXPECT_THROW((void)pieces->is_special(-1), Error);
}

TEST(WordPiece, TextThatIsNotUtf8) {
  try {
    (void)english()->encode("the \xff");
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("offset 4"), std::string::npos) << error.what();
  }
}

TEST(WordPiece, DecodeJoinsPiecesAndLeavesSpecialsOut) {
  const auto pieces = english();
  EXPECT_EQ(pieces->decode(pieces->encode("[CLS] Unaffable, the  caf\u00e9! [SEP]")),
            "unaffable, the cafe!");
  EXPECT_EQ(pieces->decode(pieces->encode("the \u597d \u597d run")), "the\u597d\u597drun");
  EXPECT_EQ(pieces->decode(Ids{kUnknown, 10}), "[UNK] the");
  EXPECT_EQ(pieces->piece(6), "aff");
  EXPECT_EQ(pieces->find("##aff"), 6);
}

// jin = today 1, tian = day 2, qi = air: \u4eca\u5929 today, \u5929\u6c14 weather.
TEST(RoFormerSegmentation, WordsOfTheVocabularyFirst) {
  const auto words = tokenizer({"\u4eca", "\u5929", "\u6c14", "\u4eca\u5929", "\u5929\u6c14",
                                "\u975e\u5e38", "\u597d", "\u3002", "ok"});
  const std::string text = "\u4eca\u5929\u5929\u6c14\u975e\u5e38\u597d\u3002";
  EXPECT_EQ(words->encode(text), (Ids{8, 9, 10, 11, 12}));
  EXPECT_EQ(words->decode(words->encode(text)), text);
  // Two cuts of two pieces: the longer first word counts.
  EXPECT_EQ(words->encode("\u4eca\u5929\u6c14"), (Ids{8, 7}));
  // Spaces, punctuation and other letters end a run.
  EXPECT_EQ(words->encode("\u4eca \u5929OK\u5929,\u6c14"), (Ids{5, 6, 13, 6, kUnknown, 7}));
  const auto characters = tokenizer({"\u4eca", "\u5929", "\u4eca\u5929"}, Segmentation::bert);
  EXPECT_EQ(characters->encode("\u4eca\u5929"), (Ids{5, 6}));
}

// Every cut of a run, tried one by one.
struct Exhaustive {
  const Tokenizer& tokenizer;
  const std::vector<std::string>& characters;
  struct Cut {
    std::size_t unknown = 0;
    Ids ids;
    std::vector<std::size_t> lengths;
  };

  [[nodiscard]] Cut best(std::size_t first) const {
    if (first == characters.size()) return {};
    std::vector<Cut> cuts;
    std::string word;
    for (std::size_t end = first; end < characters.size(); ++end) {
      word += characters[end];
      const auto id = tokenizer.find(word);
      if (!id && end > first) continue;
      Cut cut = best(end + 1);
      cut.unknown += id ? 0 : 1;
      cut.ids.insert(cut.ids.begin(), id.value_or(kUnknown));
      cut.lengths.insert(cut.lengths.begin(), end + 1 - first);
      cuts.push_back(std::move(cut));
    }
    return *std::min_element(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) {
      return std::tuple(a.unknown, a.ids.size(), b.lengths) <
             std::tuple(b.unknown, b.ids.size(), a.lengths);
    });
  }
};

TEST(RoFormerSegmentation, FewestUnknownThenFewestPiecesThenLongestFirst) {
  const std::vector<std::string> letters = {"\u4e00", "\u4e8c", "\u4e09"};
  std::mt19937_64 random(12);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < 2; ++i) words.push_back(letters[i]);  // the third is unknown alone
    for (int i = 0; i < 6; ++i) {
      std::string word;
      const std::size_t length = 2 + random() % 3;
      for (std::size_t c = 0; c < length; ++c) word += letters[random() % 3];
      if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
    }
    const auto cutter = tokenizer(words);
    std::vector<std::string> characters;
    std::string run;
    for (std::size_t left = 1 + random() % 11; left > 0; --left) {
      characters.push_back(letters[random() % 3]);
      run += characters.back();
    }
    EXPECT_EQ(cutter->encode(run), (Exhaustive{*cutter, characters}.best(0).ids)) << run;
  }
}

TEST(WordPieceVocabulary, LinesAreIds) {
  const auto unix_lines = parse_wordpiece("[UNK]\nb\na", "v", Segmentation::bert, LetterCase::keep);
  const auto other =
      parse_wordpiece("[UNK]\r\nb\r\na\r\n", "v", Segmentation::bert, LetterCase::keep);
  for (const auto* parsed : {&unix_lines, &other}) {
    ASSERT_TRUE(parsed->ok()) << parsed->error().what();
    EXPECT_EQ((**parsed)->size(), 3);
    EXPECT_EQ((**parsed)->encode("a b"), (Ids{2, 1}));
    EXPECT_FALSE((**parsed)->specials().mask.has_value());
  }
}

TEST(WordPieceVocabulary, Refusals) {
  const struct {
    std::string text, value;
  } cases[] = {
      {"", "empty"},
      {"[UNK]\na\nb\na\n", "line 4: 'a' is a repeat of line 2"},
      {"[UNK]\n\na\n", "line 2: "},
      {"[UNK]\n\xc3(\n", "line 2: "},
      {"\xef\xbb\xbf[UNK]\n", "byte order mark"},
      {"a\nb\n", " 2 tokens has no [UNK]"},
  };
  for (const auto& refused : cases) {
    tests::expect_error(
        ErrorCode::invalid_argument, {"v.txt", refused.value},
        parse_wordpiece(refused.text, "v.txt", Segmentation::bert, LetterCase::lower));
  }
}

TEST(EncodePair, TokenTypesPartTheSentences) {
  const auto pieces = english();
  const PairIds pair = encode_pair(*pieces, "the run", "a");
  EXPECT_EQ(pair.ids, (Ids{kClassify, 10, 8, kSeparate, 16, kSeparate}));
  EXPECT_EQ(pair.token_types, (Ids{0, 0, 0, 0, 1, 1}));
  const PairIds one = encode_pair(*pieces, "the");
  EXPECT_EQ(one.ids, (Ids{kClassify, 10, kSeparate}));
  EXPECT_EQ(one.token_types, (Ids{0, 0, 0}));
  const auto bare = parse_wordpiece("[UNK]\n", "v", Segmentation::bert, LetterCase::keep);
  EXPECT_THROW((void)encode_pair(**bare, "a"), Error);
}

using RoFormerTokenizer = io::testing::TemporaryFolder;

TEST_F(RoFormerTokenizer, SettingsNextToTheVocabulary) {
  io::testing::put(at("vocab.txt"), "[UNK]\nrun\nRun\n\u4eca\n\u5929\n\u4eca\u5929\n");
  io::testing::put(at("config.json"), R"({"model_type": "roformer"})");
  const std::filesystem::path folder = at("vocab.txt").parent_path();
  const auto ids = [&](std::string_view settings) {
    io::testing::put(at("tokenizer_config.json"), settings);
    return read_tokenizer(folder).value_or_throw()->encode("Run \u4eca\u5929");
  };
  EXPECT_EQ(read_tokenizer(folder).value_or_throw()->encode("Run"), (Ids{1}));
  EXPECT_EQ(ids(R"({"do_lower_case": true, "mask_token": {"content": "[MASK]"}})"), (Ids{1, 5}));
  EXPECT_EQ(ids(R"({"do_lower_case": false, "unk_token": "[UNK]"})"), (Ids{2, 5}));
  EXPECT_THROW((void)ids("[]"), Error);
}

}  // namespace
}  // namespace phasor::text
