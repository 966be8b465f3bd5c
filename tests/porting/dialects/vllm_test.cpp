// The rules of vLLM, with the numbers of the public reports they are known from.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "phasor/porting/config_reports.hpp"
#include "porting/diff/diff_support.hpp"

namespace phasor::porting {
namespace {

using namespace testing;

// A stored amplitude of 1 against 0.1 ln(64) + 1.
TEST(Dialects, Vllm48351_AttentionFactorIgnored) {
  const json config = with_scaling(llama(262144), {{"type", "yarn"},
                                                   {"factor", 64.0},
                                                   {"attention_factor", 1.0},
                                                   {"original_max_position_embeddings", 4096}});
  const DiffReport report = compare(config, {"hf", "vllm"});
  const EngineComparison& part = only_part(report);
  EXPECT_EQ(part.status, ComparisonStatus::differ);
  EXPECT_FALSE(part.first_difference.has_value());
  EXPECT_NEAR(part.amplitude_ratio, 1.4159, 5e-5);
  EXPECT_EQ(cause_ids(part), std::set<std::string>{"vllm-yarn-amplitude"});
  EXPECT_TRUE(names_source(part, "#48351"));
  // Both sides of a score carry the amplitude.
  EXPECT_NEAR(part.score_bound, 1.4158883 * 1.4158883 - 1.0, 1e-6);
  EXPECT_TRUE(compare(config, {"hf", "vllm-main"}).agree);
}

// vLLM 0.25 reads it, 0.33 does not.
TEST(Dialects, ExtrapolationFactorIsReadByVllmAlone) {
  const json config = with_scaling(llama(262144), {{"type", "yarn"},
                                                   {"factor", 64.0},
                                                   {"extrapolation_factor", 0.5},
                                                   {"original_max_position_embeddings", 4096}});
  for (const auto& [engine, id] : {std::pair("hf", "hf-yarn-extrapolation-factor"),
                                   std::pair("vllm-main", "vllm-yarn-extrapolation-factor"),
                                   std::pair("llama.cpp", "llamacpp-yarn-extrapolation-factor"),
                                   std::pair("mlx-lm", "mlx-yarn-extrapolation-factor")}) {
    const DiffReport report = compare(config, {"vllm", engine});
    const EngineComparison& part = only_part(report);
    EXPECT_EQ(part.status, ComparisonStatus::differ) << engine;
    EXPECT_TRUE(cause_ids(part).contains(id)) << engine;
  }
}

TEST(Dialects, Vllm48621_MscalePairIgnored) {
  const json config = with_scaling(llama(262144), {{"type", "yarn"},
                                                   {"factor", 16.0},
                                                   {"mscale", 1.0},
                                                   {"mscale_all_dim", 1.0},
                                                   {"original_max_position_embeddings", 16384}});
  const DiffReport report = compare(config, {"hf", "vllm", "vllm-main"});
  EXPECT_NEAR(report.groups[0].views[0].amplitude, 1.0, 1e-15);
  EXPECT_NEAR(report.groups[0].views[1].amplitude, 1.2772588722239782, 1e-12);
  EXPECT_NEAR(report.groups[0].views[2].amplitude, 1.0, 1e-15);
  EXPECT_TRUE(names_source(report.groups[0].comparisons[0], "#48621"));
}

// A trainer that used attention_factor and a server that ignored it: 1.4159 apart.
TEST(Dialects, Vllm48621_TrainerAndServerDisagreeBy14159) {
  json config = llama(262144);
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "yarn"},
                               {"rope_theta", 5e5},
                               {"factor", 64.0},
                               {"attention_factor", 1.0},
                               {"original_max_position_embeddings", 4096}};
  const DiffReport report = compare(config, {"hf", "vllm", "llama.cpp"});
  EXPECT_FALSE(report.agree);
  EXPECT_NEAR(report.groups[0].views[1].amplitude / report.groups[0].views[0].amplitude, 1.4159,
              5e-5);
  EXPECT_NEAR(report.groups[0].views[2].amplitude / report.groups[0].views[0].amplitude, 1.4159,
              5e-5);
  EXPECT_EQ(cause_ids(report.groups[0].comparisons[1]),
            std::set<std::string>{"llamacpp-yarn-attention-factor"});
}

