// Plain specs, the rules between forms, and the choice of a layer.
#include "phasor/config/config.hpp"
#include "support/errors.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "config/parsed.hpp"

namespace phasor::config {
namespace {

using encodings::AxialAxes;
using encodings::MropeAxes;
using encodings::RopeSpec;
using encodings::Xpos;
using testing::parsed;

RopeSpec only_spec(const std::string& text) {
  const ModelConfig config = parsed(text);
  EXPECT_EQ(config.groups.size(), 1U);
  return config.groups.at(0).rope.value();
}

template <class Scaling>
Scaling scaling_of(const std::string& text) {
  return std::get<Scaling>(only_spec(text).scaling);
}

TEST(PlainSpec, TheOneOfTheContract) {
  const RopeSpec spec = only_spec(
      R"({"head_dim": 8, "base": 10000, "layout": "interleaved", "rotary_dim": 8,
          "scaling": {"type": "linear", "factor": 2}})");
  EXPECT_EQ(spec.head_dim, 8);
  EXPECT_EQ(spec.rotary_dim, 8);
  EXPECT_EQ(spec.base, 10000.0);
  EXPECT_EQ(spec.layout, core::PairLayout::interleaved);
  EXPECT_EQ(std::get<encodings::LinearScaling>(spec.scaling).factor, 2.0);
}

TEST(PlainSpec, WhatIsAbsentHasADefaultExceptTheLayout) {
  const RopeSpec spec = only_spec(R"({"head_dim": 64})");
  EXPECT_EQ(spec.rotary_dim, 64);
  EXPECT_EQ(spec.base, 10000.0);
  EXPECT_FALSE(spec.layout.has_value());
  EXPECT_EQ(only_spec(R"({"head_dim": 192, "rotary_offset": 128})").rotary_dim, 64);
  EXPECT_EQ(parsed(R"({"head_dim": 64, "max_position_embeddings": 512})").max_position, 512);
}

TEST(PlainSpec, Axes) {
  const auto mrope = std::get<MropeAxes>(
      only_spec(R"({"head_dim": 16, "mrope": {"sections": [2, 3, 3], "order": "alternating"}})")
          .axes);
  EXPECT_EQ(mrope, (MropeAxes{{2, 3, 3}, MropeAxes::Order::alternating}));
  const auto axial =
      std::get<AxialAxes>(only_spec(R"({"head_dim": 16, "axial": "per_half_head"})").axes);
  EXPECT_EQ(axial.kind, AxialAxes::Kind::per_half_head);
}

TEST(PlainSpec, FourSections) {
  const auto mrope = std::get<MropeAxes>(
      only_spec(R"({"head_dim": 16, "mrope": {"sections": [2, 2, 2, 2], "order": "interleaved"}})")
          .axes);
  EXPECT_EQ(mrope, (MropeAxes{{2, 2, 2, 2}, MropeAxes::Order::interleaved}));
}

TEST(PlainSpec, Lists) {
  const RopeSpec spec = only_spec(
      R"({"frequencies": [1, 0.5, 0.1], "frequency_factors": [2, 3, 4], "amplitude": 1.25,
          "layout": "half", "scaling": {"type": "linear", "factor": 2}})");
  EXPECT_EQ(spec.head_dim, 6);
  EXPECT_EQ(spec.rotary_dim, 6);
  EXPECT_EQ(spec.frequencies, (std::vector<double>{1.0, 0.5, 0.1}));
  EXPECT_EQ(spec.frequency_factors, (std::vector<double>{2.0, 3.0, 4.0}));
  EXPECT_EQ(spec.amplitude, 1.25);
  const RopeSpec part = only_spec(
      R"({"head_dim": 12, "rotary_dim": 4, "rotary_offset": 8, "frequencies": [1, 0.5]})");
  EXPECT_EQ(part.rotary_dim, 4);
  EXPECT_EQ(part.head_dim, 12);
  const ModelConfig config = parsed(R"({"frequencies": [1], "amplitude": 2})");
  const std::vector<Source>& sources = config.groups[0].sources;
  const auto source = [&](std::string_view what) {
    const auto found = std::find_if(sources.begin(), sources.end(),
                                    [&](const Source& source) { return source.what == what; });
    return found == sources.end() ? std::string() : found->key;
  };
  EXPECT_EQ(source("head_dim"), "frequencies");
  EXPECT_EQ(source("frequencies"), "frequencies");
  EXPECT_EQ(source("amplitude"), "amplitude");
  EXPECT_EQ(source("base"), "");
}

