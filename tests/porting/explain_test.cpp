#include "phasor/porting/config_reports.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "configs.hpp"
#include "phasor/core/error.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::porting {
namespace {

using io::Json;
namespace fs = std::filesystem;

struct NamedConfig {
  std::string name, text;
};

// Named by their folders and forms.
std::vector<NamedConfig> golden_configs() {
  std::vector<NamedConfig> all;
  for (const fs::path& file : testing::golden_config_files()) {
    const fs::path folder = file.parent_path();
    const std::string form = file.stem().extension().string();  // ".old", ".new" or none
    const std::string name = form.empty() ? folder.parent_path().filename().string()
                                          : folder.filename().string() + "_" + form.substr(1);
    all.push_back({name, Json::parse(io::read_text(file).value_or_throw()).dump()});
  }
  return all;
}

Explanation explain_text(const std::string& text,
                         std::optional<std::int64_t> context = std::nullopt) {
  const ReadableConfig config = parse_readable_config(text).value_or_throw();
  return explain(config, context).value_or_throw();
}

bool warns_of(const Explanation& explanation, std::string_view words) {
  return std::any_of(
      explanation.warnings.begin(), explanation.warnings.end(),
      [&](const std::string& warning) { return warning.find(words) != std::string::npos; });
}

std::string source_of(const LayerExplanation& layer, std::string_view what) {
  for (const config::Source& source : layer.group.sources) {
    if (source.what == what) return source.key;
  }
  return "";
}

class GoldenExplain : public ::testing::TestWithParam<NamedConfig> {};

TEST_P(GoldenExplain, EveryLayerIsAnswered) {
  const Explanation explanation = explain_text(GetParam().text, 4096);
  const Json json = Json::parse(explain_json(explanation));
  ASSERT_FALSE(json.at("layers").empty());
  EXPECT_TRUE(json.at("warnings").is_array());
  std::set<std::pair<std::string, std::int64_t>> seen;
  const bool both_sides = explanation.layers.front().group.layer_type == "encoder";
  for (std::size_t i = 0; i < explanation.layers.size(); ++i) {
    const LayerExplanation& layer = explanation.layers[i];
    const Json& answer = json.at("layers")[i];
    for (const char* key : {"layers", "encoding", "layout", "head_dim", "rotary_dim", "base",
                            "scaling", "amplitude", "frequencies", "window"}) {
      EXPECT_TRUE(answer.contains(key)) << key;
    }
    for (const std::int64_t index : layer.group.layers) {
      // An encoder and a decoder count their layers separately.
      const std::string side = both_sides ? layer.group.layer_type : "";
      EXPECT_TRUE(seen.emplace(side, index).second) << "layer " << index << " is in two groups";
    }
    if (!layer.group.rope) continue;
    EXPECT_EQ(answer.at("encoding"), "rope");
    EXPECT_FALSE(source_of(layer, "base").empty());
    EXPECT_FALSE(source_of(layer, "head_dim").empty());
    EXPECT_FALSE(source_of(layer, "scaling").empty());
    if (std::holds_alternative<encodings::AxialAxes>(layer.group.rope->axes)) continue;
    const auto exact = encodings::resolve_frequencies(*layer.group.rope, 4096);
    EXPECT_EQ(answer.at("frequencies").get<std::vector<double>>(),
              std::vector<double>(exact.values().begin(), exact.values().end()));
    EXPECT_EQ(answer.at("amplitude").get<double>(), exact.amplitude());
  }
  // Every layer that the config counts is in one group.
  const Json config = Json::parse(GetParam().text);
  if (config.contains("num_hidden_layers")) {
    EXPECT_EQ(seen.size(), config.at("num_hidden_layers").get<std::size_t>());
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenExplain, ::testing::ValuesIn(golden_configs()),
                         [](const auto& tested) { return tested.param.name; });

constexpr std::string_view kLlama = R"({"model_type": "llama", "hidden_size": 128,
  "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3,
  "max_position_embeddings": 2048, "rope_theta": 500000.0, "vocab_size": 97})";

Json small_llama() { return Json::parse(kLlama); }

