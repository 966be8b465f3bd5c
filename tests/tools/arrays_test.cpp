// Arrays that verbs read and write: stdin and stdout.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "phasor/io/npy.hpp"
#include "run_phasor.hpp"

namespace phasor::tools {
namespace {

using io::NpyType;

class Arrays : public testing::Phasor {
 protected:
  Arrays() {
    config_ = put_text("spec.json", testing::kPlainSpec);
    std::vector<float> values(3 * 2 * 8);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25F * static_cast<float>(i % 17);
    x_ = put_array("X.npy", NpyType::f32, {3, 2, 8}, values);
    EXPECT_EQ(run({"rotate", "--config", config_, "-i", x_, "-o", file("expected.npy")}).exit, 0);
    expected_ = io::testing::get(file("expected.npy"));
  }

  std::string config_, x_;
  std::string expected_;  // the bytes of X rotated
};

TEST_F(Arrays, MinusIsStdinAndStdout) {
  const auto piped = run({"rotate", "--config", config_, "-i", "-", "-o", "-"}, x_);
  EXPECT_EQ(piped.exit, 0) << piped.err;
  EXPECT_EQ(piped.out, expected_);
}

TEST_F(Arrays, TextGoesToStderrWhenStdoutCarriesAnArray) {
  const auto plain = run({"table", "--config", config_, "--positions", "0:4", "-o", file("T.npy")});
  const auto piped = run({"table", "--config", config_, "--positions", "0:4", "-o", "-"});
  EXPECT_EQ(piped.exit, 0) << piped.err;
  EXPECT_EQ(piped.out, io::testing::get(file("T.npy")));
  EXPECT_EQ(piped.err, plain.out);
  const auto json = run({"rotate", "--config", config_, "-i", x_, "-o", "-", "--json"});
  EXPECT_EQ(json.out, expected_);
  EXPECT_EQ(json.err.front(), '{');
}

TEST_F(Arrays, PositionsComeFromStdin) {
  const std::string positions = put_array<std::int64_t>("P.npy", NpyType::i64, {3}, {0, 1, 2});
  const auto piped =
      run({"rotate", "--config", config_, "-i", x_, "--positions", "-", "-o", "-"}, positions);
  EXPECT_EQ(piped.exit, 0) << piped.err;
  EXPECT_EQ(piped.out, expected_);
}

TEST_F(Arrays, StdinIsReadOnce) {
  const auto twice = run({"diagnose", "-", "-"}, x_);
  expect_refusal(twice, "diagnose", {"stdin"});
}

TEST_F(Arrays, OneOutputGoesToStdout) {
  const std::string none = put_text("none.json", R"({"encoding": "none"})");
  const auto both = run({"attend", "--encoding", none, "-q", x_, "-k", x_, "-v", x_, "-o", "-",
                         "--probabilities", "-"});
  expect_refusal(both, "attend", {"stdout"});
}

TEST_F(Arrays, ABadPipeIsRefusedByName) {
  const std::string text = put_text("text", "hello, world");
  expect_refusal(run({"rotate", "--config", config_, "-i", "-", "-o", file("Y.npy")}, text),
                 "rotate", {"stdin"});
  const std::string empty = put_text("empty", "");
  expect_refusal(run({"rotate", "--config", config_, "-i", "-", "-o", file("Y.npy")}, empty),
                 "rotate", {"stdin"});
}

}  // namespace
}  // namespace phasor::tools
