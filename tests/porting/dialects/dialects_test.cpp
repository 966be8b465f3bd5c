// The rules of the dialects, each with the number of the public report it is known from. Those of
// vLLM and of mlx have files of their own.
#include "phasor/porting/config_reports.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "porting/diff/diff_support.hpp"

namespace phasor::porting {
namespace {

using namespace testing;

// A stored amplitude that is the usual one changes nothing (OLMo 3).
TEST(Dialects, TheUsualAmplitudeIsNoDifference) {
  const json config = with_scaling(llama(65536), {{"type", "yarn"},
                                                  {"factor", 8.0},
                                                  {"attention_factor", 1.2079441541679836},
                                                  {"original_max_position_embeddings", 8192}});
  const DiffReport report = compare(config, {"hf", "vllm", "sglang", "llama.cpp"});
  EXPECT_TRUE(report.agree);
  for (const EngineView& view : report.groups[0].views) {
    for (const RuleInForce& rule : view.rules) EXPECT_FALSE(rule.changes) << rule.rule.id;
  }
}

TEST(Dialects, SglangReadsMscaleButNotAttentionFactor) {
  json yarn = {{"type", "yarn"},
               {"factor", 64.0},
               {"attention_factor", 1.0},
               {"original_max_position_embeddings", 4096}};
  const DiffReport ignored = compare(with_scaling(llama(262144), yarn), {"hf", "sglang"});
  EXPECT_NEAR(only_part(ignored).amplitude_ratio, 1.4158883, 1e-7);
  EXPECT_EQ(cause_ids(only_part(ignored)), std::set<std::string>{"sglang-yarn-amplitude"});
  yarn.erase("attention_factor");
  yarn["mscale"] = 1.0;
  yarn["mscale_all_dim"] = 0.5;
  EXPECT_TRUE(compare(with_scaling(llama(262144), yarn), {"hf", "sglang"}).agree);
  json sections = yarn;
  sections["mrope_section"] = {16, 24, 24};
  sections["mrope_interleaved"] = false;
  json qwen = with_scaling(llama(262144), sections);
  qwen["model_type"] = "qwen2_vl";
  EXPECT_FALSE(compare(qwen, {"hf", "sglang"}).groups[0].views[1].refusal.empty());
}

TEST(Dialects, SglangFixesTheBaseOfDynamicScaling) {
  const json config = with_scaling(llama(4096), {{"type", "dynamic"}, {"factor", 2.0}});
  const DiffReport report = compare(config, {"hf", "sglang", "vllm"});
  EXPECT_FALSE(report.agree);
  EXPECT_EQ(report.groups[0].views[1].frequencies, report.groups[0].views[2].frequencies);
  EXPECT_EQ(
      compare(with_scaling(llama(4096), {{"type", "linear"}, {"factor", 2.0}}), {"hf", "sglang"})
          .agree,
      true);
}

// Measured with transformers 4.57: these classes have defaults of their own.
TEST(Dialects, Transformers4UsesTheDefaultsOfTheModelClass) {
  json falcon = {{"model_type", "falcon_h1"},
                 {"hidden_size", 2048},
                 {"num_attention_heads", 8},
                 {"head_dim", 128},
                 {"max_position_embeddings", 131072},
                 {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e11}}}};
  const DiffReport report = compare(falcon, {"hf-4", "hf"});
  EXPECT_NEAR(report.groups[0].views[0].frequencies[1], std::pow(1e5, -2.0 / 128), 1e-12);
  const json gpt_oss = {{"model_type", "gpt_oss"},
                        {"hidden_size", 2880},
                        {"num_attention_heads", 64},
                        {"head_dim", 64},
                        {"max_position_embeddings", 131072},
                        {"rope_parameters",
                         {{"rope_type", "yarn"},
                          {"rope_theta", 1.5e5},
                          {"factor", 32.0},
                          {"truncate", false},
                          {"original_max_position_embeddings", 4096}}}};
  EXPECT_TRUE(compare(gpt_oss, {"hf-4", "hf"}).agree);
}

// Qwen3-VL's sections 24, 20, 20: transformers gives the pairs that are left to the first row.
TEST(Dialects, LlamaCppLeavesPairsOfInterleavedMropeToAFourthRow) {
  json config = {{"model_type", "qwen3_vl_text"},
                 {"hidden_size", 4096},
                 {"num_attention_heads", 32},
                 {"head_dim", 128},
                 {"max_position_embeddings", 262144},
                 {"rope_parameters",
                  {{"rope_type", "default"},
                   {"rope_theta", 5e6},
                   {"mrope_section", {24, 20, 20}},
                   {"mrope_interleaved", true}}}};
  const DiffReport report = compare(config, {"hf", "llama.cpp"});
  const EngineComparison& part = only_part(report);
  ASSERT_TRUE(part.first_difference.has_value());
  EXPECT_EQ(part.first_difference->pair, 61);
  EXPECT_EQ(part.first_difference->second, 0.0);
  EXPECT_EQ(cause_ids(part), std::set<std::string>{"llamacpp-interleaved-mrope-fourth-row"});
  config["rope_parameters"]["mrope_section"] = {22, 21, 21};
  EXPECT_TRUE(compare(config, {"hf", "llama.cpp"}).agree);
}