TEST(Explain, SaysWhichKeyEachNumberCameFrom) {
  const Explanation explanation = explain_text(small_llama().dump());
  ASSERT_EQ(explanation.layers.size(), 1U);
  const LayerExplanation& layer = explanation.layers[0];
  EXPECT_EQ(source_of(layer, "base"), "rope_theta");
  EXPECT_EQ(source_of(layer, "head_dim"), "hidden_size / num_attention_heads");
  EXPECT_EQ(source_of(layer, "layout"), "model_type llama");
  EXPECT_EQ(layer.trained_length, 2048);
  EXPECT_EQ(explanation.config.unread_keys, std::vector<std::string>{"vocab_size"});
}

TEST(Explain, CountsRotationsWithinTheTrainedLength) {
  const Explanation explanation = explain_text(small_llama().dump());
  const LayerExplanation& layer = explanation.layers[0];
  ASSERT_EQ(layer.pairs.size(), 16U);
  EXPECT_NEAR(*layer.pairs[0].rotations, 2048.0 / 6.283185307179586, 1e-9);
  EXPECT_LT(*layer.pairs[15].rotations, 1.0);
}

// MarinFold #184, DeepSpeed #8345: a missing base becomes 10000 without a warning.
TEST(Explain, MarinFold184_BaseThatNoKeyGivesIsWarnedOf) {
  Json config = small_llama();
  config.erase("rope_theta");
  EXPECT_TRUE(warns_of(explain_text(config.dump()), "base: missing in the config; 10000"));
  EXPECT_FALSE(warns_of(explain_text(small_llama().dump()), "base: missing"));
}

TEST(Explain, ContextBeyondTheTrainedOneIsWarnedOf) {
  EXPECT_TRUE(warns_of(explain_text(small_llama().dump(), 4096), "context 4096 exceeds the 2048"));
  EXPECT_FALSE(warns_of(explain_text(small_llama().dump(), 2048), "context 2048"));
}

TEST(Explain, KeysThatChangeNothingAreNamed) {
  Json config = small_llama();
  config["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 2048},
                            {"mscale", 0.7}};
  config["max_position_embeddings"] = 8192;
  EXPECT_TRUE(warns_of(explain_text(config.dump()), "rope_scaling.mscale: "));
  config["rope_scaling"]["mscale_all_dim"] = 0.7;
  EXPECT_FALSE(warns_of(explain_text(config.dump()), "rope_scaling.mscale: "));
}

