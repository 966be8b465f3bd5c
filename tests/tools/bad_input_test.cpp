// Bad inputs of the command line: exit 2, one line that names it, no output file.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using io::NpyType;

std::string npy_bytes(const std::string& header, std::size_t data_bytes) {
  std::string bytes = std::string("\x93NUMPY\x01", 7) + '\0';
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header + std::string(data_bytes, '\0');
}

std::string header_of(const std::string& descr, const std::string& order,
                      const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

class BadInput : public Phasor {
 protected:
  BadInput() : config_(put_text("spec.json", kPlainSpec)) {
    (void)put_array("X.npy", NpyType::f32, {1, 3, 2, 8}, std::vector<float>(48, 1.0F));
  }

  [[nodiscard]] Outcome rotate(const std::string& config,
                               std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"rotate",      "--config", config,       "-i",
                                      file("X.npy"), "-o",       file("Y.npy")};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  std::string config_;
};

TEST_F(BadInput, the_good_request_is_good) { EXPECT_EQ(rotate(config_).exit, 0); }

TEST_F(BadInput, arrays_that_are_not_what_they_say) {
  const std::string good = header_of("<f4", "False", "(1, 3, 2, 8)");
  struct Bad {
    std::string bytes, words;
  };
  const std::vector<Bad> cases = {
      {npy_bytes(good, 48 * 4 - 1), "X.npy"},            // truncated
      {npy_bytes(good, 48 * 4 + 1), "X.npy"},            // too long
      {npy_bytes(good, 48 * 4).substr(0, 30), "X.npy"},  // inside its header
      {npy_bytes(header_of(">f4", "False", "(1, 3, 2, 8)"), 48 * 4), "endian"},        //
      {npy_bytes(header_of("|O", "False", "(1, 3, 2, 8)"), 48 * 8), "X.npy"},          //
      {npy_bytes(header_of("<f4", "False", "(1, 3, 2, 80000000)"), 48 * 4), "X.npy"},  // too short
      {npy_bytes(header_of("<f4", "False", "(1, 3, 2, -8)"), 48 * 4), "X.npy"},        //
      {npy_bytes(header_of("<i4", "False", "(1, 3, 2, 8)"), 48 * 4), "int32"},         // no heads
      {npy_bytes(header_of("<f4", "False", "(48,)"), 48 * 4), "[batch, tokens, heads"},  //
      {"not an array", "X.npy"},
      {"", "X.npy"},
  };
  for (const Bad& bad : cases) {
    (void)put_text("X.npy", bad.bytes);
    expect_refusal(rotate(config_), "rotate", bad.words);
  }
  std::filesystem::remove(at("X.npy"));
  expect_refusal(rotate(config_), "rotate", "X.npy");
}

TEST_F(BadInput, specs_that_make_no_sense) {
  struct Bad {
    std::string spec, words;
  };
  const std::vector<Bad> cases = {
      {R"({"head_dim": 8, "base": 10000, "layout": "half", "rotary_dim": 7})", "rotary_dim"},
      {R"({"head_dim": 8, "base": 10000, "layout": "half", "rotary_dim": 10})", "rotary_dim"},
      {R"({"head_dim": 8, "base": 0, "layout": "half"})", "base"},
      {R"({"head_dim": 8, "base": -1, "layout": "half"})", "base"},
      {R"({"head_dim": 8, "base": "10000", "layout": "half"})", "base"},
      {R"({"head_dim": 8, "base": 10000, "layout": "sideways"})", "layout"},
      {R"({"head_dim": 8, "base": 10000})", "layout"},
      {R"({"head_dim": 8, "base": 10000, "layout": "half", "basis": 1})", "basis"},
      {R"({"head_dim": 8, "base": 10000, "layout": "half")", "bad.json"},
      {R"([1, 2])", "bad.json"},
      {"", "bad.json"},
  };
  for (const Bad& bad : cases) {
    const std::string path = put_text("bad.json", bad.spec);
    expect_refusal(rotate(path), "rotate", bad.words);
  }
  expect_refusal(rotate(file("none.json")), "rotate", "none.json");
  // A head of another width than the array's.
  const std::string wide =
      put_text("wide.json", R"({"head_dim": 16, "base": 10000, "layout": "half"})");
  expect_refusal(rotate(wide), "rotate", "16");
}

TEST_F(BadInput, positions_that_do_not_fit) {
  const auto with = [&](const std::string& path) { return rotate(config_, {"--positions", path}); };
  expect_refusal(with(put_array<double>("P.npy", NpyType::f64, {3}, {0.0, NAN, 1.0})), "rotate",
                 {"P.npy", "nan"});
  expect_refusal(with(put_array<double>("P.npy", NpyType::f64, {3}, {0.0, 1.0, INFINITY})),
                 "rotate", {"P.npy", "inf"});
  expect_refusal(with(put_array<std::int64_t>("P.npy", NpyType::i64, {4}, {0, 1, 2, 3})), "rotate",
                 {"positions", "[4]"});
  expect_refusal(with(put_array<std::int64_t>("P.npy", NpyType::i64, {2, 3}, {0, 1, 2, 3, 4, 5})),
                 "rotate", "[1, 3]");
  expect_refusal(
      with(put_array<std::int64_t>("P.npy", NpyType::i64, {3, 1, 3}, {0, 1, 2, 0, 1, 2, 0, 1, 2})),
      "rotate", {"positions", "[3, 1, 3]"});
  expect_refusal(with(put_array<std::int64_t>("P.npy", NpyType::i64, {3}, {0, 1, INT64_MAX})),
                 "rotate", "position");
  expect_refusal(with(put_array<std::uint8_t>("P.npy", NpyType::boolean, {3}, {0, 1, 1})), "rotate",
                 "bool");
  expect_refusal(rotate(config_, {"--offset", "9223372036854775807"}), "rotate",
                 "9223372036854775807");
}

TEST_F(BadInput, flags_that_do_not_fit) {
  expect_refusal(rotate(config_, {"--isa", "pentium"}), "rotate", "--isa");
  expect_refusal(rotate(config_, {"--threads", "-1"}), "rotate", "--threads");
  expect_refusal(rotate(config_, {"--context", "0"}), "rotate", "--context");
  expect_refusal(rotate(config_, {"--layer", "nowhere"}), "rotate", "nowhere");
  expect_refusal(rotate(config_, {"--offset", "1", "--positions", "0:3"}), "rotate", "--offset");
}

TEST_F(BadInput, a_layer_without_rotation_is_refused_by_name) {
  const std::string config = put_text(
      "nope.json",
      R"({"model_type": "gemma3_text", "hidden_size": 16, "num_attention_heads": 2, "head_dim": 8,
          "num_key_value_heads": 1, "max_position_embeddings": 64, "num_hidden_layers": 2,
          "layer_types": ["sliding_attention", "full_attention"],
          "rope_parameters": {"full_attention": null,
                              "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})");
  expect_refusal(rotate(config, {"--layer", "full_attention"}), "rotate", "full_attention");
  EXPECT_EQ(rotate(config, {"--layer", "sliding_attention"}).exit, 0);
}

TEST_F(BadInput, an_output_that_cannot_be_written) {
  for (const std::string& output :
       {file("no/such/folder/Y.npy"), at("X.npy").parent_path().string()}) {
    expect_refusal(run({"rotate", "--config", config_, "-i", file("X.npy"), "-o", output}),
                   "rotate", output.substr(output.rfind('/') + 1));
  }
  const std::size_t before = entries();
  EXPECT_EQ(run({"freqs", "--config", config_, "-o", file("no/F.npy")}).exit, 2);
  EXPECT_EQ(run({"table", "--config", config_, "--positions", "0:4", "-o", file("no/T.npy")}).exit,
            2);
  EXPECT_EQ(entries(), before);
}

TEST_F(BadInput, an_error_leaves_the_old_output_as_it_was) {
  (void)put_text("Y.npy", "old");
  const std::size_t before = entries();
  const std::string wrong = put_text("P.npy", "broken");
  EXPECT_EQ(rotate(config_, {"--positions", wrong}).exit, 2);
  EXPECT_EQ(io::testing::get(at("Y.npy")), "old");
  EXPECT_LE(entries(), before + 3);  // P.npy and the two captured streams
}

}  // namespace
}  // namespace phasor::tools::testing
