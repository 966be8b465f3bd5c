// Byte-level BPE from tokenizer.json: merges, added tokens, normalisation, errors.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "text/tokenizer_support.hpp"

namespace phasor::text {
namespace {

using testing::Ids;
using testing::JsonParts;
using testing::pieces_of;
using Pieces = std::vector<std::string>;

// h, e, l, o and what they become.
JsonParts hello() {
  JsonParts parts;
  parts.tokens = testing::byte_tokens({"he", "ll", "hell", "hello", "el", "<|end|>"});
  parts.merges = R"(["h e", "l l", ["he", "ll"], "hell o", "e l"])";
  parts.added = R"([{"id": 261, "content": "<|end|>", "special": true}])";
  return parts;
}

TEST(Bpe, MergesTheLowestRankFirst) {
  const auto tokenizer = testing::tokenizer_of(hello());
  EXPECT_EQ(pieces_of(*tokenizer, "hello"), (Pieces{"hello"}));
  EXPECT_EQ(pieces_of(*tokenizer, "elhel"), (Pieces{"el", "he", "l"}));
  // Of equal ranks, the leftmost.
  EXPECT_EQ(pieces_of(*tokenizer, "lllll"), (Pieces{"ll", "ll", "l"}));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
  EXPECT_EQ(tokenizer->size(), 262);
  EXPECT_EQ(tokenizer->find("hello"), 259);
  EXPECT_EQ(tokenizer->find("hallo"), std::nullopt);
}

TEST(Bpe, TakesAWordThatIsATokenWhole) {
  JsonParts parts = hello();
  parts.tokens.insert(parts.tokens.begin() + 261, "oll");
  parts.added = "[]";
  EXPECT_EQ(pieces_of(*testing::tokenizer_of(parts), "oll"), (Pieces{"o", "ll"}));
  parts.model = R"("type": "BPE", "ignore_merges": true)";
  EXPECT_EQ(pieces_of(*testing::tokenizer_of(parts), "oll"), (Pieces{"oll"}));
}

TEST(Bpe, ReadsSpecialTokensOrLeavesThemText) {
  const auto tokenizer = testing::tokenizer_of(hello());
  EXPECT_EQ(pieces_of(*tokenizer, "he<|end|>he"), (Pieces{"he", "<|end|>", "he"}));
  const Ids plain = tokenizer->encode("he<|end|>he", SpecialText::as_text);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 261), 0);
  EXPECT_EQ(tokenizer->decode(plain), "he<|end|>he");
  EXPECT_TRUE(tokenizer->is_special(261));
  EXPECT_FALSE(tokenizer->is_special(260));
  EXPECT_EQ(tokenizer->decode(Ids{256, 261, 256}), "hehe");
  EXPECT_EQ(tokenizer->specials().stops, Ids{261});
}

TEST(Bpe, TakesSpacesAndWordsAroundAddedTokensAsTheyAsk) {
  JsonParts parts;
  parts.tokens = testing::byte_tokens({"<l>", "<r>", "word"});
  parts.added = R"([{"id": 256, "content": "<l>", "lstrip": true, "normalized": false},
                    {"id": 257, "content": "<r>", "rstrip": true, "normalized": false},
                    {"id": 258, "content": "word", "single_word": true, "normalized": false}])";
  const auto tokenizer = testing::tokenizer_of(parts);
  EXPECT_EQ(pieces_of(*tokenizer, "a  <l>  b"), (Pieces{"a", "<l>", " ", " ", "b"}));
  EXPECT_EQ(pieces_of(*tokenizer, "a <r>  b"), (Pieces{"a", " ", "<r>", "b"}));
  EXPECT_EQ(pieces_of(*tokenizer, "<r>  <l>"), (Pieces{"<r>", "<l>"}));
  EXPECT_EQ(pieces_of(*tokenizer, "-word-"), (Pieces{"-", "word", "-"}));
  EXPECT_EQ(pieces_of(*tokenizer, "words").size(), 5U);
  EXPECT_EQ(pieces_of(*tokenizer, "_word").size(), 5U);
  // Not a special token: untrusted input may contain it, too.
  EXPECT_EQ(pieces_of(*tokenizer, "<l>", SpecialText::as_text), (Pieces{"<l>"}));
}

TEST(Bpe, PrefersTheLongestAddedToken) {
  JsonParts parts;
  parts.tokens = testing::byte_tokens({"<a", "<a>", "<a>>>"});
  parts.added = R"([{"id": 256, "content": "<a"}, {"id": 257, "content": "<a>"},
                    {"id": 258, "content": "<a>>>"}])";
  const auto tokenizer = testing::tokenizer_of(parts);
  EXPECT_EQ(pieces_of(*tokenizer, "<a>>x<a>>>"), (Pieces{"<a>", ">", "x", "<a>>>"}));
  EXPECT_EQ(pieces_of(*tokenizer, "<<a"), (Pieces{"<", "<a"}));
}

