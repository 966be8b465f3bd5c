// freqs, table, rotate and audit as a shell sees them: answers, files, exit codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "phasor/core/view.hpp"
#include "phasor/io/internal/json.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using io::NpyType;
using json = io::Json;

std::vector<float> counting(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

std::vector<double> doubles(const io::NpyArray& array) {
  return io::to_doubles(array).value_or_throw();
}

// RoFormer (34) in double, for pairs (first, second) of a head of 8 at position m, base 10000.
std::vector<double> rotated(const std::vector<float>& x, std::size_t token, double position,
                            bool interleaved, double direction = 1.0) {
  std::vector<double> y(8);
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t a = interleaved ? 2 * i : i;
    const std::size_t b = interleaved ? 2 * i + 1 : i + 4;
    const double angle =
        direction * position * std::pow(10000.0, -2.0 * static_cast<double>(i) / 8.0);
    const double xa = x[token * 8 + a], xb = x[token * 8 + b];
    y[a] = xa * std::cos(angle) - xb * std::sin(angle);
    y[b] = xb * std::cos(angle) + xa * std::sin(angle);
  }
  return y;
}

void expect_rotated(const std::vector<double>& got, const std::vector<float>& x,
                    const std::vector<double>& positions, bool interleaved, double direction = 1.0,
                    double tolerance = 1e-5) {
  ASSERT_EQ(got.size(), 8 * positions.size());
  for (std::size_t token = 0; token < positions.size(); ++token) {
    const std::vector<double> y = rotated(x, token, positions[token], interleaved, direction);
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(got[token * 8 + i], y[i], tolerance) << "token " << token << " feature " << i;
    }
  }
}

class Verbs : public Phasor {
 protected:
  Verbs() : config_(put_text("spec.json", kPlainSpec)) {}

  [[nodiscard]] Outcome rotate(std::vector<std::string> more) const {
    std::vector<std::string> words = {"rotate",      "--config", config_,      "-i",
                                      file("X.npy"), "-o",       file("Y.npy")};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  std::string config_;
};

TEST_F(Verbs, help_and_version_are_answers) {
  for (const std::string verb :
       {"demo",    "freqs", "table",   "rotate",  "attend", "explain", "audit",      "diagnose",
        "diff",    "plan",  "convert", "fill",    "logits", "eval",    "run",        "tokenize",
        "inspect", "lab",   "explore", "conform", "bench",  "help",    "completion", "man"}) {
    const Outcome outcome = run({verb, "--help"});
    EXPECT_EQ(outcome.exit, 0) << verb;
    EXPECT_NE(outcome.out.find("Example"), std::string::npos) << verb;
    EXPECT_NE(outcome.out.find("phasor " + verb), std::string::npos) << verb;
    EXPECT_TRUE(outcome.err.empty()) << outcome.err;
  }
  EXPECT_EQ(run({"--help"}).exit, 0);
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.exit, 0);
  EXPECT_EQ(version.out.substr(0, 7), "phasor ");
}

TEST_F(Verbs, unknown_verb_flag_or_nothing_is_refused_in_one_line) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {""},
           {"frobnicate"},
           {"--frobnicate"},
           {"freqs"},
           {"freqs", "--config"},
           {"rotate", "--config", config_, "-i", "a", "-o", "b", "--layout", "sideways"},
           {"rotate", "--config", config_, "-i", "a", "-o", "b", "--offset", "x"},
           {"table", "--config", config_, "--positions", "0:4", "-o", "T.npy", "--frob"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.exit, 2);
    EXPECT_EQ(outcome.err.substr(0, 6), "phasor");
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  EXPECT_NE(run({"frobnicate"}).err.find("frobnicate"), std::string::npos);
  EXPECT_EQ(run({"rotate", "--inverse", "--transpose"}).exit, 2);
}

TEST_F(Verbs, freqs_writes_float64_and_prints_the_amplitude) {
  const Outcome outcome = run({"freqs", "--config", config_, "-o", file("F.npy")});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("amplitude    1\n"), std::string::npos) << outcome.out;
  const io::NpyArray array = read("F.npy");
  EXPECT_EQ(array.type, NpyType::f64);
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{4}));
  const std::vector<double> expected = {1.0, 0.1, 0.01, 0.001};
  EXPECT_EQ(doubles(array), expected);
}

