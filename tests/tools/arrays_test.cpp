// Arrays that verbs read and write: files of NumPy and torch, stdin and stdout.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "phasor/io/npy.hpp"
#include "phasor/io/tensors.hpp"
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

// The files hold 0, 1, ..., 23 in the shape [2, 3, 4], written by NumPy and torch.
class ArrayFiles : public testing::Phasor {
 protected:
  ArrayFiles() {
    config_ = put_text("spec.json", R"({"head_dim": 4, "layout": "half"})");
    std::vector<float> values(24);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    x_ = put_array("X.npy", NpyType::f32, {2, 3, 4}, values);
    EXPECT_EQ(rotated(x_).exit, 0);
    expected_ = io::testing::get(file("Y.npy"));
    std::filesystem::remove(file("Y.npy"));
  }

  [[nodiscard]] testing::Outcome rotated(const std::string& input,
                                         const std::string& stdin_file = {}) const {
    return run({"rotate", "--config", config_, "-i", input, "-o", file("Y.npy")}, stdin_file);
  }
  static std::string data(const std::string& name) {
    return std::string(PHASOR_IO_DATA_DIR) + "/arrays/" + name;
  }
  void expect_rotated(const std::string& input, const std::string& stdin_file = {}) {
    const auto outcome = rotated(input, stdin_file);
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    EXPECT_EQ(io::testing::get(file("Y.npy")), expected_) << input;
    std::filesystem::remove(file("Y.npy"));
  }

  std::string config_, x_, expected_;
  std::vector<std::int64_t> positions_ = {0, 1};
};

TEST_F(ArrayFiles, NamesAfterAColon) {
  for (const std::string input : {"arrays.npz:q", "arrays_deflated.npz:q", "nested.pt:layers.0.q",
                                  "protocol4.pt:layers.0.q", "tensor.pt", "tensor.pt:"})
    expect_rotated(data(input));
  expect_rotated("-", data("tensor.pt"));
  expect_rotated("-:q", data("arrays_deflated.npz"));
}

TEST_F(ArrayFiles, APathThatExistsIsAPath) {
  std::filesystem::copy_file(x_, file("a:b.npy"));
  expect_rotated(file("a:b.npy"));
  std::filesystem::copy_file(data("arrays.npz"), file("a:b.npz"));
  expect_rotated(file("a:b.npz:q"));
}

TEST_F(ArrayFiles, PositionsAreArraysToo) {
  const std::vector<io::Tensor> tensors = {{.name = "ids",
                                            .type = io::TensorType::i64,
                                            .shape = {2},
                                            .bytes = std::as_bytes(std::span(positions_))}};
  ASSERT_TRUE(io::write_safetensors(at("P.safetensors"), tensors).ok());
  const auto outcome = run({"rotate", "--config", config_, "-i", x_, "--positions",
                            file("P.safetensors:ids"), "-o", file("Y.npy")});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(io::testing::get(file("Y.npy")), expected_);
}

TEST_F(ArrayFiles, Refusals) {
  expect_refusal(rotated(data("arrays.npz")), "rotate", {"arrays.npz", "q, k, layers.0.v"});
  expect_refusal(rotated(data("arrays.npz:z")), "rotate", {"arrays.npz", "'z'", "q, k"});
  expect_refusal(run({"rotate", "--config", config_, "-i", x_, "--positions",
                      data("arrays.npz:freqs_cis"), "-o", file("Y.npy")}),
                 "rotate", {"complex64"});
  expect_refusal(rotated(data("code.pt")), "rotate", {"code.pt", "system"});
  expect_refusal(rotated(data("legacy.pt")), "rotate", {"legacy.pt"});
  expect_refusal(rotated(data("nested.pt:float8")), "rotate", {"float8_e4m3fn"});
  expect_refusal(rotated(data("missing.npz:q")), "rotate", {"missing.npz:q"});
  expect_refusal(rotated(x_ + ":q"), "rotate", {"X.npy", "'q'"});
}

}  // namespace
}  // namespace phasor::tools
