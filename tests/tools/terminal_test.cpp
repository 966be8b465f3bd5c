// What reaches a terminal: text of files must not be able to move the cursor, rename the window or
// reorder a line.
#include <gtest/gtest.h>
#include <pty.h>

#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "support/gguf_writer.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

namespace fs = std::filesystem;
using json = io::Json;

// ESC ] 0 ; t BEL sets the title of a window; U+009B is CSI; U+202E reorders.
constexpr std::string_view kObeyed = "\x1b]0;t\x07\xc2\x9b[2J\xe2\x80\xaeé";
constexpr std::string_view kShown = R"(\x1b]0;t\x07\u009b[2J\u202eé)";

void expect_harmless(const std::string& text) {
  for (const std::string_view obeyed : {"\x1b", "\x07", "\xc2\x9b", "\xe2\x80\xae"}) {
    EXPECT_EQ(text.find(obeyed), std::string::npos) << text;
  }
}

class Terminal : public Phasor {
 protected:
  // Runs with a terminal of its own as stdin, stdout and stderr; all it shows is in `out`.
  [[nodiscard]] static Outcome at_terminal(const std::vector<std::string>& arguments,
                                           const std::string& keys = {},
                                           const struct winsize* size = nullptr) {
    std::vector<std::string> words = command();
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int terminal = -1;
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, size);
    if (child == 0) {
      ::execvp(argv[0], argv.data());
      std::_Exit(127);
    }
    Outcome outcome;
    char piece[4096];
    bool typed = keys.empty();
    // EIO when the command has ended.
    for (ssize_t got = 0; (got = ::read(terminal, piece, sizeof(piece))) > 0;) {
      outcome.out.append(piece, static_cast<std::size_t>(got));
      // Keys are typed when the prompt is drawn: before, the terminal itself would act on Ctrl-C.
      if (typed || outcome.out.find("> \x1b[K") == std::string::npos) continue;
      typed = true;
      EXPECT_EQ(::write(terminal, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
    }
    outcome.exit = exit_of(child);
    ::close(terminal);
    return outcome;
  }

  // The golden llama with a tokenizer whose tokens, except for the first, "a", set colours.
  [[nodiscard]] std::string talking_model() const {
    const fs::path golden = fs::path(PHASOR_GOLDEN_DIR) / "models/llama_gqa_llama3/model";
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy_file(golden / name, at(name), fs::copy_options::overwrite_existing);
    // Byte-level BPE writes a byte as a printable character: ESC as U+011B.
    constexpr int kTokens = 97;
    json vocabulary;
    vocabulary["a"] = 0;
    for (int id = 1; id < kTokens; ++id) vocabulary["\xc4\x9b[" + std::to_string(id) + "m"] = id;
    int id = kTokens, shifted = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool plain = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
      const int code = plain ? byte : shifted++;
      std::string name;
      if (code < 128) {
        name = std::string(1, static_cast<char>(code));
      } else {
        name = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
      }
      if (name != "a") vocabulary[name] = id++;
    }
    const json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", true}};
    json tokenizer;
    tokenizer["version"] = "1.0";
    tokenizer["pre_tokenizer"] = byte_level;
    tokenizer["decoder"] = byte_level;
    tokenizer["model"] = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}};
    (void)put_text("tokenizer.json", tokenizer.dump());
    return at("").string();
  }
};

TEST_F(Terminal, TokensOfAnAnswerAreShownAndNotObeyed) {
  const std::vector<std::string> words = {"run", talking_model(), "--prompt", "a", "--tokens", "8"};
  const Outcome piped = run(words);
  ASSERT_EQ(piped.exit, 0) << piped.err;
  EXPECT_TRUE(piped.out.starts_with("a\x1b[")) << piped.out;  // a pipe gets the bytes
  const Outcome shown = at_terminal(words);
  EXPECT_EQ(shown.exit, 0);
  expect_harmless(shown.out);
  EXPECT_TRUE(shown.out.starts_with(R"(a\x1b[)")) << shown.out;
  // The same tokens.
  std::string expected;
  for (const char c : piped.out)
    expected += c == '\x1b' ? std::string(R"(\x1b)") : std::string(1, c);
  EXPECT_EQ(shown.out.substr(0, expected.size() - 1), expected.substr(0, expected.size() - 1));
}