TEST_F(Verbs, freqs_prints_json_without_a_file) {
  const Outcome outcome = run({"freqs", "--config", config_, "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const json answer = json::parse(outcome.out);
  EXPECT_EQ(answer["count"], 4);
  EXPECT_EQ(answer["amplitude"], 1.0);
  EXPECT_EQ(answer["layout"], "interleaved");
  EXPECT_EQ(answer["frequencies"], (std::vector<double>{1.0, 0.1, 0.01, 0.001}));
  // Without either they are listed.
  const Outcome listed = run({"freqs", "--config", config_});
  EXPECT_EQ(listed.exit, 0) << listed.err;
  for (const char* text : {"amplitude", "0.1", "0.01", "0.001"})
    EXPECT_NE(listed.out.find(text), std::string::npos) << listed.out;
}

TEST_F(Verbs, freqs_of_an_image_are_in_the_order_of_its_pairs) {
  const std::string pixtral = put_text(
      "pixtral.json", R"({"model_type": "pixtral", "head_dim": 8, "rope_theta": 10000.0})");
  const Outcome outcome = run({"freqs", "--config", pixtral, "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["frequencies"], (std::vector<double>{1.0, 0.01, 0.1, 0.001}));
}

TEST_F(Verbs, freqs_names_keys_of_another_scaling) {
  const std::string config = put_text(
      "leftover.json", R"({"model_type": "llama", "head_dim": 8, "rope_parameters": {"rope_type":
      "default", "rope_theta": 10000.0, "original_max_position_embeddings": 16384}})");
  const Outcome outcome = run({"freqs", "--config", config, "--json"});
  EXPECT_EQ(outcome.exit, 0);
  EXPECT_NE(outcome.err.find("original_max_position_embeddings"), std::string::npos) << outcome.err;
  expect_refusal(
      run({"freqs", "--config", put_text("bert.json", R"({"model_type": "bert"})"), "--json"}),
      "freqs", "bert");
}

TEST_F(Verbs, freqs_follows_context_and_layer) {
  const std::string golden = PHASOR_GOLDEN_DIR;
  const std::string dynamic = golden + "/rope_freqs/dynamic_llama_2x/config.old.json";
  const auto first = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"freqs", "--json", "--config"};
    words.insert(words.end(), more.begin(), more.end());
    return json::parse(run(words).out)["frequencies"].at(1).get<double>();
  };
  EXPECT_EQ(first({dynamic}), first({dynamic, "--context", "4096"}));
  EXPECT_LT(first({dynamic, "--context", "8192"}), first({dynamic, "--context", "4096"}));
  const std::string nested = golden + "/rope_freqs/nested_gemma3_4b/config.new.json";
  EXPECT_LT(first({nested, "--layer", "full_attention"}),
            first({nested, "--layer", "sliding_attention"}));
  expect_refusal(run({"freqs", "--config", nested, "--json"}), "freqs", "full_attention");
  expect_refusal(run({"freqs", "--config", dynamic, "--json", "--context", "0"}), "freqs",
                 "--context");
}

TEST_F(Verbs, table_holds_cos_then_sin) {
  const Outcome outcome =
      run({"table", "--config", config_, "--positions=-1:2", "-o", file("T.npy")});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const io::NpyArray array = read("T.npy");
  EXPECT_EQ(array.type, NpyType::f32);
  ASSERT_EQ(array.shape, (std::vector<std::int64_t>{2, 3, 4}));
  const float* values = array.as<float>();
  EXPECT_EQ(values[0], static_cast<float>(std::cos(-1.0)));
  EXPECT_EQ(values[4], 1.0F);
  EXPECT_EQ(values[12], static_cast<float>(std::sin(-1.0)));
  EXPECT_EQ(values[12 + 9], static_cast<float>(std::sin(0.1)));
}

