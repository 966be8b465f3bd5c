#include "phasor/porting/config_reports.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "diff_support.hpp"
#include "phasor/io/internal/json.hpp"
#include "support/errors.hpp"

namespace phasor::porting {
namespace {

using namespace testing;

TEST(Diff, PlainRotationIsTheSameEverywhere) {
  const DiffReport report = compare(llama(4096), {"hf", "vllm", "llama.cpp"});
  EXPECT_TRUE(report.agree);
  ASSERT_EQ(report.groups.size(), 1u);
  ASSERT_EQ(report.groups[0].comparisons.size(), 3u);
  for (const EngineComparison& part : report.groups[0].comparisons) {
    EXPECT_EQ(part.status, ComparisonStatus::agree);
    EXPECT_EQ(part.score_bound, 0.0);
    EXPECT_TRUE(part.causes.empty());
    EXPECT_GT(part.rounding_difference, 0.0);
  }
}

// The measured errors of the engines' float32 angles at position 131071, base 10000.
TEST(Diff, Float32AngleErrorOfEachEngine) {
  const DiffReport report = compare(llama(131072), {"hf", "vllm", "llama.cpp"});
  EXPECT_NEAR(largest(report.groups[0].views[0].rounding), 4.2e-3, 0.1e-3);
  EXPECT_NEAR(largest(report.groups[0].views[1].rounding), 4.2e-3, 0.1e-3);
  EXPECT_NEAR(largest(report.groups[0].views[2].rounding), 1.3e-2, 0.1e-2);
}

TEST(Diff, Float32AngleErrorAtOneMillion) {
  const DiffReport report = compare(llama(131072), {"hf", "llama.cpp"}, 1000001);
  EXPECT_NEAR(largest(report.groups[0].views[0].rounding), 5.2e-2, 0.6e-2);
  EXPECT_NEAR(largest(report.groups[0].views[1].rounding), 7.8e-2, 0.8e-2);
}

TEST(Diff, LinearDividesPositionsInVllmAndGivesTheSameAngles) {
  const json config = with_scaling(llama(4096), {{"type", "linear"}, {"factor", 4.0}});
  const DiffReport report = compare(config, {"hf", "vllm", "llama.cpp"});
  EXPECT_TRUE(report.agree);
  const EngineView& vllm = report.groups[0].views[1];
  EXPECT_EQ(vllm.position_divisor, 4.0);
  EXPECT_EQ(ids_in_force(vllm), std::set<std::string>{"vllm-linear-positions"});
  EXPECT_NEAR(vllm.frequencies[0], 0.25, 1e-15);
}

TEST(Diff, Llama3IsTheSameEverywhere) {
  const json config =
      with_scaling(llama(131072, 5e5), {{"rope_type", "llama3"},
                                        {"factor", 8.0},
                                        {"low_freq_factor", 1.0},
                                        {"high_freq_factor", 4.0},
                                        {"original_max_position_embeddings", 8192}});
  EXPECT_TRUE(compare(config, {"hf", "vllm", "llama.cpp"}).agree);
}

TEST(Diff, ScoreBoundIsTwoSinesOfHalfTheAngle) {
  // Linear by 2 against none: the angle of pair i of a head of 4 differs by d f_i / 2.
  const json config = {{"model_type", "gemma3_text"},
                       {"hidden_size", 64},
                       {"num_attention_heads", 8},
                       {"head_dim", 4},
                       {"max_position_embeddings", 3},
                       {"num_hidden_layers", 6},
                       {"rope_theta", 100.0},
                       {"rope_local_base_freq", 100.0},
                       {"rope_scaling", {{"factor", 2.0}, {"rope_type", "linear"}}}};
  DiffOptions options;
  options.between = {"hf", "mlx-vlm"};
  options.layer = "full_attention";
  const DiffReport report = diff(readable(config), options).value_or_throw();
  const EngineComparison& part = only_part(report);
  // d = 2; frequencies 1 and 0.1, halved in one of the two: 1 rad and 0.1 rad apart.
  EXPECT_NEAR(part.angle_difference, 1.0, 1e-12);
  EXPECT_NEAR(part.score_bound, 2.0 * std::sin(0.5), 1e-12);
  EXPECT_NEAR(part.score_bound_even, std::sin(0.5) + std::sin(0.05), 1e-12);
}

// No query and key of the length it is stated for escape the bound.
RC_GTEST_PROP(DiffLaw, ScoresStayWithinTheBound, ()) {
  const double factor = *rc::gen::inRange(2, 65) * 1.0;
  const double stored = *rc::gen::inRange(5, 20) / 10.0;
  const json config = with_scaling(llama(4096), {{"type", "yarn"},
                                                 {"factor", factor},
                                                 {"attention_factor", stored},
                                                 {"original_max_position_embeddings", 1024}});
  const std::int64_t context = *rc::gen::inRange(2, 3000);
  const DiffReport report = compare(config, {"hf", "vllm"}, context);
  const EngineView &a = report.groups[0].views[0], &b = report.groups[0].views[1];
  const EngineComparison& part = only_part(report);
  const auto distance = static_cast<double>(*rc::gen::inRange<std::int64_t>(0, context));
  // Each pair of q and k as a complex number; the score is the real part of the rotated product.
  double first = 0.0, second = 0.0, q_length = 0.0, k_length = 0.0;
  for (std::size_t i = 0; i < a.frequencies.size(); ++i) {
    const std::complex<double> q(*rc::gen::inRange(-100, 101), *rc::gen::inRange(-100, 101));
    const std::complex<double> k(*rc::gen::inRange(-100, 101), *rc::gen::inRange(-100, 101));
    const std::complex<double> product = q * std::conj(k);
    q_length += std::norm(q);
    k_length += std::norm(k);
    first += (product * std::polar(a.amplitude * a.amplitude, distance * a.frequencies[i])).real();
    second += (product * std::polar(b.amplitude * b.amplitude, distance * b.frequencies[i])).real();
  }
  const double scale = a.amplitude * a.amplitude * std::sqrt(q_length * k_length);
  RC_ASSERT(std::abs(first - second) <= (part.score_bound + 1e-9) * scale);
  RC_ASSERT(part.score_bound_even <= part.score_bound + 1e-12);
}

TEST(Diff, EveryRuleIsTaggedAndListedOnce) {
  std::set<std::string_view> names;
  for (const Dialect& dialect : dialects()) {
    EXPECT_TRUE(names.insert(dialect.name).second) << dialect.name;
    EXPECT_FALSE(dialect.version.empty());
    std::set<std::string_view> ids;
    for (const DialectRule& rule : dialect.rules) {
      EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
      EXPECT_FALSE(rule.sentence.empty());
      // A report has a number; what was read in a source may do without.
      if (rule.evidence == Evidence::reported) {
        EXPECT_NE(rule.source.find('#'), std::string_view::npos) << rule.id;
      }
    }
  }
  const json listed = json::parse(dialects_json());
  EXPECT_EQ(listed.size(), dialects().size());
}

TEST(Diff, Refusals) {
  const ReadableConfig config = readable(llama(4096));
  const auto expect = [&](const DiffOptions& options,
                          std::initializer_list<std::string_view> values) {
    tests::expect_error(ErrorCode::invalid_argument, values, diff(config, options));
  };
  DiffOptions options;
  options.between = {"hf"};
  expect(options, {"engines", "got 1"});
  options.between = {"hf", "hf"};
  expect(options, {"\"hf\"", "twice"});
  options.between = {"hf", "tgi"};
  expect(options, {"\"tgi\"", "sglang", "llama.cpp", "candle"});
  options = {};
  options.context = 0;
  expect(options, {"context", "2^40", "got 0"});
  options = {};
  options.max_length = 0;
  expect(options, {"max_length", "got 0"});
  options = {};
  options.shifts = -1;
  expect(options, {"shifts", "got -1"});
  options = {};
  options.layer = "9";
  expect(options, {"layer", "9"});
}

TEST(Diff, EveryGoldenConfigIsCompared) {
  const std::vector<std::filesystem::path> paths = golden_config_files();
  EXPECT_GT(paths.size(), 30u);
  DiffOptions options;
  options.between.clear();
  for (const Dialect& dialect : dialects()) options.between.emplace_back(dialect.name);
  for (const std::filesystem::path& path : paths) {
    SCOPED_TRACE(path.string());
    const Result<ReadableConfig> config = read_readable_config(path);
    ASSERT_TRUE(config.ok()) << config.error().what();
    // GPT-2 and BLOOM have no rotation that engines could read differently.
    if (!config->meaning.other_positions.empty()) continue;
    const Result<DiffReport> report = diff(*config, options);
    ASSERT_TRUE(report.ok()) << report.error().what();
    const json parsed = json::parse(diff_json(*report));
    EXPECT_EQ(parsed.at("agree").get<bool>(), report->agree);
    EXPECT_EQ(parsed.at("groups").size(), report->groups.size());
  }
}

// Layers that differ only in their window are compared once.
TEST(Diff, GroupsThatRotateAlikeAreOne) {
  json gemma2 = llama(8192);
  gemma2["model_type"] = "gemma2";
  gemma2["head_dim"] = 128;
  gemma2["sliding_window"] = 4096;
  ASSERT_EQ(parse_readable_config(gemma2.dump()).value_or_throw().meaning.groups.size(), 2U);
  const DiffReport report = compare(gemma2, {"hf", "vllm"});
  ASSERT_EQ(report.groups.size(), 1U);
  EXPECT_EQ(report.groups[0].layers, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_NE(report.groups[0].layer_type.find("sliding_attention"), std::string::npos);
  EXPECT_EQ(compare(gemma3(), {"hf", "vllm"}).groups.size(), 2U);
}

ConfigDiff diff_of(const json& first, const json& second,
                   std::optional<std::int64_t> context = std::nullopt) {
  DiffOptions options;
  options.context = context;
  return diff_configs(parse_readable_config(first.dump()).value_or_throw(),
                      parse_readable_config(second.dump()).value_or_throw(), options)
      .value_or_throw();
}

TEST(DiffConfigs, NamesWhatDiffers) {
  EXPECT_TRUE(diff_of(llama(4096), llama(4096)).agree);
  EXPECT_EQ(diff_of(llama(4096), llama(4096)).same_layers, 4);
  json longer = llama(8192, 5e5);
  longer["num_key_value_heads"] = 8;
  const ConfigDiff diff = diff_of(llama(4096), longer);
  EXPECT_FALSE(diff.agree);
  std::map<std::string, std::pair<std::string, std::string>> facts;
  for (const ConfigFact& fact : diff.facts) facts[fact.name] = {fact.first, fact.second};
  EXPECT_EQ(facts.at("key_heads"), std::pair(std::string("32"), std::string("8")));
  EXPECT_EQ(facts.at("max_position_embeddings"),
            std::pair(std::string("4096"), std::string("8192")));
  ASSERT_EQ(diff.groups.size(), 1U);
  EXPECT_EQ(diff.groups[0].layers.size(), 4U);
  EXPECT_EQ(diff.groups[0].facts.at(0).name, "base");
  ASSERT_TRUE(diff.groups[0].rotation.has_value());
  EXPECT_EQ(diff.groups[0].rotation->first_difference->pair, 1);
  EXPECT_NEAR(diff.groups[0].rotation->first_difference->ratio, std::pow(50.0, -2.0 / 128.0),
              1e-12);
  const json parsed = json::parse(config_diff_json(diff));
  EXPECT_EQ(parsed.at("agree"), false);
  EXPECT_EQ(parsed.at("groups").at(0).at("rotation").at("status"), "differ");
}

TEST(DiffConfigs, LayersAreMatchedByIndex) {
  json bloom = {{"model_type", "bloom"}, {"hidden_size", 4096}, {"n_head", 32}, {"n_layer", 4}};
  const ConfigDiff other = diff_of(llama(4096), bloom);
  ASSERT_EQ(other.groups.size(), 1U);
  EXPECT_EQ(other.groups[0].facts.at(0).name, "encoding");
  EXPECT_EQ(other.groups[0].facts.at(0).second, "alibi");
  EXPECT_FALSE(other.groups[0].rotation.has_value());
  // Every second layer of one has a window.
  json full = llama(8192), windows = llama(8192);
  for (json* config : {&full, &windows}) (*config)["model_type"] = "gemma2";
  windows["sliding_window"] = 4096;
  const ConfigDiff half = diff_of(full, windows);
  ASSERT_EQ(half.groups.size(), 1U);
  EXPECT_EQ(half.groups[0].layers, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(half.same_layers, 2);
  tests::expect_error(ErrorCode::invalid_argument, {"context", "0"},
                      diff_configs(parse_readable_config(full.dump()).value_or_throw(),
                                   parse_readable_config(windows.dump()).value_or_throw(), [] {
                                     DiffOptions options;
                                     options.context = 0;
                                     return options;
                                   }()));
}

}  // namespace
}  // namespace phasor::porting