TEST(Dialects, DeepSeekAgreesOnAmplitudeAndSoftmaxScale) {
  const json config = {{"model_type", "deepseek_v3"},
                       {"hidden_size", 7168},
                       {"num_attention_heads", 128},
                       {"qk_rope_head_dim", 64},
                       {"qk_nope_head_dim", 128},
                       {"max_position_embeddings", 163840},
                       {"rope_theta", 10000},
                       {"rope_scaling",
                        {{"type", "yarn"},
                         {"factor", 40},
                         {"mscale", 1.0},
                         {"mscale_all_dim", 1.0},
                         {"original_max_position_embeddings", 4096}}}};
  const DiffReport report = compare(config, {"hf", "vllm", "llama.cpp"});
  EXPECT_TRUE(report.agree);
  const double g = 0.1 * std::log(40.0) + 1.0;
  for (const EngineView& view : report.groups[0].views) {
    EXPECT_NEAR(view.amplitude, 1.0, 1e-15);
    EXPECT_NEAR(view.softmax_scale, g * g / std::sqrt(192.0), 1e-12);
  }
}

TEST(Dialects, LlamaCppTakesDeepSeeksMscalePairAsEqual) {
  json config = {{"model_type", "deepseek_v3"},
                 {"hidden_size", 2048},
                 {"num_attention_heads", 16},
                 {"qk_rope_head_dim", 64},
                 {"qk_nope_head_dim", 128},
                 {"max_position_embeddings", 65536},
                 {"rope_theta", 10000.0},
                 {"rope_scaling",
                  {{"type", "yarn"},
                   {"factor", 16.0},
                   {"mscale", 1.0},
                   {"mscale_all_dim", 0.8},
                   {"original_max_position_embeddings", 4096}}}};
  const DiffReport report = compare(config, {"hf", "llama.cpp"});
  const EngineComparison& part = only_part(report);
  EXPECT_EQ(cause_ids(part), std::set<std::string>{"llamacpp-yarn-mscale"});
  EXPECT_NEAR(report.groups[0].views[1].amplitude, 1.0, 1e-15);

  config["rope_scaling"].erase("mscale_all_dim");
  config["rope_scaling"]["mscale"] = 0.5;
  const DiffReport alone = compare(config, {"hf", "vllm"});
  EXPECT_EQ(cause_ids(only_part(alone)), std::set<std::string>{"vllm-deepseek-yarn"});
  EXPECT_NEAR(alone.groups[0].views[1].amplitude, 0.05 * std::log(16.0) + 1.0, 1e-12);
}

TEST(Dialects, LlamaCppDoesNotReadTruncate) {
  const json config = {{"model_type", "gpt_oss"},
                       {"hidden_size", 2880},
                       {"num_attention_heads", 64},
                       {"head_dim", 64},
                       {"max_position_embeddings", 131072},
                       {"rope_theta", 150000},
                       {"rope_scaling",
                        {{"rope_type", "yarn"},
                         {"factor", 32.0},
                         {"truncate", false},
                         {"original_max_position_embeddings", 4096}}}};
  EXPECT_TRUE(compare(config, {"hf", "vllm"}).agree);
  const DiffReport report = compare(config, {"hf", "llama.cpp"});
  EXPECT_EQ(cause_ids(only_part(report)), std::set<std::string>{"llamacpp-yarn-truncate"});
}