TEST_F(Verbs, table_takes_positions_from_a_file) {
  const std::string positions = put_array<double>("P.npy", NpyType::f64, {2}, {0.5, 100000.0});
  const Outcome outcome =
      run({"table", "--config", config_, "--positions", positions, "-o", file("T.npy"), "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["shape"], (std::vector<int>{2, 2, 4}));
  const io::NpyArray array = read("T.npy");
  EXPECT_EQ(array.as<float>()[0], static_cast<float>(std::cos(0.5)));
  EXPECT_EQ(array.as<float>()[4], static_cast<float>(std::cos(100000.0)));
  // float32 angles, unlike exact ones, are off at 100000.
  ASSERT_EQ(
      run({"table", "--config", config_, "--positions", "100001:100002", "-o", file("A.npy")}).exit,
      0);
  ASSERT_EQ(run({"table", "--config", config_, "--positions", "100001:100002", "-o", file("B.npy"),
                 "--angles", "float32"})
                .exit,
            0);
  EXPECT_NE(read("A.npy").bytes, read("B.npy").bytes);
}

TEST_F(Verbs, an_empty_range_gives_an_empty_table) {
  ASSERT_EQ(run({"table", "--config", config_, "--positions", "7:7", "-o", file("T.npy")}).exit, 0);
  EXPECT_EQ(read("T.npy").shape, (std::vector<std::int64_t>{2, 0, 4}));
}

TEST_F(Verbs, table_refuses_invalid_ranges) {
  for (const std::string range : {"5:2", "0:99999999999", "1:2:3", ":", "4:"}) {
    expect_refusal(run({"table", "--config", config_, "--positions", range, "-o", file("Y.npy")}),
                   "table", {"--positions", range});
  }
  expect_refusal(
      run({"table", "--config", config_, "--positions", file("none.npy"), "-o", file("Y.npy")}),
      "table", "none.npy");
}

// 2^32 positions of 1024 pairs are 32 TiB.
TEST_F(Verbs, a_table_that_no_machine_can_hold_is_refused_before_it_is_allocated) {
  const std::string config =
      put_text("wide.json", R"({"head_dim": 2048, "layout": "half", "rotary_dim": 2048})");
  expect_refusal(
      run({"table", "--config", config, "--positions", "0:4294967296", "-o", file("Y.npy")}),
      "table", {"--positions", "4294967296", "1024", "TiB"});
}

TEST_F(Verbs, rotates_with_and_without_batch) {
  const std::vector<float> x = counting(2 * 3 * 8);
  (void)put_array("X.npy", NpyType::f32, {2, 3, 1, 8}, x);
  ASSERT_EQ(rotate({}).exit, 0);
  EXPECT_EQ(read("Y.npy").shape, (std::vector<std::int64_t>{2, 3, 1, 8}));
  expect_rotated(doubles(read("Y.npy")), x, {0, 1, 2, 0, 1, 2}, true);

  (void)put_array("X.npy", NpyType::f32, {6, 1, 8}, x);
  ASSERT_EQ(rotate({"--offset", "10"}).exit, 0);
  expect_rotated(doubles(read("Y.npy")), x, {10, 11, 12, 13, 14, 15}, true);
}

TEST_F(Verbs, rotate_takes_every_position_shape) {
  const std::vector<float> x = counting(2 * 3 * 8);
  (void)put_array("X.npy", NpyType::f32, {2, 3, 1, 8}, x);
  const std::string row = put_array<std::int64_t>("row.npy", NpyType::i64, {3}, {4, 9, 2});
  ASSERT_EQ(rotate({"--positions", row}).exit, 0);
  expect_rotated(doubles(read("Y.npy")), x, {4, 9, 2, 4, 9, 2}, true);
  const std::string rows =
      put_array<std::int32_t>("rows.npy", NpyType::i32, {2, 3}, {4, 9, 2, 7, 0, 1});
  ASSERT_EQ(rotate({"--positions", rows}).exit, 0);
  expect_rotated(doubles(read("Y.npy")), x, {4, 9, 2, 7, 0, 1}, true);
  const std::string floats =
      put_array<float>("floats.npy", NpyType::f32, {3}, {0.5F, 1.25F, -3.0F});
  ASSERT_EQ(rotate({"--positions", floats}).exit, 0);
  expect_rotated(doubles(read("Y.npy")), x, {0.5, 1.25, -3.0, 0.5, 1.25, -3.0}, true);
}

TEST_F(Verbs, rotate_honours_layout_and_direction) {
  const std::vector<float> x = counting(3 * 8);
  (void)put_array("X.npy", NpyType::f32, {3, 1, 8}, x);
  ASSERT_EQ(rotate({"--layout", "half"}).exit, 0);
  expect_rotated(doubles(read("Y.npy")), x, {0, 1, 2}, false);
  ASSERT_EQ(rotate({"--inverse"}).exit, 0);
  expect_rotated(doubles(read("Y.npy")), x, {0, 1, 2}, true, -1.0);
  ASSERT_EQ(rotate({"--transpose"}).exit, 0);
  expect_rotated(doubles(read("Y.npy")), x, {0, 1, 2}, true, -1.0);
}

TEST_F(Verbs, inverse_undoes_the_amplitude_and_transpose_keeps_it) {
  const std::string config =
      put_text("yarn.json",
               R"({"model_type": "llama", "head_dim": 8, "hidden_size": 8, "num_attention_heads": 1,
          "max_position_embeddings": 64, "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0,
          "factor": 4.0, "original_max_position_embeddings": 16}})");
  const std::vector<float> x = counting(3 * 8);
  (void)put_array("X.npy", NpyType::f32, {3, 1, 8}, x);
  const auto rotate = [&](const std::string& from, const std::string& to, const std::string& flag) {
    std::vector<std::string> words = {"rotate",   "--config", config,  "-i",
                                      file(from), "-o",       file(to)};
    if (!flag.empty()) words.push_back(flag);
    const Outcome outcome = run(words);
    ASSERT_EQ(outcome.exit, 0) << outcome.err;
  };
  rotate("X.npy", "Y.npy", "");
  rotate("Y.npy", "back.npy", "--inverse");
  rotate("Y.npy", "scaled.npy", "--transpose");
  const double amplitude = 0.1 * std::log(4.0) + 1.0;
  const std::vector<double> back = doubles(read("back.npy")), scaled = doubles(read("scaled.npy"));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(back[i], x[i], 1e-5);
    EXPECT_NEAR(scaled[i], amplitude * amplitude * x[i], 1e-4);
  }
}

