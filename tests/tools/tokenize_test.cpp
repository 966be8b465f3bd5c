// phasor tokenize: text to ids and back, on a small vocabulary.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using json = io::Json;
using Ids = std::vector<std::int64_t>;

// WordPiece: ids are line numbers.
class TokenizeCommand : public Phasor {
 protected:
  TokenizeCommand() {
    (void)put_text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nfox\n##es\nquick\n");
  }
  [[nodiscard]] Outcome tokenize(std::vector<std::string> flags) const {
    flags.insert(flags.begin(), {"tokenize", at("").string()});
    return run(flags);
  }
};

TEST_F(TokenizeCommand, TextToIdsAndBack) {
  const Outcome encoded = tokenize({"--text", "the quick foxes", "-o", file("ids.npy")});
  ASSERT_EQ(encoded.exit, 0) << encoded.err;
  const io::NpyArray array = read("ids.npy");
  EXPECT_EQ(array.type, io::NpyType::i64);
  EXPECT_EQ(io::to_integers(array).value_or_throw(), (Ids{5, 8, 6, 7}));
  EXPECT_EQ(tokenize({"--text", "the quick foxes"}).out, "5 8 6 7\n");
  const Outcome decoded = tokenize({"--ids", file("ids.npy")});
  ASSERT_EQ(decoded.exit, 0) << decoded.err;
  EXPECT_EQ(decoded.out, "the quick foxes\n");
}

TEST_F(TokenizeCommand, IdsAsAListAndFromStdin) {
  for (const char* list : {"5,8,6,7", "5 8 6 7", "[5, 8, 6, 7]"})
    EXPECT_EQ(tokenize({"--ids", list}).out, "the quick foxes\n") << list;
  // What the verb prints, it reads.
  const std::vector<std::string> back = {"tokenize", at("").string(), "--ids", "-"};
  EXPECT_EQ(run(back, put_text("list", "5 8 6 7\n")).out, "the quick foxes\n");
  const std::string array = put_array<std::int64_t>("a.npy", io::NpyType::i64, {2}, {5, 6});
  EXPECT_EQ(run(back, array).out, "the fox\n");
  EXPECT_EQ(run({"tokenize", at("").string(), "--text-file", "-"}, put_text("t", "the fox")).out,
            "5 6\n");
  expect_refusal(run(back, put_text("bad", "five")), "tokenize", "stdin");
  expect_refusal(tokenize({"--ids", "5,99999999999999999999"}), "tokenize", "");
}

TEST_F(TokenizeCommand, PiecesAndJson) {
  const Outcome pieces = tokenize({"--text", "the foxes", "--pieces"});
  ASSERT_EQ(pieces.exit, 0) << pieces.err;
  EXPECT_EQ(std::count(pieces.out.begin(), pieces.out.end(), '\n'), 3);
  const json answer = json::parse(tokenize({"--text", "the foxes", "--json"}).out);
  EXPECT_EQ(answer.at("tokens"), 3);
  EXPECT_EQ(answer.at("ids"), (Ids{5, 6, 7}));
  EXPECT_EQ(answer.at("pieces").size(), 3u);
  EXPECT_EQ(answer.at("pieces").at(1), "fox");
}

TEST_F(TokenizeCommand, RowsOfIds) {
  const std::string rows =
      put_array<std::int64_t>("rows.npy", io::NpyType::i64, {2, 2}, {5, 6, 8, 6});
  EXPECT_EQ(tokenize({"--ids", rows}).out, "the fox\nquick fox\n");
  const json answer = json::parse(tokenize({"--ids", rows, "--json"}).out);
  EXPECT_EQ(answer.at("rows").at(1).at("ids"), (Ids{8, 6}));
  EXPECT_EQ(answer.at("rows").at(1).at("text"), "quick fox");
}

TEST_F(TokenizeCommand, Refusals) {
  const std::string ids = put_array<std::int64_t>("bad.npy", io::NpyType::i64, {1}, {9});
  expect_refusal(tokenize({}), "tokenize", {"--text", "--text-file", "--ids"});
  expect_refusal(tokenize({"--text", "fox", "--ids", ids}), "tokenize", {"--text", "--ids"});
  expect_refusal(tokenize({"--ids", ids, "-o", file("Y.npy")}), "tokenize", {"-o", "--ids"});
  expect_refusal(tokenize({"--text", "a", "--pieces", "--json"}), "tokenize",
                 {"--pieces", "--json"});
  expect_refusal(tokenize({"--ids", ids}), "tokenize", "9");
  expect_refusal(tokenize({"--text", "a\xff"}), "tokenize", "UTF-8");
  expect_refusal(tokenize({"--text-file", file("absent.txt")}), "tokenize", "absent.txt");
  expect_refusal(run({"tokenize", file("absent"), "--text", "fox"}), "tokenize", "absent");
}

}  // namespace
}  // namespace phasor::tools::testing