TEST(Explain, LengthsThatContradictTheFactorAreWarnedOf) {
  Json config = small_llama();
  config["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 2048}};
  EXPECT_TRUE(warns_of(explain_text(config.dump()), "factor 4 times the original 2048"));
}

TEST(Explain, WindowOfMistralHoldsForEveryLayer) {
  Json config = small_llama();
  config["model_type"] = "mistral";
  config["sliding_window"] = 512;
  const Explanation explanation = explain_text(config.dump());
  ASSERT_EQ(explanation.layers.size(), 1U);
  EXPECT_EQ(explanation.layers[0].group.window, 512);
  EXPECT_EQ(source_of(explanation.layers[0], "window"), "sliding_window");
}

TEST(Explain, WindowOfQwen2IsOffUnlessItsFlagIsSet) {
  Json config = small_llama();
  config["model_type"] = "qwen2";
  config["sliding_window"] = 512;
  config["use_sliding_window"] = false;
  config["max_window_layers"] = 2;
  const Explanation off = explain_text(config.dump());
  ASSERT_EQ(off.layers.size(), 1U);
  EXPECT_FALSE(off.layers[0].group.window.has_value());
  EXPECT_TRUE(warns_of(off, "sliding_window: "));

  config["use_sliding_window"] = true;
  const Explanation on = explain_text(config.dump());
  ASSERT_EQ(on.layers.size(), 2U);
  EXPECT_EQ(on.layers[0].group.layers, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(on.layers[1].group.layers, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(on.layers[1].group.window, 512);
}

TEST(Explain, LayersWithoutRotationSayWhy) {
  Json config = small_llama();
  config["model_type"] = "smollm3";
  config["num_hidden_layers"] = 4;
  const Explanation explanation = explain_text(config.dump());
  ASSERT_EQ(explanation.layers.size(), 2U);
  EXPECT_EQ(explanation.layers[1].group.layers, (std::vector<std::int64_t>{3}));
  EXPECT_FALSE(explanation.layers[1].group.rope.has_value());
  EXPECT_FALSE(source_of(explanation.layers[1], "encoding").empty());
  const Json json = Json::parse(explain_json(explanation));
  EXPECT_EQ(json["layers"][1]["encoding"], "none");
  EXPECT_TRUE(json["layers"][1]["base"].is_null());
}

TEST(Explain, QueriesThatAreScaledByPositionSaySo) {
  const Json json = Json::parse(explain_json(explain_text(
      R"({"model_type": "ministral3", "head_dim": 16, "max_position_embeddings": 262144,
          "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0,
          "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}})")));
  const Json& layer = json["layers"][0];
  EXPECT_EQ(layer["query_scale"]["beta"], 0.1);
  EXPECT_EQ(layer["query_scale"]["length"], 16384);
  EXPECT_EQ(layer["query_scale"]["offset"], 0);
  EXPECT_EQ(layer["sources"]["query_scale"], "rope_parameters.llama_4_scaling_beta");
  EXPECT_TRUE(
      Json::parse(explain_json(explain_text(small_llama().dump())))["layers"][0]["query_scale"]
          .is_null());
}

TEST(Explain, PartsAndOtherPositionsAreNamed) {
  const Json clip = Json::parse(explain_json(
      explain_text(R"({"model_type": "clip", "text_config": {"model_type": "clip_text_model"}})")));
  EXPECT_EQ(clip["part"], "text_config");
  EXPECT_EQ(clip["layers"][0]["encoding"], "learned_absolute");
  EXPECT_EQ(clip["layers"][0]["positions"][0]["parameters"]["rows"], 77);
  EXPECT_EQ(clip["layers"][0]["positions"][0]["acts_on"], "input");
  EXPECT_FALSE(clip["other_positions"].is_null());
  const Json llama = Json::parse(explain_json(explain_text(small_llama().dump())));
  EXPECT_EQ(llama["part"], "");
  EXPECT_TRUE(llama["other_positions"].is_null());
}

TEST(Explain, LeftoverKeysAreWarnedOf) {
  Json config = small_llama();
  config["rope_scaling"] = {{"rope_type", "default"}, {"original_max_position_embeddings", 16384}};
  EXPECT_TRUE(warns_of(explain_text(config.dump()), "original_max_position_embeddings"));
}

// As the buffer of PixtralVisionRotaryEmbedding: height's frequencies, then width's.
TEST(Explain, FrequenciesOfImagesAreInTheOrderOfThePairs) {
  const Explanation explanation =
      explain_text(R"({"model_type": "pixtral", "head_dim": 8, "rope_theta": 10000.0})");
  std::vector<double> frequencies;
  for (const PairRotations& pair : explanation.layers[0].pairs)
    frequencies.push_back(pair.frequency);
  EXPECT_EQ(frequencies, (std::vector<double>{1.0, 0.01, 0.1, 0.001}));
}

TEST(Explain, PairsOfFrequencyZeroHaveNoWavelengthInJson) {
  const Explanation explanation = explain_text(
      R"({"head_dim": 16, "base": 10000, "layout": "half", "max_position_embeddings": 64,
          "scaling": {"type": "proportional", "partial_rotary_factor": 0.25}})");
  const Json json = Json::parse(explain_json(explanation));
  EXPECT_TRUE(json["layers"][0]["wavelengths"].back().is_null());
  EXPECT_EQ(json["layers"][0]["turns"].back(), 0.0);
}

TEST(Explain, ContextBelowOneIsRefused) {
  const ReadableConfig config = parse_readable_config(kLlama).value_or_throw();
  const auto refused = explain(config, 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(std::string(refused.error().what()).find("at least 1, got 0"), std::string::npos);
}

// vLLM #48621: explain warns of an engine that ignores YaRN's amplitude.
TEST(Explain, EnginesThatReadAKeyDifferentlyAreNamed) {
  Json config = small_llama();
  config["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 2048},
                            {"attention_factor", 1.25}};
  config["max_position_embeddings"] = 8192;
  const Explanation explanation = explain_text(config.dump());
  EXPECT_TRUE(warns_of(explanation, "llama.cpp reads this config differently"));
}

}  // namespace
}  // namespace phasor::porting