TEST(Dialects, HfReadsNestedTruncateFromTheOuterDictionary) {
  const json yarn = {{"rope_type", "yarn"},
                     {"rope_theta", 150000.0},
                     {"factor", 32.0},
                     {"truncate", false},
                     {"original_max_position_embeddings", 4096}};
  json config = {{"model_type", "gemma3_text"},
                 {"hidden_size", 1024},
                 {"num_attention_heads", 8},
                 {"head_dim", 64},
                 {"num_hidden_layers", 6},
                 {"max_position_embeddings", 131072},
                 {"rope_parameters",
                  {{"full_attention", yarn},
                   {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}}};
  DiffOptions options;
  options.between = {"hf", "vllm"};
  options.layer = "full_attention";
  const DiffReport report = diff(readable(config), options).value_or_throw();
  EXPECT_EQ(cause_ids(only_part(report)), std::set<std::string>{"hf-nested-truncate"});
  options.layer = "sliding_attention";
  EXPECT_TRUE(diff(readable(config), options).value_or_throw().agree);
}

// A key that was stored while the text was short keeps the base of that time.
TEST(Dialects, Transformers25104_DynamicNtkMakesCachedKeysStale) {
  const DiffReport report = compare(dynamic_config(), {"hf", "llama.cpp"}, 8192);
  const EngineView& hf = report.groups[0].views[0];
  const double moved = 10000.0 * std::pow(3.0, 128.0 / 126.0);
  double expected = 0.0;
  for (int i = 0; i < 64; ++i) {
    const double exponent = -2.0 * i / 128.0;
    expected =
        std::max(expected, 4095.0 * (std::pow(10000.0, exponent) - std::pow(moved, exponent)));
  }
  EXPECT_NEAR(hf.stale_key_angle, expected, 1e-9 * expected);
  EXPECT_TRUE(ids_in_force(hf).contains("hf-dynamic-by-sequence"));
}

TEST(Dialects, Transformers27227_WithinTheOriginalLengthNoKeyIsStale) {
  const DiffReport report = compare(dynamic_config(), {"hf", "llama.cpp"}, 4096);
  EXPECT_EQ(report.groups[0].views[0].stale_key_angle, 0.0);
  EXPECT_TRUE(report.agree);
}

TEST(Dialects, LlamaCppHasNoDynamicScaling) {
  const DiffReport report = compare(dynamic_config(), {"hf", "llama.cpp"}, 8192);
  EXPECT_EQ(cause_ids(only_part(report)), std::set<std::string>{"llamacpp-base-only"});
  EXPECT_EQ(report.groups[0].views[1].frequencies[1], std::pow(10000.0, -2.0 / 128.0));
}

TEST(Dialects, HunyuanAlphaIsTheSameEverywhere) {
  const json config = with_scaling(llama(32768), {{"type", "dynamic"}, {"alpha", 1000.0}});
  EXPECT_TRUE(compare(config, {"hf", "vllm", "llama.cpp"}).agree);
}

TEST(Dialects, LlamaCpp24823_ShortTextsGetTheLongList) {
  const DiffReport report = compare(phi3(), {"hf", "llama.cpp"}, 1000);
  const EngineComparison& part = only_part(report);
  EXPECT_EQ(part.first_difference->pair, 1);
  EXPECT_NEAR(part.first_difference->ratio, 1.0 / 1.5, 1e-12);
  EXPECT_EQ(cause_ids(part), std::set<std::string>{"llamacpp-longrope-by-context-size"});
  EXPECT_TRUE(names_source(part, "#24823"));
  // Allocated within the original length, both take the short one.
  EXPECT_TRUE(compare(phi3(), {"hf", "llama.cpp"}, 1000, 4096).agree);
}

TEST(Dialects, LlamaCpp24875_BeyondTheOriginalLengthBothTakeTheLongList) {
  EXPECT_TRUE(compare(phi3(), {"hf", "llama.cpp"}, 8192).agree);
}

TEST(Dialects, Transformers33129_TheSwitchOfFactorsMakesCachedKeysStale) {
  const DiffReport report = compare(phi3(), {"hf", "mlx-lm"}, 8192);
  const EngineView& hf = report.groups[0].views[0];
  // Pair 1: 4095 positions, 10000^(-2/96), stretched by 1.5.
  EXPECT_GE(hf.stale_key_angle, 4095.0 * std::pow(1e4, -2.0 / 96.0) * (1.0 - 1.0 / 1.5) - 1e-6);
  EXPECT_TRUE(ids_in_force(hf).contains("hf-longrope-by-sequence"));
  EXPECT_TRUE(report.agree);
}

TEST(Dialects, LongRopeAmplitudeThatTheConfigStatesIsReadByHfAlone) {
  json config = phi3();
  config["rope_scaling"]["attention_factor"] = 1.5;
  const DiffReport report = compare(config, {"hf", "vllm", "llama.cpp"}, 8192);
  const double by_lengths = std::sqrt(1.0 + std::log(32.0) / std::log(4096.0));
  EXPECT_EQ(report.groups[0].views[0].amplitude, 1.5);
  EXPECT_NEAR(report.groups[0].views[1].amplitude, by_lengths, 1e-12);
  EXPECT_NEAR(report.groups[0].views[2].amplitude, by_lengths, 1e-12);
  EXPECT_EQ(cause_ids(report.groups[0].comparisons[0]),
            std::set<std::string>{"vllm-longrope-amplitude"});
  EXPECT_EQ(cause_ids(report.groups[0].comparisons[1]),
            std::set<std::string>{"llamacpp-longrope-amplitude"});
}

// The amplitude at factor 4 is 1.139, and the stored keys grow by it at every shift.
TEST(Dialects, LlamaCpp4097_RepeatedShiftsGrowTheKeys) {
  const json config = with_scaling(
      llama(131072),
      {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}});
  const DiffReport fresh = compare(config, {"hf", "llama.cpp"});
  EXPECT_TRUE(fresh.agree);
  EXPECT_NEAR(fresh.groups[0].views[1].key_gain_per_shift, 1.139, 5e-4);
  const DiffReport shifted = compare(config, {"hf", "llama.cpp"}, std::nullopt, std::nullopt, 10);
  const EngineComparison& part = only_part(shifted);
  EXPECT_EQ(part.status, ComparisonStatus::differ);
  EXPECT_NEAR(part.key_gain_ratio, std::pow(0.1 * std::log(4.0) + 1.0, 10.0), 1e-9);
  EXPECT_EQ(cause_ids(part), std::set<std::string>{"llamacpp-k-shift-amplitude"});
  EXPECT_TRUE(names_source(part, "#4097"));
}