// Loss, tokens/s, time left and steps fit a terminal of 80 columns.
TEST_F(Terminal, ProgressOfTrainingFits) {
  const std::string text = put_text("text.txt", std::string(4000, 'a') + "\n");
  const std::string experiment = put_text("mine.json",
                                          R"({"name": "a-name-of-some-length", "task": "causal_lm",
      "data": {"corpus": ")" + text + R"("}, "tokenizer": {"kind": "bytes"},
      "model": {"hidden": 8, "layers": 1, "heads": 1, "intermediate": 8},
      "variants": [{"name": "sinusoidal-and-more"}],
      "training": {"steps": 4000, "batch": 1, "context": 8, "evaluate_every": 4000},
      "evaluation": {"batches": 1, "test_batches": 1}})");
  const struct winsize size { .ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0 };
  const Outcome shown =
      at_terminal({"lab", "run", experiment, "--out", file("runs"), "--threads", "1"}, {}, &size);
  EXPECT_EQ(shown.exit, 0) << shown.out;
  std::size_t lines = 0;
  constexpr std::string_view kErase = "\r\x1b[K";
  for (std::size_t at = shown.out.find(kErase); at != std::string::npos;
       at = shown.out.find(kErase, at)) {
    at += kErase.size();
    const std::string line = shown.out.substr(at, shown.out.find_first_of("\r\n", at) - at);
    if (line.find("left") == std::string::npos) continue;
    ++lines;
    EXPECT_LE(line.size(), 79U) << line;
    for (const char* const part : {" %, ", " left, loss ", " tokens/s, ", "/4000 "}) {
      EXPECT_NE(line.find(part), std::string::npos) << line;
    }
  }
  EXPECT_GT(lines, 0U);
}

TEST_F(Terminal, MetadataIsShownAndNotObeyed) {
  io::testing::GgufWriter gguf;
  gguf.text("general.architecture", "llama").text("general.name", std::string(kObeyed));
  const std::string path = put_text("model.gguf", gguf.bytes());
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"inspect", path}, {"inspect", path, "--json"}}) {
    const Outcome shown = at_terminal(words);
    EXPECT_EQ(shown.exit, 0) << shown.out;
    expect_harmless(shown.out);
    EXPECT_NE(shown.out.find("\\u202e"), std::string::npos) << shown.out;
  }
}

TEST_F(Terminal, MessagesAreHarmlessEverywhere) {
  const std::string name(kObeyed);
  (void)put_text(name, "{");
  for (const std::vector<std::string>& words : {std::vector<std::string>{"explain", file(name)},
                                                {"inspect", file("missing" + name)},
                                                {name},
                                                {"explain", "--" + name},
                                                {"table", "--angles", name},
                                                {"run", file(name), name}}) {
    const Outcome piped = run(words), shown = at_terminal(words);
    EXPECT_EQ(piped.exit, 2);
    EXPECT_EQ(shown.exit, 2);
    expect_harmless(piped.err);
    expect_harmless(shown.out);
    EXPECT_NE(piped.err.find(kShown), std::string::npos) << piped.err;
    EXPECT_NE(shown.out.find(kShown), std::string::npos) << shown.out;
  }
}

TEST_F(Terminal, AChatCanBeEdited) {
  const std::vector<std::string> words = {"run", talking_model(), "--interactive", "--chat-format",
                                          "chatml"};
  // Ctrl-C drops the first line, the arrow recalls the second, Backspace corrects it.
  const Outcome chat = at_terminal(words, "lost\x03/hepl\r\x1b[A\x7f\x7flp\r/quix\x7ft\r");
  EXPECT_EQ(chat.exit, 0) << chat.out;
  for (const char* text : {"^C", "\"/help\"", "/history", "/system TEXT"})
    EXPECT_NE(chat.out.find(text), std::string::npos) << text << "\n" << chat.out;
  EXPECT_EQ(at_terminal(words, "\x04").exit, 0);
}

TEST_F(Terminal, OwnProgressIsDrawn) {
  const Outcome shown =
      at_terminal({"convert", std::string(PHASOR_GOLDEN_DIR) + "/models/llama_gqa_llama3/model",
                   file("new"), "--to", "interleaved"});
  EXPECT_EQ(shown.exit, 0) << shown.out;
  EXPECT_NE(shown.out.find("\r\x1b[K["), std::string::npos) << shown.out;
}

}  // namespace
}  // namespace phasor::tools::testing