TEST_F(Verbs, rotate_keeps_the_dtype) {
  const std::vector<float> x = counting(3 * 8);
  const std::vector<double> wide(x.begin(), x.end());
  std::vector<std::uint16_t> half, brain;
  for (const float value : x) {
    half.push_back(core::to_half(value).bits);
    brain.push_back(core::to_bfloat16(value).bits);
  }
  (void)put_array("X.npy", NpyType::f64, {3, 1, 8}, wide);
  ASSERT_EQ(rotate({}).exit, 0);
  EXPECT_EQ(read("Y.npy").type, NpyType::f64);
  expect_rotated(doubles(read("Y.npy")), x, {0, 1, 2}, true, 1.0, 1e-12);
  (void)put_array("X.npy", NpyType::f16, {3, 1, 8}, half);
  ASSERT_EQ(rotate({}).exit, 0);
  EXPECT_EQ(read("Y.npy").type, NpyType::f16);
  expect_rotated(doubles(read("Y.npy")), x, {0, 1, 2}, true, 1.0, 0.01);
  (void)put_array("X.npy", NpyType::bf16, {3, 1, 8}, brain);
  ASSERT_EQ(rotate({}).exit, 0);
  EXPECT_EQ(read("Y.npy").type, NpyType::bf16);
  expect_rotated(doubles(read("Y.npy")), x, {0, 1, 2}, true, 1.0, 0.08);
}

