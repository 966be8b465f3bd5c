// How text is cut into words, against values of the `tokenizers` package (0.23).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "text/tokenizer_support.hpp"

namespace phasor::text {
namespace {

using testing::JsonParts;

struct WordsCase {
  std::string text;
  std::vector<std::string> words;
};

// Every word is a token and is taken whole; a wrong cut shows as single bytes or other words.
void expect_words(const std::string& pre_tokenizer, const std::vector<WordsCase>& cases) {
  for (const WordsCase& c : cases) {
    std::vector<std::string> tokens;
    for (const std::string& word : c.words) {
      const std::string token = testing::byte_characters(word);
      const std::vector<std::string> bytes = testing::byte_tokens();
      if (std::find(tokens.begin(), tokens.end(), token) == tokens.end() &&
          std::find(bytes.begin(), bytes.end(), token) == bytes.end())
        tokens.push_back(token);
    }
    JsonParts parts;
    parts.tokens = testing::byte_tokens(tokens);
    parts.model = R"("type": "BPE", "ignore_merges": true)";
    parts.pre_tokenizer = pre_tokenizer;
    EXPECT_EQ(testing::pieces_of(*testing::tokenizer_of(parts), c.text), c.words) << c.text;
  }
}

std::string sequence(const std::string& first, const std::string& byte_level) {
  return R"({"type": "Sequence", "pretokenizers": [)" + first + ", " + byte_level + "]}";
}

std::string split(const std::string& regex) {
  return sequence(R"({"type": "Split", "pattern": {"Regex": )" + testing::json_text(regex) +
                      R"(}, "behavior": "Isolated", "invert": false})",
                  R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})");
}

const std::string kDigits = R"({"type": "Digits", "individual_digits": true})";
const std::string kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<WordsCase> kGpt2Cases = {
    {"Hello world", {"Hello", " world"}},
    {"I'm sure they'll've done it, don't YOU'RE I'D",
     {"I", "'m", " sure", " they", "'ll", "'ve", " done", " it", ",", " don", "'t", " YOU", "'",
      "RE", " I", "'", "D"}},
    {"'s'S'LLx", {"'s", "'", "S", "'", "LLx"}},
    {"it\342\200\231s '\305\277o", {"it", "\342\200\231", "s", " '", "\305\277o"}},
    {"x  5", {"x", " ", " 5"}},
    {"a   b    c   ", {"a", "  ", " b", "   ", " c", "   "}},
    {"12345 and 67", {"12345", " and", " 67"}},
    {"abc123def45", {"abc", "123", "def", "45"}},
    {"\331\243\331\244\331\245\331\246 \342\205\247\302\275",
     {"\331\243\331\244\331\245\331\246", " \342\205\247\302\275"}},
    {"\n\n  two\n", {"\n\n ", " two", "\n"}},
    {"line \r\n\r\n next", {"line", " \r\n\r\n", " next"}},
    {"\tint x=42;\n\tfor", {"\t", "int", " x", "=", "42", ";", "\n", "\t", "for"}},
    {"tabs\t\tx", {"tabs", "\t", "\t", "x"}},
    {"!!! ... ?!\n\n(ok)", {"!!!", " ...", " ?!", "\n", "\n", "(", "ok", ")"}},
    {"\344\270\255\346\226\207\346\226\207\346\234\254 \346\227\213\350\275\254\343\200\202",
     {"\344\270\255\346\226\207\346\226\207\346\234\254", " \346\227\213\350\275\254",
      "\343\200\202"}},
    {"caf\303\251 na\303\257ve", {"caf\303\251", " na\303\257ve"}},
    {"e\314\201x", {"e", "\314\201", "x"}},
    {"\343\200\200full\302\240width", {"\343\200\200", "full", "\302\240", "width"}},
    {"\360\237\230\200\360\237\230\200 hi", {"\360\237\230\200\360\237\230\200", " hi"}},
    {"$100,000.50!", {"$", "100", ",", "000", ".", "50", "!"}},
    {"foo_bar-baz", {"foo", "_", "bar", "-", "baz"}},
    {"   ", {"   "}},
    {"\n", {"\n"}},
    {" \n \n x", {" \n \n", " x"}},
    {"\340\244\271\340\244\277\340\244\250\340\245\215\340\244\246\340\245\200",
     {"\340\244\271", "\340\244\277", "\340\244\250", "\340\245\215", "\340\244\246",
      "\340\245\200"}},
};

const std::vector<WordsCase> kLlama3Cases = {
    {"Hello world", {"Hello", " world"}},
    {"I'm sure they'll've done it, don't YOU'RE I'D",
     {"I", "'m", " sure", " they", "'ll", "'ve", " done", " it", ",", " don", "'t", " YOU", "'RE",
      " I", "'D"}},
    {"'s'S'LLx", {"'s", "'S", "'LL", "x"}},
    {"it\342\200\231s '\305\277o", {"it", "\342\200\231s", " '", "\305\277o"}},
    {"x  5", {"x", " ", " ", "5"}},
    {"a   b    c   ", {"a", "  ", " b", "   ", " c", "   "}},
    {"12345 and 67", {"123", "45", " and", " ", "67"}},
    {"abc123def45", {"abc", "123", "def", "45"}},
    {"\331\243\331\244\331\245\331\246 \342\205\247\302\275",
     {"\331\243\331\244\331\245", "\331\246", " ", "\342\205\247\302\275"}},
    {"\n\n  two\n", {"\n\n", " ", " two", "\n"}},
    {"line \r\n\r\n next", {"line", " \r\n\r\n", " next"}},
    {"\tint x=42;\n\tfor", {"\tint", " x", "=", "42", ";\n", "\tfor"}},
    {"tabs\t\tx", {"tabs", "\t", "\tx"}},
    {"!!! ... ?!\n\n(ok)", {"!!!", " ...", " ?!\n\n", "(ok", ")"}},
    {"\344\270\255\346\226\207\346\226\207\346\234\254 \346\227\213\350\275\254\343\200\202",
     {"\344\270\255\346\226\207\346\226\207\346\234\254", " \346\227\213\350\275\254",
      "\343\200\202"}},
    {"caf\303\251 na\303\257ve", {"caf\303\251", " na\303\257ve"}},
    {"e\314\201x", {"e", "\314\201x"}},
    {"\343\200\200full\302\240width", {"\343\200\200full", "\302\240width"}},
    {"\360\237\230\200\360\237\230\200 hi", {"\360\237\230\200\360\237\230\200", " hi"}},
    {"$100,000.50!", {"$", "100", ",", "000", ".", "50", "!"}},
    {"foo_bar-baz", {"foo", "_bar", "-baz"}},
    {"   ", {"   "}},
    {"\n", {"\n"}},
    {" \n \n x", {" \n \n", " x"}},
    {"\340\244\271\340\244\277\340\244\250\340\245\215\340\244\246\340\245\200",
     {"\340\244\271", "\340\244\277\340\244\250", "\340\245\215\340\244\246", "\340\245\200"}},
};

TEST(Pretokenizer, CutsAsGpt2) {
  expect_words(std::string(testing::kByteLevel), kGpt2Cases);
  expect_words(
      split(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
      kGpt2Cases);
}

TEST(Pretokenizer, CutsAsLlama3) { expect_words(split(kLlama3), kLlama3Cases); }

TEST(Pretokenizer, CutsDigitsOneByOneForQwen2) {
  expect_words(
      split(kQwen2),
      {
          {"12345 and 67", {"1", "2", "3", "4", "5", " and", " ", "6", "7"}},
          {"abc123def45", {"abc", "1", "2", "3", "def", "4", "5"}},
          {"\331\243\331\244\331\245\331\246 \342\205\247\302\275",
           {"\331\243", "\331\244", "\331\245", "\331\246", " ", "\342\205\247", "\302\275"}},
          {"\tint x=42;\n\tfor", {"\tint", " x", "=", "4", "2", ";\n", "\tfor"}},
          {"$100,000.50!", {"$", "1", "0", "0", ",", "0", "0", "0", ".", "5", "0", "!"}},
      });
}

// The digits are cut out first, so that the spaces before them stay together.
TEST(Pretokenizer, CutsDigitsOneByOneForSmolLm) {
  expect_words(
      sequence(kDigits, std::string(testing::kByteLevel)),
      {
          {"x  5", {"x", "  ", "5"}},
          {"12345 and 67", {"1", "2", "3", "4", "5", " and", " ", "6", "7"}},
          {"abc123def45", {"abc", "1", "2", "3", "def", "4", "5"}},
          {"\331\243\331\244\331\245\331\246 \342\205\247\302\275",
           {"\331\243", "\331\244", "\331\245", "\331\246", " ", "\342\205\247", "\302\275"}},
          {"\tint x=42;\n\tfor", {"\t", "int", " x", "=", "4", "2", ";", "\n", "\t", "for"}},
          {"$100,000.50!", {"$", "1", "0", "0", ",", "0", "0", "0", ".", "5", "0", "!"}},
      });
}

// Mistral: a word ends where a capital follows a small letter; letters without case and marks are both.
TEST(Pretokenizer, CutsAsTekken) {
  const std::string regex =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
      R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
      R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  expect_words(split(regex),
               {
                   {"Hello World", {"Hello", " World"}},
                   {"camelCaseHTTPServer IDs", {"camel", "Case", "HTTPServer", " IDs"}},
                   {"I'm DON'T 2024", {"I", "'m", " DON", "'T", " ", "2", "0", "2", "4"}},
                   {"a\314\201B\314\201c \314\201", {"a\314\201", "B\314\201c", " \314\201"}},
                   {"\344\270\255\346\226\207ABC\344\270\255DE",
                    {"\344\270\255\346\226\207ABC\344\270\255", "DE"}},
                   {"ABC\344\270\255", {"ABC\344\270\255"}},
                   {"!! //\n\n  x/y", {"!!", " //\n\n", " ", " x", "/y"}},
                   {"tab\t\tX  \n y  ", {"tab", "\t", "\tX", "  \n", " y", "  "}},
                   {"\307\205x \312\260A", {"\307\205x", " \312\260", "A"}},
                   {"(foo) _Bar", {"(foo", ")", " _", "Bar"}},
                   {"\314\201A", {"\314\201", "A"}},
                   {"-\314\201A", {"-\314\201", "A"}},
               });
}

TEST(Pretokenizer, CutsAsBloom) {
  const std::string regex =
      " ?[^(\\s|[.,!?\342\200\246\343\200\202\357\274\214\343\200\201\340\245\244\333\224\330\214])"
      "]+";
  expect_words(
      split(regex),
      {
          {"Hello, world!  How are   you?\n\nFine (really) | x",
           {"Hello", ",", " world", "! ", " How", " are", "  ", " you", "?\n\n", "Fine", " (",
            "really", ") |", " x"}},
          {"  ", {"  "}},
          {"a,b,  c", {"a", ",", "b", ", ", " c"}},
          {"x(y)z", {"x", "(", "y", ")", "z"}},
          {"\340\244\250\340\244\256\340\244\270\340\245\215\340\244\244\340\245\207\340\245\244"
           "\340\244\246\340\245\201\340\244\250\340\244\277\340\244\257\340\244\276",
           {"\340\244\250\340\244\256\340\244\270\340\245\215\340\244\244\340\245\207",
            "\340\245\244",
            "\340\244\246\340\245\201\340\244\250\340\244\277\340\244\257\340\244\276"}},
          {"\343\200\202\343\200\202\344\270\255\346\226\207\357\274\214ok",
           {"\343\200\202\343\200\202", "\344\270\255\346\226\207", "\357\274\214", "ok"}},
          {"tail  ", {"tail", "  "}},
          {"\n a\t b", {"\n", " a", "\t", " b"}},
          {"12 34", {"12", " 34"}},
          {"a\302\240b", {"a", "\302\240", "b"}},
          {" (", {" ("}},
      });
}

TEST(Pretokenizer, RefusesOtherExpressionsByTheirText) {
  JsonParts parts;
  parts.pre_tokenizer = split(R"(\p{Han}+)");
  testing::expect_refusal(parse_tokenizer_json(parts.text(), "t"), R"('\p{Han}+')",
                          ErrorCode::unsupported);
  parts.pre_tokenizer = R"({"type": "Whitespace"})";
  testing::expect_refusal(parse_tokenizer_json(parts.text(), "t"), "Whitespace",
                          ErrorCode::unsupported);
  parts.pre_tokenizer = sequence(std::string(testing::kByteLevel), kDigits);
  testing::expect_refusal(parse_tokenizer_json(parts.text(), "t"), "Digits after");
}

}  // namespace
}  // namespace phasor::text
