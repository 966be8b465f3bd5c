#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using json = io::Json;

const std::string kGolden = PHASOR_GOLDEN_DIR "/diagnose/";

class Diagnose : public Phasor {
 protected:
  [[nodiscard]] std::vector<std::string> golden(const std::string& name) const {
    return {"diagnose", kGolden + name + "/before.npy", kGolden + name + "/after.npy"};
  }
  [[nodiscard]] Outcome run_golden(const std::string& name,
                                   const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = golden(name);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  // Random vectors [tokens, 2, 8] and what `phasor rotate` makes of them.
  void rotate(const std::string& config, const std::vector<std::string>& more = {}) const {
    std::mt19937 generator(7);
    std::normal_distribution<float> normal;
    std::vector<float> values(12 * 2 * 8);
    for (float& value : values) value = normal(generator);
    const std::string x = put_array("X.npy", io::NpyType::f32, {12, 2, 8}, values);
    std::vector<std::string> arguments = {"rotate", "--config", config,       "-i",
                                          x,        "-o",       file("Y.npy")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    ASSERT_EQ(outcome.exit, 0) << outcome.err;
  }
};

TEST_F(Diagnose, JsonHasTheNamesOfTheGoldenAnswers) {
  const Outcome outcome = run_golden("diag_interleaved_inverse_offset", {"--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const json answer = json::parse(outcome.out);
  EXPECT_EQ(answer["answer"], "rope");
  EXPECT_EQ(answer["layout"], "interleaved");
  EXPECT_EQ(answer["head_dim"], 32);
  EXPECT_EQ(answer["rotary_dim"], 32);
  EXPECT_EQ(answer["base"], 1000.0);
  EXPECT_EQ(answer["effective_base"], 1000.0);
  EXPECT_EQ(answer["scaling"]["type"], "default");
  EXPECT_EQ(answer["inverse"], true);
  EXPECT_EQ(answer["amplitude"], 1.0);
  EXPECT_EQ(answer["positions"], "contiguous");
  EXPECT_EQ(answer["offset"], 21);
  EXPECT_EQ(answer["table_dtype"], "exact");
  EXPECT_EQ(answer["tensor_dtype"], "float32");
  EXPECT_EQ(answer["frequencies"].size(), 16U);
  EXPECT_LT(answer["residual"].get<double>(), 1e-7);
  EXPECT_GT(answer["runner_up"]["residual"].get<double>(), 0.1);
  EXPECT_TRUE(answer["readings"].is_array());
  EXPECT_TRUE(answer["notes"].is_array());
}

TEST_F(Diagnose, NoneHasAReason) {
  const Outcome outcome =
      run_golden("diag_none_additive",
                 {"--json", "--positions", kGolden + "diag_none_additive/positions.npy"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const json answer = json::parse(outcome.out);
  EXPECT_EQ(answer["answer"], "none");
  EXPECT_NE(answer["reason"].get<std::string>().find("sinusoidal"), std::string::npos);
}

TEST_F(Diagnose, ThePageStartsWithTheAnswer) {
  const Outcome outcome = run_golden(
      "diag_yarn_amplitude", {"--positions", "4000:4024", "--axes", "batch,heads,tokens,dim"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const std::string first = outcome.out.substr(0, outcome.out.find('\n'));
  for (const char* value : {"half", "rotary_dim 64", "base 1000000", "yarn", "factor 4"}) {
    EXPECT_NE(first.find(value), std::string::npos) << first;
  }
  EXPECT_NE(outcome.out.find("amplitude    1.138629"), std::string::npos) << outcome.out;
}

TEST_F(Diagnose, WhatRotateDidIsWhatTheConfigAsks) {
  const std::string config = put_text("spec.json", kPlainSpec);
  rotate(config, {"--offset", "5"});
  const Outcome same =
      run({"diagnose", file("X.npy"), file("Y.npy"), "--config", config, "--positions", "5:17"});
  EXPECT_EQ(same.exit, 0) << same.out << same.err;

  const std::string other =
      put_text("other.json", R"({"head_dim": 8, "base": 500000, "layout": "half"})");
  const Outcome differs =
      run({"diagnose", file("X.npy"), file("Y.npy"), "--config", other, "--json"});
  EXPECT_EQ(differs.exit, 1) << differs.err;
  const json answer = json::parse(differs.out);
  EXPECT_EQ(answer["agrees_with_config"], false);
  EXPECT_EQ(answer["verdict"], "differs");
  EXPECT_EQ(answer["cause"]["id"], "base");
  ASSERT_EQ(answer["differences"].size(), 2U);
  EXPECT_EQ(answer["differences"][0]["field"], "layout");
  EXPECT_EQ(answer["differences"][0]["asked"], "half");
  EXPECT_EQ(answer["differences"][0]["found"], "interleaved");
  EXPECT_EQ(answer["differences"][1]["field"], "base");
  EXPECT_EQ(answer["differences"][1]["found"], "10000");
}

TEST_F(Diagnose, TheCauseHasAnIdAndItsFields) {
  const std::string config = put_text("spec.json", kPlainSpec);
  rotate(config, {"--offset", "6"});
  const Outcome ahead = run({"diagnose", file("X.npy"), file("Y.npy"), "--config", config,
                             "--positions", "5:17", "--json"});
  EXPECT_EQ(ahead.exit, 1) << ahead.err;
  EXPECT_EQ(json::parse(ahead.out)["cause"]["id"], "positions_one_ahead");
  const Outcome still = run({"diagnose", file("X.npy"), file("X.npy"), "--config", config,
                             "--positions", "5:17", "--json"});
  EXPECT_EQ(still.exit, 1) << still.err;
  EXPECT_EQ(json::parse(still.out)["cause"]["id"], "not_rotated");
  // At position 0 the same tensors are as the config says.
  const std::vector<float> one(2 * 8, 1.0F);
  const std::string x = put_array("one.npy", io::NpyType::f32, {1, 2, 8}, one);
  const Outcome first = run({"diagnose", x, x, "--config", config, "--positions", "0:1", "--json"});
  EXPECT_EQ(first.exit, 0) << first.out;
  const json answer = json::parse(first.out);
  EXPECT_EQ(answer["verdict"], "as_config");
  EXPECT_EQ(answer["agrees_with_config"], true);
  EXPECT_TRUE(answer["cause"].is_null());
  EXPECT_EQ(answer["answer"], "rope");
}

TEST_F(Diagnose, SeveralRowsOfPositionsAndRoles) {
  const std::string mrope = put_text("mrope.json", R"({"head_dim": 8, "base": 10000,
    "layout": "half", "mrope": {"sections": [2, 1, 1]}})");
  std::vector<std::int64_t> rows;
  for (std::int64_t axis = 0; axis < 3; ++axis) {
    for (std::int64_t t = 0; t < 12; ++t) {
      rows.push_back(axis == 0 ? 3 : axis == 1 ? 3 + t / 4 : 3 + t % 4);
    }
  }
  const std::string positions = put_array("P.npy", io::NpyType::i64, {3, 1, 12}, rows);
  rotate(mrope, {"--positions", positions});
  const std::vector<std::string> pair = {"diagnose", file("X.npy"), file("Y.npy"), "--json"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), pair.begin(), pair.end());
    return run(more);
  };
  EXPECT_EQ(with({"--config", mrope, "--positions", positions}).exit, 0);
  const std::string flat = put_array("F.npy", io::NpyType::i64, {3, 12}, rows);
  EXPECT_EQ(with({"--config", mrope, "--positions", flat}).exit, 0);
  const std::string other = put_text("other.json", R"({"head_dim": 8, "base": 10000,
    "layout": "half", "mrope": {"sections": [1, 2, 1]}})");
  const Outcome differs = with({"--config", other, "--positions", positions});
  EXPECT_EQ(differs.exit, 1);
  EXPECT_EQ(json::parse(differs.out)["cause"]["id"], "sections");

  const std::string xpos = put_text("xpos.json", R"({"head_dim": 8, "base": 10000,
    "layout": "half", "xpos": {"scale_base": 8}})");
  rotate(xpos);
  EXPECT_EQ(with({"--config", xpos, "--positions", "0:12"}).exit, 0);
  EXPECT_EQ(with({"--config", xpos, "--positions", "0:12", "--role", "query"}).exit, 0);
  const Outcome side = with({"--config", xpos, "--positions", "0:12", "--role", "key"});
  EXPECT_EQ(side.exit, 1);
  EXPECT_EQ(json::parse(side.out)["cause"]["id"], "xpos_side");
}

TEST_F(Diagnose, VectorsThatAreNotFiniteAreNamedAndTheRestIsJudged) {
  const std::string config = put_text("spec.json", kPlainSpec);
  rotate(config);
  const io::NpyArray before = io::read_npy(file("X.npy")).value_or_throw();
  const io::NpyArray after = io::read_npy(file("Y.npy")).value_or_throw();
  std::vector<float> values(after.as<float>(), after.as<float>() + after.size());
  values[3 * 2 * 8 + 8] = std::nanf("");  // token 3, head 1
  const std::string y = put_array("N.npy", io::NpyType::f32, {12, 2, 8}, values);
  const Outcome outcome =
      run({"diagnose", file("X.npy"), y, "--config", config, "--positions", "0:12"});
  EXPECT_EQ(outcome.exit, 0) << outcome.out;
  EXPECT_NE(outcome.out.find("[3, 1]"), std::string::npos) << outcome.out;
}

TEST_F(Diagnose, RefusesWrongInput) {
  const std::string x = put_array("x.npy", io::NpyType::f32, {2, 2, 4}, std::vector<float>(16, 1));
  const std::string y = put_array("y.npy", io::NpyType::f32, {2, 2, 2}, std::vector<float>(8, 1));
  const std::string odd = put_array("odd.npy", io::NpyType::f32, {2, 3}, std::vector<float>(6, 1));
  const std::string none = put_array("none.npy", io::NpyType::f32, {0, 2, 4}, std::vector<float>());
  expect_refusal(run({"diagnose", x, y}), "diagnose", {"[2, 2, 4]", "[2, 2, 2]"});
  expect_refusal(run({"diagnose", odd, odd}), "diagnose", "3");
  expect_refusal(run({"diagnose", none, none}), "diagnose", "[0, 2, 4]");
  expect_refusal(run({"diagnose", x}), "diagnose", {"BEFORE", "AFTER"});
  expect_refusal(run({"diagnose", x, file("missing.npy")}), "diagnose", "missing.npy");
  expect_refusal(run_golden("diag_half_plain", {"--positions", "0:7"}), "diagnose",
                 {"positions", "7"});
  expect_refusal(run_golden("diag_half_plain", {"--positions", "0:4000000000"}), "diagnose",
                 {"--positions", "4000000000"});
  expect_refusal(run_golden("diag_half_plain", {"--axes", "tokens,dim"}), "diagnose",
                 {"axes", "tokens,dim"});
}

}  // namespace
}  // namespace phasor::tools::testing