TEST_F(Verbs, rotate_may_replace_its_input_and_writes_json) {
  const std::vector<float> x = counting(3 * 8);
  (void)put_array("X.npy", NpyType::f32, {3, 1, 8}, x);
  const Outcome outcome = run({"rotate", "--config", config_, "-i", file("X.npy"), "-o",
                               file("X.npy"), "--json", "--threads", "1"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  expect_rotated(doubles(read("X.npy")), x, {0, 1, 2}, true);
  const json answer = json::parse(outcome.out);
  EXPECT_EQ(answer["dtype"], "float32");
  EXPECT_EQ(answer["shape"], (std::vector<int>{3, 1, 8}));
}

TEST_F(Verbs, no_token_is_fine) {
  (void)put_array("X.npy", NpyType::f32, {2, 0, 1, 8}, std::vector<float>{});
  const Outcome outcome = rotate({});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(read("Y.npy").shape, (std::vector<std::int64_t>{2, 0, 1, 8}));
}

TEST_F(Verbs, a_context_taken_from_positions_is_printed) {
  const std::string dynamic =
      put_text("dynamic.json",
               R"({"model_type": "llama", "head_dim": 8, "hidden_size": 8, "num_attention_heads": 1,
          "max_position_embeddings": 16, "rope_theta": 10000.0, "rope_scaling": {"type": "dynamic", "factor": 2.0}})");
  (void)put_array("X.npy", NpyType::f32, {3, 1, 8}, counting(24));
  const Outcome taken = run(
      {"rotate", "--config", dynamic, "-i", file("X.npy"), "-o", file("Y.npy"), "--offset", "60"});
  ASSERT_EQ(taken.exit, 0) << taken.err;
  EXPECT_NE(taken.err.find("context 63"), std::string::npos) << taken.err;
  const Outcome given = run({"rotate", "--config", dynamic, "-i", file("X.npy"), "-o",
                             file("Z.npy"), "--offset", "60", "--context", "63"});
  EXPECT_TRUE(given.err.empty()) << given.err;
  EXPECT_EQ(read("Y.npy").bytes, read("Z.npy").bytes);
}

TEST_F(Verbs, a_config_may_be_a_directory) {
  (void)put_text("config.json",
                 R"({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 1,
                                    "max_position_embeddings": 16, "rope_theta": 100.0})");
  const std::string directory = at("config.json").parent_path().string();
  const Outcome outcome = run({"freqs", "--config", directory, "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["base"], 100.0);
}

TEST_F(Verbs, mrope_reads_three_rows) {
  const std::string golden = PHASOR_GOLDEN_DIR "/rope_apply/mrope_qwen2_vl";
  const json config = json::parse(io::testing::get(golden + "/case.json"))["config"];
  const std::string path = put_text("mrope.json", config.dump());
  std::vector<float> x = counting(4 * 2 * 64);
  (void)put_array("X.npy", NpyType::f32, {4, 2, 64}, x);
  const std::string same = put_array<std::int64_t>("same.npy", NpyType::i64, {3, 4},
                                                   {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3});
  const auto rotate = [&](const std::string& to, std::vector<std::string> more) {
    std::vector<std::string> words = {"rotate",      "--config", path,    "-i",
                                      file("X.npy"), "-o",       file(to)};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  ASSERT_EQ(rotate("text.npy", {}).exit, 0);
  ASSERT_EQ(rotate("rows.npy", {"--positions", same}).exit, 0);
  EXPECT_EQ(read("text.npy").bytes, read("rows.npy").bytes);
  const std::string wrong =
      put_array<std::int64_t>("two.npy", NpyType::i64, {2, 4}, {0, 1, 2, 3, 0, 1, 2, 3});
  expect_refusal(rotate("Y.npy", {"--positions", wrong}), "rotate", "[3, 4]");
}

TEST_F(Verbs, xpos_scales_queries_and_keys_apart) {
  const std::string config = put_text(
      "xpos.json", R"({"head_dim": 8, "layout": "interleaved", "xpos": {"scale_base": 4.0}})");
  const std::vector<float> x = counting(3 * 8);
  (void)put_array("X.npy", NpyType::f32, {3, 1, 8}, x);
  const auto rotate = [&](const std::string& to, std::vector<std::string> more) {
    std::vector<std::string> words = {"rotate",      "--config", config,  "-i",
                                      file("X.npy"), "-o",       file(to)};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome unsaid = rotate("Y.npy", {});
  ASSERT_EQ(unsaid.exit, 0) << unsaid.err;
  EXPECT_NE(unsaid.err.find("--role"), std::string::npos) << unsaid.err;
  EXPECT_TRUE(rotate("Q.npy", {"--role", "query"}).err.empty());
  EXPECT_TRUE(rotate("K.npy", {"--role", "key"}).err.empty());
  EXPECT_EQ(read("Y.npy").bytes, read("Q.npy").bytes);
  // The query grows by what the key shrinks, so that the product of their lengths stays.
  const std::vector<double> q = doubles(read("Q.npy")), k = doubles(read("K.npy"));
  EXPECT_GT(std::abs(std::hypot(q[16], q[17]) - std::hypot(k[16], k[17])), 0.1);
  for (std::size_t i = 0; i < x.size(); i += 2) {
    const double length = std::hypot(x[i], x[i + 1]);
    EXPECT_NEAR(std::hypot(q[i], q[i + 1]) * std::hypot(k[i], k[i + 1]), length * length, 1e-3);
  }
}

TEST_F(Verbs, audit_passes_its_own_table_and_finds_float32_angles) {
  ASSERT_EQ(
      run({"table", "--config", config_, "--positions", "131000:131072", "-o", file("T.npy")}).exit,
      0);
  const std::vector<std::string> rows = {"--config", config_, "--positions", "131000:131072"};
  const auto audit = [&](const std::string& table, std::vector<std::string> more) {
    std::vector<std::string> words = {"audit", file(table)};
    words.insert(words.end(), rows.begin(), rows.end());
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome good = audit("T.npy", {"--json"});
  ASSERT_EQ(good.exit, 0) << good.err;
  EXPECT_LT(json::parse(good.out)["max_ulp"].get<double>(), 0.51);
  EXPECT_LT(json::parse(good.out)["max_angle_error"].get<double>(), 1e-7);

  ASSERT_EQ(run({"table", "--config", config_, "--positions", "131000:131072", "--angles",
                 "float32", "-o", file("F.npy")})
                .exit,
            0);
  const Outcome bad = audit("F.npy", {"--threshold", "1e-4"});
  EXPECT_EQ(bad.exit, 1) << bad.out;
  EXPECT_NE(bad.out.find("first at position 131"), std::string::npos) << bad.out;
  EXPECT_EQ(audit("F.npy", {}).exit, 0);
}

TEST_F(Verbs, audit_names_the_cause_and_writes_the_errors_of_every_position) {
  ASSERT_EQ(run({"table", "--config", config_, "--positions", "131000:131072", "--angles",
                 "float32", "-o", file("F.npy")})
                .exit,
            0);
  const Outcome outcome = run({"audit", file("F.npy"), "--config", config_, "--positions",
                               "131000:131072", "--csv", file("errors.csv"), "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["cause"]["name"], "float32_product");
  const std::string csv = io::testing::get(at("errors.csv"));
  EXPECT_TRUE(csv.starts_with("position,max_angle_error,")) << csv.substr(0, 80);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 73);
  EXPECT_NE(csv.find("\n131071,"), std::string::npos);
  expect_refusal(run({"audit", file("F.npy"), "--config", config_, "--positions", "131000:131072",
                      "--csv", file("absent/errors.csv")}),
                 "audit", "absent");
}

TEST_F(Verbs, audit_names_the_worst_entry) {
  ASSERT_EQ(run({"table", "--config", config_, "--positions", "0:8", "-o", file("T.npy")}).exit, 0);
  io::NpyArray table = read("T.npy");
  // Row 5, pair 2 rotated by another 0.25 rad; row 6, pair 1 twice as long.
  float* const cos = table.as<float>();
  float* const sin = cos + 8 * 4;
  cos[5 * 4 + 2] = static_cast<float>(std::cos(0.05 + 0.25));
  sin[5 * 4 + 2] = static_cast<float>(std::sin(0.05 + 0.25));
  cos[6 * 4 + 1] *= 2.0F;
  sin[6 * 4 + 1] *= 2.0F;
  ASSERT_TRUE(io::write_npy(at("T.npy"), table).ok());
  const Outcome outcome = run({"audit", file("T.npy"), "--config", config_, "--json"});
  EXPECT_EQ(outcome.exit, 1);
  const json answer = json::parse(outcome.out);
  EXPECT_NEAR(answer["max_angle_error"].get<double>(), 0.25, 1e-6);
  EXPECT_EQ(answer["worst_angle"]["position"], 5.0);
  EXPECT_EQ(answer["worst_angle"]["pair"], 2);
  EXPECT_NEAR(answer["max_amplitude_error"].get<double>(), 1.0, 1e-6);
  EXPECT_EQ(answer["worst_amplitude"]["position"], 6.0);
  EXPECT_EQ(answer["first_position_past_threshold"], 5.0);
  EXPECT_EQ(answer["worst_pairs"].at(0)["pair"], 2);

  table.as<float>()[0] = NAN;
  ASSERT_TRUE(io::write_npy(at("T.npy"), table).ok());
  EXPECT_EQ(run({"audit", file("T.npy"), "--config", config_}).exit, 1);
}

TEST_F(Verbs, audit_refuses_other_shapes) {
  (void)put_array("T.npy", NpyType::f32, {2, 3, 5}, std::vector<float>(30, 1.0F));
  expect_refusal(run({"audit", file("T.npy"), "--config", config_}), "audit", {"4", "[2, 3, 5]"});
  (void)put_array("T.npy", NpyType::f32, {3, 9}, std::vector<float>(27, 1.0F));
  expect_refusal(run({"audit", file("T.npy"), "--config", config_}), "audit",
                 {"[2, positions, 4]", "[3, 9]"});
}

}  // namespace
}  // namespace phasor::tools::testing