TEST(Dialects, LlamaCpp13865_NoShiftUnderMrope) {
  const DiffReport report = compare(qwen_vl_yarn(), {"hf", "llama.cpp"});
  EXPECT_TRUE(ids_in_force(report.groups[0].views[1]).contains("llamacpp-no-mrope-shift"));
  EXPECT_EQ(report.groups[0].views[1].key_gain_per_shift, 1.0);
}

TEST(Dialects, MarinFold184_NewFormReadAsBase10000) {
  json config = llama(131072);
  config.erase("rope_theta");
  config["rope_parameters"] = {
      {"rope_type", "llama3"},   {"rope_theta", 500000.0},
      {"factor", 8.0},           {"low_freq_factor", 1.0},
      {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  const DiffReport report = compare(config, {"hf-4", "hf"});
  const EngineComparison& part = only_part(report);
  EXPECT_EQ(cause_ids(part), std::set<std::string>{"hf4-legacy-keys"});
  EXPECT_TRUE(names_source(part, "MarinFold #184"));
  EXPECT_NE(part.causes[0].rule.effect.find("base 500000 is read as 10000"), std::string::npos);
  EXPECT_NE(part.causes[0].rule.effect.find("llama3 is lost"), std::string::npos);
  EXPECT_EQ(report.groups[0].views[0].frequencies[1], std::pow(10000.0, -2.0 / 128.0));
}

TEST(Dialects, DeepSpeed8345_LegacyFormIsReadRight) {
  EXPECT_TRUE(compare(llama(131072, 5e5), {"hf-4", "hf"}).agree);
  json config = llama(131072);
  config["rope_theta"] = nullptr;
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  const DiffReport report = compare(config, {"hf-4", "hf"});
  EXPECT_FALSE(report.agree);
  EXPECT_TRUE(names_source(only_part(report), "DeepSpeed #8345"));
}

TEST(Dialects, Hf4LosesTheShareOfTheHeadThatRotates) {
  json config = llama(4096);
  config.erase("rope_theta");
  config["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.5}};
  const DiffReport report = compare(config, {"hf", "hf-4"});
  const EngineComparison& part = only_part(report);
  EXPECT_EQ(part.status, ComparisonStatus::differ);
  EXPECT_NE(part.causes.at(0).rule.effect.find("rotary_dim 64 is read as 128"), std::string::npos);
}

// candle #3520: in bfloat16 integer positions above 256 are not exact, and 15962 becomes 15936.
TEST(Dialects, Candle3520_TableInTheTypeOfTheWeights) {
  json config = llama(32768);
  config["model_type"] = "qwen2";
  config["torch_dtype"] = "bfloat16";
  const auto candle_at = [&](std::int64_t context) {
    DiffOptions options;
    options.between = {"hf", "candle"};
    options.context = context;
    return diff(readable(config), options).value_or_throw();
  };
  EXPECT_EQ(candle_at(257).groups[0].views[1].rounding[0], 0.0);
  EXPECT_EQ(candle_at(258).groups[0].views[1].rounding[0], 1.0);
  const DiffReport report = candle_at(15963);
  EXPECT_EQ(report.groups[0].views[1].rounding[0], 26.0);
  const EngineComparison& part = only_part(report);
  EXPECT_EQ(part.status, ComparisonStatus::differ);
  EXPECT_EQ(cause_ids(part), std::set<std::string>{"candle-table-in-model-dtype"});
  EXPECT_TRUE(names_source(part, "candle #3520"));
  EXPECT_NE(part.causes.at(0).rule.effect.find("15936"), std::string::npos);

  config["torch_dtype"] = "float32";
  EXPECT_TRUE(candle_at(15963).agree);
  config["torch_dtype"] = "bfloat16";
  config["model_type"] = "llama";
  EXPECT_TRUE(candle_at(15963).agree);
}

}  // namespace
}  // namespace phasor::porting