TEST(Dialects, VllmMropeYarnMovesTheRangeBy22) {
  const DiffReport report = compare(qwen_vl_yarn(), {"hf", "vllm"});
  const EngineComparison& part = only_part(report);
  ASSERT_TRUE(part.largest_ratio.has_value());
  EXPECT_NEAR(part.largest_ratio->ratio, 2.2, 0.05);
  EXPECT_EQ(cause_ids(part), std::set<std::string>{"vllm-mrope-yarn-range"});
  EXPECT_LT(part.first_difference->pair, part.largest_ratio->pair);
}

// Whatever the length of the sequence, the base is that of (factor max) positions.
TEST(Dialects, Vllm41236_DynamicNtkIsConstant) {
  const double growth = 2.0 * 2.0 - 1.0;
  const double base = 10000.0 * std::pow(growth, 128.0 / 126.0);
  for (const std::int64_t context : {64, 4096, 8192}) {
    const DiffReport report = compare(dynamic_config(), {"hf", "vllm"}, context);
    EXPECT_NEAR(report.groups[0].views[1].frequencies[1] / std::pow(base, -2.0 / 128.0), 1.0,
                1e-13);
  }
  // At factor * max both come to the same base.
  EXPECT_TRUE(compare(dynamic_config(), {"hf", "vllm"}, 8192).agree);
}

// Texts within the original length are rotated with another base than in transformers.
TEST(Dialects, Vllm3488_DynamicNtkDegradesTextsWithinTheOriginalLength) {
  const DiffReport report = compare(dynamic_config(), {"hf", "vllm"}, 2048);
  const EngineComparison& part = only_part(report);
  EXPECT_EQ(part.first_difference->pair, 1);
  EXPECT_EQ(cause_ids(part), std::set<std::string>{"vllm-dynamic-at-load"});
  EXPECT_TRUE(names_source(part, "#3488"));
}

TEST(Dialects, Vllm52665_ServedBelowTheTrainedLengthHasNoBase) {
  const DiffReport report = compare(dynamic_config(), {"hf", "vllm"}, 1024, 1024);
  const EngineComparison& part = only_part(report);
  EXPECT_EQ(part.status, ComparisonStatus::unreadable);
  EXPECT_NE(report.groups[0].views[1].refusal.find("#52665"), std::string::npos);
  EXPECT_FALSE(report.agree);
}

TEST(Dialects, NtkIsReadByVllmAlone) {
  for (const json& scaling : {json{{"type", "ntk"}, {"factor", 4.0}},
                              json{{"type", "ntk"}, {"factor", 4.0}, {"mixed_b", 0.625}}}) {
    const DiffReport report =
        compare(with_scaling(llama(4096), scaling), {"hf", "vllm", "llama.cpp"});
    EXPECT_FALSE(report.groups[0].views[0].refusal.empty());
    EXPECT_TRUE(report.groups[0].views[1].refusal.empty());
    EXPECT_EQ(report.groups[0].comparisons[0].status, ComparisonStatus::unreadable);
    EXPECT_EQ(cause_ids(report.groups[0].comparisons[2]),
              std::set<std::string>{"llamacpp-base-only"});
  }
}

TEST(Dialects, VllmChoosesTheListByTheServedLength) {
  const DiffReport report = compare(phi3(), {"hf", "vllm"}, 1000);
  EXPECT_EQ(cause_ids(only_part(report)), std::set<std::string>{"vllm-longrope-by-max-length"});
  EXPECT_TRUE(compare(phi3(), {"hf", "vllm"}, 1000, 2048).agree);
}

}  // namespace
}  // namespace phasor::porting