// Composed from the standard's own examples: order of marks, exclusions, Hangul, singletons.
TEST(Bpe, BringsTextToFormC) {
  JsonParts parts;
  parts.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "NFC"}]})";
  const auto tokenizer = testing::tokenizer_of(parts);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"cafe\u0301", "caf\u00e9"},
      {"\u212b", "\u00c5"},
      {"q\u0307\u0323", "q\u0323\u0307"},
      {"s\u0323\u0307", "\u1e69"},
      {"s\u0307\u0323", "\u1e69"},
      {"\u1e0b\u0323", "\u1e0d\u0307"},
      {"\u1112\u1161\u11ab", "\ud55c"},
      {"\u1100\uac01", "\u1100\uac01"},
      {"\u0958", "\u0915\u093c"},
      {"a\u0315\u0300\u05ae\u0300b", "\u00e0\u05ae\u0300\u0315b"},
      {"plain \u00e9 text", "plain \u00e9 text"},
  };
  for (const auto& [text, want] : cases)
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), want);
}

TEST(Bpe, FindsNormalisedAddedTokensInNormalisedText) {
  JsonParts parts;
  parts.normalizer = R"({"type": "NFC"})";
  parts.tokens = testing::byte_tokens({"caf\u00e9"});
  parts.added = "[{\"id\": 256, \"content\": \"caf\u00e9\", \"normalized\": true}]";
  EXPECT_EQ(testing::tokenizer_of(parts)->encode("cafe\u0301"), Ids{256});
}

// Any text comes back, whatever the merges are.
RC_GTEST_PROP(Bpe, GivesTextBack, (std::uint32_t seed)) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return random() % n; };
  std::vector<std::string> tokens = testing::byte_tokens();
  std::set<std::string> known(tokens.begin(), tokens.end());
  std::string merges;
  for (int i = 0; i < 60; ++i) {
    const std::string left = tokens[tokens.size() - 1 - below(200)];
    const std::string right = tokens[tokens.size() - 1 - below(200)];
    if (!known.insert(left + right).second) continue;
    tokens.push_back(left + right);
    merges += (merges.empty() ? "[" : ", [") + testing::json_text(left) + ", " +
              testing::json_text(right) + "]";
  }
  JsonParts parts;
  parts.tokens = tokens;
  parts.merges = "[" + merges + "]";
  const auto tokenizer = testing::tokenizer_of(parts);
  std::string text;
  for (unsigned i = below(300); i > 0; --i) {
    const unsigned limits[] = {0x80, 0x800, 0xd800, 0x110000 - 0xe000};
    const unsigned kind = below(4);
    char32_t c = below(limits[kind]);
    if (kind == 3) c += 0xe000;
    if (c < 0x800) {
      testing::append_character(text, c);
    } else if (c < 0x10000) {
      for (const char32_t byte : {0xe0 | c >> 12, 0x80 | (c >> 6 & 0x3f), 0x80 | (c & 0x3f)})
        text += static_cast<char>(byte);
    } else {
      for (const char32_t byte :
           {0xf0 | c >> 18, 0x80 | (c >> 12 & 0x3f), 0x80 | (c >> 6 & 0x3f), 0x80 | (c & 0x3f)})
        text += static_cast<char>(byte);
    }
  }
  const Ids ids = tokenizer->encode(text);
  RC_ASSERT(tokenizer->decode(ids) == text);
  TextStream stream;
  std::string streamed;
  for (const std::int64_t id : ids) streamed += stream.push(tokenizer->piece(id));
  RC_ASSERT(streamed + stream.finish() == text);
}

// Merging takes n log n steps: quadratic time would be minutes here.
TEST(Bpe, MergesALongWordFast) {
  JsonParts parts;
  parts.tokens = testing::byte_tokens({"aa", "aaaa", "aaaaaaaa"});
  parts.merges = R"(["a a", "aa aa", "aaaa aaaa"])";
  const Ids ids = testing::tokenizer_of(parts)->encode(std::string(1'000'000, 'a'));
  EXPECT_EQ(ids, Ids(125'000, 258));
}

TEST(Bpe, NamesTheByteThatIsNotUtf8) {
  const auto tokenizer = testing::tokenizer_of({});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"abc\xff", "0xff at offset 3"},          {"\xc3", "0xc3 at offset 0"},
      {"a\xed\xa0\x80", "0xed at offset 1"},     // a surrogate
      {"ab\xc0\xaf", "0xc0 at offset 2"},        // overlong
      {"\xf4\x90\x80\x80", "0xf4 at offset 0"},  // beyond U+10FFFF
      {"\u00e9\xe2\x82x", "0xe2 at offset 2"},
  };
  for (const auto& [text, part] : cases) {
    try {
      (void)tokenizer->encode(text);
      ADD_FAILURE() << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(Bpe, RefusesIdsOutsideTheVocabulary) {
  const auto tokenizer = testing::tokenizer_of(hello());
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{262}, std::int64_t{1} << 40}) {
    try {
      (void)tokenizer->piece(id);
      ADD_FAILURE() << id;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_range);
      EXPECT_NE(std::string(error.what()).find("from 0 to 261"), std::string::npos) << error.what();
    }
  }
}

