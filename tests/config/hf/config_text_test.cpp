// Malformed text, as a fuzzer finds it.
#include <gtest/gtest.h>

#include <string>

#include "phasor/config/config.hpp"
#include "phasor/config/encoding.hpp"

namespace phasor::config {
namespace {

std::string config_refusal(const std::string& text) {
  const auto parsed = parse_config(text, "c.json");
  return parsed.ok() ? "" : parsed.error().what();
}

std::string text_refusal(const std::string& text) {
  const auto parsed = parse_encoding(text, "/nonexistent", "e.json");
  return parsed.ok() ? "" : parsed.error().what();
}

void expect_one_short_line(const std::string& refusal) {
  EXPECT_FALSE(refusal.empty());
  EXPECT_LT(refusal.size(), 2000U);
  for (const char c : refusal) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << refusal;
}

TEST(ConfigText, KeysAndWordsOfTheFileStayOnOneLine) {
  for (const std::string text : {
           R"({"head_dim": 8, "a\nb": 1})",
           R"({"a\nb": 1, "a\nb": 1})",
           R"({"head_dim": 8, "layout": "a\nb"})",
           R"({"head_dim": 8, "scaling": {"type": "a\nb"}})",
           R"({"head_dim": 8, "scaling": {"type": "linear", "a\nb": 1}})",
           R"({"model_type": "a\nb", "hidden_size": 8})",
           R"({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2,
               "rope_scaling": {"rope_type": "a\nb"}})",
       }) {
    SCOPED_TRACE(text);
    expect_one_short_line(config_refusal(text));
  }
  expect_one_short_line(text_refusal(R"({"encoding": "a\nb"})"));
  expect_one_short_line(text_refusal(R"({"encoding": "rope", "config": "a\nb"})"));
  expect_one_short_line(text_refusal(R"({"encoding": "shaw", "clip": 1, "rel_k": "a\nb"})"));
}

TEST(ConfigText, LongKeysAndWordsAreCut) {
  const std::string large(100'000, 'x');
  expect_one_short_line(config_refusal(R"({"head_dim": 8, ")" + large + R"(": 1})"));
  expect_one_short_line(config_refusal(R"({"head_dim": 8, "layout": ")" + large + R"("})"));
  // 60 bytes would end inside the last character that fits.
  const std::string wide = "x" + std::string(59, 'y').replace(58, 1, "\xc3\xa9") + "zz";
  const std::string refusal = config_refusal(R"({"head_dim": 8, ")" + wide + R"(": 1})");
  EXPECT_NE(refusal.find("x" + std::string(58, 'y') + "..."), std::string::npos) << refusal;
}

// The parser takes a NUL for the end of the text.
TEST(ConfigText, NothingIsIgnoredAfterANul) {
  const std::string text = R"({"head_dim": 8})";
  EXPECT_EQ(config_refusal(text), "");
  EXPECT_NE(config_refusal(text + std::string("\0{", 2)).find("column 16"), std::string::npos);
}

// A parser that scans the list at the end of each object takes minutes for this.
TEST(ConfigText, AListOfManyObjectsIsReadInOnePass) {
  std::string many = R"({"encoding": [{"encoding": "none"})";
  for (int i = 0; i < 50'000; ++i) many += R"(, {"encoding": "none"})";
  EXPECT_EQ(text_refusal(many + "]}"), "");
}

TEST(ConfigText, NamesWithControlCharactersAreRefused) {
  const auto refused = [](std::string_view text, std::string_view words) {
    const auto parsed = parse_config(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(std::string(parsed.error().what()).find(words), std::string::npos)
        << parsed.error().what();
  };
  refused(R"({"model_type": "lla\u001bma", "head_dim": 8, "rope_theta": 10000})", "model_type");
  refused(R"({"model_type": "llama", "head_dim": 8, "rope_theta": 10000, "num_hidden_layers": 1,
              "layer_types": ["full\nattention"]})",
          "layer_types");
  refused(R"({"model_type": "llama", "head_dim": 8,
              "rope_parameters": {"full\u0007": {"rope_theta": 1e4}}})",
          "rope_parameters");
}

// Python's json writes them; Mamba hybrids have them in time_step_limit.
TEST(ConfigText, PythonsBareWordsAreReadAsText) {
  const std::string front =
      R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, )";
  for (const std::string word : {"NaN", "Infinity", "-Infinity"}) {
    SCOPED_TRACE(word);
    const std::string inside = R"("note": "say \"NaN\" or Infinity\\", )";
    EXPECT_TRUE(
        parse_config(front + inside + R"("time_step_limit": [0.0, )" + word + "]}", "c.json").ok());
    // A key that needs a number refuses the word.
    const std::string refusal = config_refusal(front + R"("rope_theta": )" + word + "}");
    expect_one_short_line(refusal);
    EXPECT_NE(refusal.find("rope_theta"), std::string::npos) << refusal;
    EXPECT_NE(refusal.find(word), std::string::npos) << refusal;
    // JSON is strict everywhere else.
    for (const std::string& broken : {word + "1", "x" + word, word + word, "+" + word}) {
      EXPECT_NE(config_refusal(front + R"("a": )" + broken + "}").find("invalid JSON at line "),
                std::string::npos)
          << broken;
    }
  }
  expect_one_short_line(config_refusal(R"({"a": "NaN)"));
  expect_one_short_line(config_refusal("{\"a\": NaN, \"b\": \"\\"));
}

}  // namespace
}  // namespace phasor::config