TEST(PlainSpec, Xpos) {
  const Xpos fixed =
      *only_spec(R"({"head_dim": 16, "xpos": {"scale_base": 256, "gamma": 0.5, "centre": 9}})")
           .xpos;
  EXPECT_EQ(fixed.scale_base, 256.0);
  EXPECT_EQ(fixed.gamma, 0.5);
  EXPECT_EQ(fixed.policy, Xpos::Centre::fixed);
  EXPECT_EQ(fixed.centre, 9.0);
  const Xpos moving = *only_spec(R"({"head_dim": 16, "xpos": {"centre": "middle_ceil"}})").xpos;
  EXPECT_EQ(moving.policy, Xpos::Centre::middle_ceil);
}

TEST(PlainSpec, EveryScalingCanBeSaid) {
  const auto with = [](const std::string& scaling) {
    return R"({"head_dim": 8, "max_position_embeddings": 256, "scaling": )" + scaling + "}";
  };
  EXPECT_EQ(
      scaling_of<encodings::NtkScaling>(with(R"({"type": "ntk", "factor": 2, "mixed_b": 0.5})")),
      (encodings::NtkScaling{2.0, 0.5}));
  EXPECT_EQ(scaling_of<encodings::DynamicScaling>(with(R"({"type": "dynamic", "factor": 2})")),
            (encodings::DynamicScaling{2.0, std::nullopt, 256}));
  const auto parts = scaling_of<encodings::NtkByPartsScaling>(with(
      R"({"type": "ntk_by_parts", "factor": 2, "beta_0": 2, "gamma_1": 3, "extrapolation_factor": 0.5})"));
  EXPECT_EQ(parts, (encodings::NtkByPartsScaling{2.0, 256, 2.0, 0.75, 16.0, 3.0, 1.0, 0.5}));
  EXPECT_EQ(
      scaling_of<encodings::YarnScaling>(
          with(R"({"type": "yarn", "factor": 2, "extrapolation_factor": 0.5})")),
      (encodings::YarnScaling{.factor = 2.0, .original_length = 256, .extrapolation_factor = 0.5}));
  EXPECT_EQ(scaling_of<encodings::ProportionalScaling>(with(
                R"({"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 3})")),
            (encodings::ProportionalScaling{0.5, 3.0}));
  const auto longrope = scaling_of<encodings::LongRopeScaling>(with(
      R"({"type": "su", "short_factor": [1, 1, 1, 1], "long_factor": [2, 2, 2, 2], "short_mscale": 1.1,
               "long_mscale": 1.2, "original_max_position_embeddings": 64})"));
  EXPECT_EQ(longrope.factor, 4.0);
  EXPECT_EQ(longrope.short_mscale, 1.1);
  EXPECT_EQ(longrope.long_mscale, 1.2);
}

std::string llama_of_16(const std::string& more) {
  return R"({"model_type": "llama", "head_dim": 16, "max_position_embeddings": 512, )" + more + "}";
}

TEST(RopeDictionaries, ANullFactorOfYarnIsTheRatioOfTheLengths) {
  const auto yarn = scaling_of<encodings::YarnScaling>(llama_of_16(
      R"("rope_scaling": {"type": "yarn", "factor": null, "original_max_position_embeddings": 64})"));
  EXPECT_EQ(yarn.factor, 8.0);
}