// Bytes that end no character become U+FFFD, one for each beginning that is never completed.
TEST(Bpe, DecodesBrokenBytesAsReplacements) {
  const auto tokenizer = testing::tokenizer_of({});
  EXPECT_EQ(tokenizer->decode(Ids{'a', 0xe2, 0x82, 'b', 0xff, 0xf0, 0x9f}), "a\ufffdb\ufffd\ufffd");
  TextStream stream;
  EXPECT_EQ(stream.push("a\xe2"), "a");
  EXPECT_EQ(stream.push("\x82"), "");
  EXPECT_EQ(stream.push("\xac"
                        "c"),
            "\u20ac"
            "c");
  EXPECT_EQ(stream.push("\xe2\x82x"), "\ufffdx");
  EXPECT_EQ(stream.push("\xf0\x9f"), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Bpe, PutsASpaceFirstWhereTheFileSaysSo) {
  JsonParts parts;
  parts.pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": true})";
  const auto tokenizer = testing::tokenizer_of(parts);
  EXPECT_EQ(pieces_of(*tokenizer, "ab"), (Pieces{" ", "a", "b"}));
  EXPECT_EQ(pieces_of(*tokenizer, " a"), (Pieces{" ", "a"}));
}

TEST(Bpe, TakesTheBeginTokenOfThePostProcessor) {
  JsonParts parts = hello();
  EXPECT_FALSE(testing::tokenizer_of(parts)->specials().add_begin);
  parts.more = R"(, "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}},
       {"Sequence": {"id": "A", "type_id": 0}}]}]})";
  const auto tokenizer = testing::tokenizer_of(parts);
  EXPECT_TRUE(tokenizer->specials().add_begin);
  EXPECT_EQ(tokenizer->specials().begin, 261);
}

TEST(Bpe, RefusesHostileFilesInOneLine) {
  const auto refused = [](JsonParts parts, std::string_view value,
                          ErrorCode code = ErrorCode::invalid_argument) {
    testing::expect_refusal(parse_tokenizer_json(parts.text(), "file"), value, code);
  };
  const auto with = [](auto change) {
    JsonParts parts = hello();
    change(parts);
    return parts;
  };
  refused(with([](JsonParts& p) { p.merges = R"(["h x\n"])"; }), "merge 0: ");
  refused(with([](JsonParts& p) { p.merges = R"(["h e", "h e"])"; }), "merge 1: 'h e'");
  refused(with([](JsonParts& p) { p.merges = R"(["he"])"; }), "\"he\"");
  refused(with([](JsonParts& p) { p.merges = R"([["h", 1]])"; }), "[\"h\",1]");
  refused(with([](JsonParts& p) { p.merges = R"([["h"]])"; }), "[\"h\"]");
  refused(with([](JsonParts& p) { p.merges = "null"; }), "\"merges\"");
  refused(with([](JsonParts& p) {
            p.tokens.clear();
            p.added = "[]";
            p.merges = "[]";
          }),
          "1 to");
  refused(with([](JsonParts& p) { p.added = R"([{"id": 7, "content": "x y"}])"; }), "id 7 ");
  refused(with([](JsonParts& p) { p.added = R"([{"id": 7, "content": "he"}])"; }), "256");
  refused(with([](JsonParts& p) { p.added = R"([{"id": 1000000, "content": "x y"}])"; }),
          "1000000");
  refused(with([](JsonParts& p) { p.added = R"([{"id": -1, "content": "x y"}])"; }), "got -1");
  refused(with([](JsonParts& p) { p.added = R"([{"id": 300}])"; }), "\"content\"");
  refused(with([](JsonParts& p) { p.added = R"([{"content": "x y"}])"; }), "\"id\" of 'x y'");
  refused(with([](JsonParts& p) { p.added = R"([1])"; }), "got 1");
  refused(with([](JsonParts& p) { p.added = R"({})"; }), "got {}");
  refused(with([](JsonParts& p) { p.model = R"("type": "Unigram")"; }), "Unigram",
          ErrorCode::unsupported);
  refused(with([](JsonParts& p) { p.model = R"("dropout": 0.1)"; }), "dropout",
          ErrorCode::unsupported);
  refused(with([](JsonParts& p) { p.model = R"("end_of_word_suffix": "</w>")"; }), "</w>",
          ErrorCode::unsupported);
  refused(with([](JsonParts& p) { p.normalizer = R"({"type": "Lowercase"})"; }), "Lowercase",
          ErrorCode::unsupported);
  refused(with([](JsonParts& p) { p.normalizer = "7"; }), "got 7");
  refused(with([](JsonParts& p) { p.pre_tokenizer = "null"; }), "got null", ErrorCode::unsupported);
  testing::expect_refusal(parse_tokenizer_json("{", "file"), "line 1, column 2");
  testing::expect_refusal(parse_tokenizer_json("{}", "file"), "\"model\"");
}

}  // namespace
}  // namespace phasor::text
