// SentencePiece's BPE as tokenizer.json writes it: the ways to make spaces visible.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/tokenizer_support.hpp"

namespace phasor::text {
namespace {

using testing::Ids;
using testing::JsonParts;

// Ids:   0 <unk>  1 <s>  2 _  3 a  4 b  5 ab  6 _a  7 __  8 <0xC3>  9 <0xA9>  10 <t>
JsonParts parts_with(const std::string& normalizer, const std::string& pre_tokenizer) {
  JsonParts parts;
  parts.tokens = {"<unk>",
                  "<s>",
                  "\u2581",
                  "a",
                  "b",
                  "ab",
                  "\u2581"
                  "a",
                  "\u2581\u2581",
                  "<0xC3>",
                  "<0xA9>",
                  "<t>"};
  parts.merges = "[[\"\u2581\", \"a\"], [\"\u2581\", \"\u2581\"], \"a b\"]";
  parts.model = R"("type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true)";
  parts.added = R"([{"id": 0, "content": "<unk>", "special": true},
                    {"id": 1, "content": "<s>", "special": true},
                    {"id": 10, "content": "<t>", "normalized": false}])";
  parts.normalizer = normalizer;
  parts.pre_tokenizer = pre_tokenizer;
  return parts;
}

const std::string kReplace =
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}";
const std::string kPrepend = "{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}";
const std::string kLlama2 =
    R"({"type": "Sequence", "normalizers": [)" + kPrepend + ", " + kReplace + "]}";

std::string metaspace(const std::string& scheme, const std::string& split) {
  return "{\"type\": \"Metaspace\", \"replacement\": \"\u2581\", \"prepend_scheme\": \"" + scheme +
         "\", \"split\": " + split + "}";
}

TEST(CharacterBpe, PutsASpaceBeforeEveryPart) {
  const auto tokenizer = testing::tokenizer_of(parts_with(kLlama2, "null"));
  EXPECT_EQ(tokenizer->description(), "bpe/sentencepiece");
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{6, 4}));
  EXPECT_EQ(tokenizer->encode(" a"), (Ids{2, 6}));
  EXPECT_EQ(tokenizer->encode("b  a"), (Ids{2, 4, 2, 6}));
  EXPECT_EQ(tokenizer->encode("a<s>a<t>b"), (Ids{6, 1, 6, 10, 2, 4}));
}

TEST(CharacterBpe, PutsASpaceWhereTheSchemeSays) {
  const auto first = testing::tokenizer_of(parts_with("null", metaspace("first", "false")));
  EXPECT_EQ(first->encode("a<s>a"), (Ids{6, 1, 3}));
  EXPECT_EQ(first->encode(" a"), (Ids{6}));
  EXPECT_EQ(first->encode("a   "), (Ids{6, 7, 2}));
  const auto always = testing::tokenizer_of(parts_with("null", metaspace("always", "true")));
  EXPECT_EQ(always->encode("a<s>a"), (Ids{6, 1, 6}));
  // Every space begins a word of its own.
  EXPECT_EQ(always->encode("a  a"), (Ids{6, 2, 6}));
  const auto never = testing::tokenizer_of(parts_with("null", metaspace("never", "true")));
  EXPECT_EQ(never->encode("ab a"), (Ids{5, 6}));
}

TEST(CharacterBpe, ReadsGemmasWay) {
  const std::string split =
      R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"})";
  const auto tokenizer = testing::tokenizer_of(parts_with(kReplace, split));
  EXPECT_EQ(tokenizer->encode("ab a  b"), (Ids{5, 6, 7, 4}));
  EXPECT_EQ(tokenizer->decode(Ids{5, 6, 7, 4}), "ab a  b");
}

TEST(CharacterBpe, FallsBackToBytesThenToTheUnknownToken) {
  const auto tokenizer = testing::tokenizer_of(parts_with(kReplace, "null"));
  EXPECT_EQ(tokenizer->encode("a\u00e9"), (Ids{3, 8, 9}));
  EXPECT_EQ(tokenizer->encode("axyb"), (Ids{3, 0, 4}));
  JsonParts strict = parts_with(kReplace, "null");
  strict.model = R"("type": "BPE", "byte_fallback": false)";
  EXPECT_THROW((void)testing::tokenizer_of(strict)->encode("\u00e9"), Error);
}

TEST(CharacterBpe, DropsTheFirstSpaceOfTheText) {
  JsonParts parts = parts_with(kLlama2, "null");
  parts.more = R"(, "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
  const auto tokenizer = testing::tokenizer_of(parts);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a b")), "a b");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" a")), " a");
  EXPECT_EQ(tokenizer->piece(6), " a");
}

TEST(CharacterBpe, RefusesWhatDoesNotFitTogether) {
  const auto refused = [](const JsonParts& parts, std::string_view value,
                          ErrorCode code = ErrorCode::invalid_argument) {
    testing::expect_refusal(parse_tokenizer_json(parts.text(), "t"), value, code);
  };
  refused(parts_with(kPrepend, "null"), "Prepend");
  refused(parts_with(kReplace, std::string(testing::kByteLevel)), "ByteLevel");
  refused(parts_with("null", "null"), "got null", ErrorCode::unsupported);
  refused(parts_with("null", metaspace("last", "true")), "'last'");
  refused(parts_with(R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, )" + kReplace + "]}",
                     "null"),
          "NFC", ErrorCode::unsupported);
}

}  // namespace
}  // namespace phasor::text