TEST(RopeDictionaries, TheOuterOriginalLengthWins) {
  const auto yarn = scaling_of<encodings::YarnScaling>(llama_of_16(
      R"("original_max_position_embeddings": 128,
         "rope_parameters": {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 64})"));
  EXPECT_EQ(yarn.original_length, 128);
}

TEST(RopeDictionaries, HunyuanWritesYarnsKeysWithAlpha) {
  const auto dynamic = scaling_of<encodings::DynamicScaling>(llama_of_16(
      R"("rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1,
                                "mscale": 1.0, "mscale_all_dim": 1.0})"));
  EXPECT_EQ(dynamic.alpha, 1000.0);
}

TEST(RopeDictionaries, TypeAndRopeTypeMayBothBeThere) {
  const RopeSpec spec = only_spec(
      R"({"model_type": "qwen2_vl", "head_dim": 16,
          "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [2, 3, 3]}})");
  EXPECT_EQ(std::get<MropeAxes>(spec.axes), (MropeAxes{{2, 3, 3}, MropeAxes::Order::chunked}));
  EXPECT_EQ(spec.base, 1e6);
}

TEST(RopeDictionaries, BothFormsMayAgree) {
  const auto linear = scaling_of<encodings::LinearScaling>(
      llama_of_16(R"("rope_theta": 500, "rope_scaling": {"type": "linear", "factor": 4},
               "rope_parameters": {"rope_type": "linear", "factor": 4, "rope_theta": 500})"));
  EXPECT_EQ(linear.factor, 4.0);
}

TEST(RopeDictionaries, ExplicitKeysServeWithoutAModelType) {
  const RopeSpec spec = only_spec(
      R"({"head_dim": 16, "max_position_embeddings": null,
          "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}})");
  EXPECT_EQ(spec.rotary_dim, 8);
  EXPECT_FALSE(spec.layout.has_value());
}

TEST(RopeDictionaries, ANullKeyOfAFlatDictionaryIsAbsent) {
  const auto yarn = scaling_of<encodings::YarnScaling>(llama_of_16(
      R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 100, "factor": 4, "attention_factor": null})"));
  EXPECT_FALSE(yarn.attention_factor.has_value());
}

TEST(SelectLayer, ByNothingWhileOneGroupRotates) {
  const ModelConfig config =
      parsed(R"({"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 8})");
  ASSERT_EQ(config.groups.size(), 2U);
  EXPECT_EQ(select_layer(config, "")->layer_type, "rope");
}

TEST(SelectLayer, ByNothingIndexOrType) {
  const ModelConfig one = parsed(llama_of_16(R"("num_hidden_layers": 3)"));
  EXPECT_TRUE(select_layer(one, "").ok());
  EXPECT_TRUE(select_layer(one, "2").ok());
  EXPECT_FALSE(select_layer(one, "3").ok());
  EXPECT_TRUE(select_layer(parsed(llama_of_16(R"("rope_theta": 5)")), "41").ok())
      << "one encoding, no layer count";

  const ModelConfig two = parsed(R"({"model_type": "gemma3_text", "num_hidden_layers": 8})");
  EXPECT_EQ(select_layer(two, "5")->layer_type, "full_attention");
  EXPECT_EQ(select_layer(two, "6")->layer_type, "sliding_attention");
  EXPECT_EQ(select_layer(two, "sliding_attention")->layers.size(), 7U);
  const Result<LayerGroup> silent = select_layer(two, "");
  tests::expect_error(ErrorCode::invalid_argument, {"full_attention, sliding_attention", "8"},
                      silent);
  const Result<LayerGroup> wrong = select_layer(two, "8");
  tests::expect_error(ErrorCode::invalid_argument, {"full_attention, sliding_attention", "\"8\""},
                      wrong);
  EXPECT_FALSE(select_layer(two, "-1").ok());
  EXPECT_FALSE(select_layer(two, "1x").ok());
}

RC_GTEST_PROP(ConfigLaws, AnyBytesAreAnsweredWithAValueOrAnError, ()) {
  const auto text = *rc::gen::arbitrary<std::string>();
  const Result<ModelConfig> config = parse_config(text);
  RC_ASSERT(config.ok() || !std::string(config.error().what()).empty());
}

RC_GTEST_PROP(ConfigLaws, AConfigCutShortIsRefused, ()) {
  const std::string whole =
      llama_of_16(R"("rope_scaling": {"type": "yarn", "factor": 4.0, "truncate": false})");
  const auto length = *rc::gen::inRange<std::size_t>(0, whole.size());
  RC_ASSERT(!parse_config(whole.substr(0, length)).ok());
}

RC_GTEST_PROP(ConfigLaws, OldAndNewFormsAgree, ()) {
  const int base = *rc::gen::inRange(2, 10000000);
  const int factor = *rc::gen::inRange(1, 100);
  const std::string keys = R"("factor": )" + std::to_string(factor) + R"(, "rope_type": "yarn")";
  const RopeSpec old_form = only_spec(llama_of_16(R"("rope_theta": )" + std::to_string(base) +
                                                  R"(, "rope_scaling": {)" + keys + "}"));
  const RopeSpec new_form = only_spec(llama_of_16(R"("rope_parameters": {"rope_theta": )" +
                                                  std::to_string(base) + ", " + keys + "}"));
  RC_ASSERT(old_form.base == new_form.base);
  RC_ASSERT(old_form.scaling == new_form.scaling);
}

}  // namespace
}  // namespace phasor::config
