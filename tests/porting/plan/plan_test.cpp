#include "phasor/porting/config_reports.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "porting/configs.hpp"
#include "support/errors.hpp"

namespace phasor::porting {
namespace {

using namespace testing;
namespace fs = std::filesystem;

Result<Plan> try_plan(const json& config, std::int64_t to,
                      std::optional<std::int64_t> trained = std::nullopt, std::string layer = "") {
  return plan(parse_readable_config(config.dump()).value_or_throw(),
              {to, trained, std::move(layer)});
}

Plan plan_of(const json& config, std::int64_t to,
             std::optional<std::int64_t> trained = std::nullopt) {
  return try_plan(config, to, trained).value_or_throw();
}

const PlanMethod& method_of(const Plan& plan, std::string_view name) {
  const auto found = std::find_if(plan.methods.begin(), plan.methods.end(),
                                  [&](const PlanMethod& method) { return method.name == name; });
  EXPECT_NE(found, plan.methods.end()) << name;
  return *found;
}

// The config with a snippet pasted as the page says.
json pasted(json config, const PlanSnippet& snippet) {
  json& part = config.contains("text_config") ? config["text_config"] : config;
  for (const std::string& key : snippet.remove) {
    part.erase(key);
    config.erase(key);
  }
  const json keys = json::parse(snippet.json);
  for (const auto& [key, value] : keys.items()) part[key] = value;
  return config;
}

TEST(Plan, RefusesNumbersThatNoConfigCanScale) {
  for (const auto& [key, value] :
       {std::pair("frequencies", json{1.0, 0.1}), std::pair("frequency_factors", json{1.0, 2.0}),
        std::pair("amplitude", json(1.5))}) {
    json config = {{"head_dim", 4}, {"layout", "half"}};
    config[key] = value;
    const Result<Plan> made = try_plan(config, 64, 16);
    ASSERT_FALSE(made.ok()) << key;
    EXPECT_EQ(made.error().code(), ErrorCode::unsupported);
    EXPECT_NE(std::string_view(made.error().what()).find(key), std::string_view::npos);
  }
}

// Python's json writes bare words; the text is read a second time for its snippets.
TEST(Plan, ReadsConfigsWithBareWordsOfPython) {
  std::string text = llama(4096).dump();
  text.insert(text.size() - 1, R"(,"limits":[0.0,Infinity],"dropout":NaN)");
  const Plan made = plan(parse_readable_config(text).value_or_throw(), {16384, std::nullopt, ""})
                        .value_or_throw();
  EXPECT_FALSE(method_of(made, "yarn").rope_parameters.json.empty());
}

TEST(Plan, BandsCountRotationsWithinTheTrainedLength) {
  const Plan made = plan_of(llama(4096), 16384);
  EXPECT_EQ(made.trained, 4096);
  EXPECT_EQ(made.factor, 4.0);
  std::array<std::int64_t, kBands> expected{};
  for (int i = 0; i < 64; ++i) {
    const double rotations =
        4096.0 * std::pow(10000.0, -2.0 * i / 128.0) / (2.0 * std::numbers::pi);
    ++expected[rotations >= 32 ? 0 : rotations >= 8 ? 1 : rotations >= 1 ? 2 : 3];
  }
  for (std::size_t i = 0; i < kBands; ++i) EXPECT_EQ(made.bands[i].pairs, expected[i]) << i;
  EXPECT_EQ(expected[3], 18);
}

// Without scaling every pair with less than one full rotation reaches new angles; with linear none.
TEST(Plan, NewAnglesOfEachMethod) {
  const Plan made = plan_of(llama(4096), 16384);
  const PlanMethod& none = method_of(made, "none");
  EXPECT_EQ(none.out_of_distribution, made.bands[3].pairs);
  EXPECT_DOUBLE_EQ(none.bands[3].furthest, 4.0);
  const PlanMethod& linear = method_of(made, "linear");
  EXPECT_EQ(linear.out_of_distribution, 0);
  EXPECT_EQ(linear.bands[0].least_compression, 0.25);
  EXPECT_EQ(linear.bands[0].most_compression, 0.25);
  const PlanMethod& ntk = method_of(made, "ntk");
  EXPECT_EQ(ntk.pairs.front().compression, 1.0);
  EXPECT_NEAR(ntk.pairs.back().compression, 0.25, 1e-12);
  // All but the last of the slow pairs are stretched by less than the factor.
  EXPECT_EQ(ntk.out_of_distribution, made.bands[3].pairs - 1);
  const PlanMethod& yarn = method_of(made, "yarn");
  EXPECT_EQ(yarn.out_of_distribution, 0);
  EXPECT_EQ(yarn.bands[0].least_compression, 1.0);
  EXPECT_NEAR(yarn.amplitude, 0.1 * std::log(4.0) + 1.0, 1e-15);
  const PlanMethod& llama3 = method_of(made, "llama3");
  EXPECT_EQ(llama3.out_of_distribution, 0);
  EXPECT_EQ(llama3.bands[0].least_compression, 1.0);
  EXPECT_EQ(llama3.amplitude, 1.0);
  const PlanMethod& dynamic = method_of(made, "dynamic");
  EXPECT_NEAR(dynamic.pairs.back().compression, 1.0 / 13.0, 1e-12);  // 4 * 4 - 3
  const PlanMethod& longrope = method_of(made, "longrope");
  EXPECT_NEAR(longrope.amplitude, std::sqrt(1.0 + std::log(4.0) / std::log(4096.0)), 1e-15);
  EXPECT_NEAR(longrope.pairs.back().compression, 0.25, 1e-4);
}

// Slots are printed with four decimals; rounding them must not let new angles in.
TEST(Plan, SlotsOfLongRopeStretchFarEnough) {
  const Plan made = plan_of(llama(4096), 1000000);
  const PlanMethod& longrope = method_of(made, "longrope");
  EXPECT_EQ(longrope.out_of_distribution, 0);
  const auto& slots = std::get<encodings::LongRopeScaling>(longrope.rope.scaling);
  EXPECT_EQ(slots.long_factor.front(), 1.0);
  EXPECT_EQ(slots.long_factor.back(), 244.1407);
  EXPECT_EQ(slots.short_factor, std::vector<double>(64, 1.0));
}

TEST(Plan, PairsSayWhatTheyAre) {
  const Plan made = plan_of(llama(4096), 16384);
  const PlanPair& pair = method_of(made, "linear").pairs[0];
  EXPECT_DOUBLE_EQ(pair.wavelength, 2.0 * std::numbers::pi);
  EXPECT_DOUBLE_EQ(pair.rotations_trained, 4096.0 / (2.0 * std::numbers::pi));
  EXPECT_DOUBLE_EQ(pair.frequency, 0.25);
  EXPECT_DOUBLE_EQ(pair.rotations_at_to, pair.rotations_trained);
  EXPECT_FALSE(pair.out_of_distribution);
}

TEST(Plan, StartsFromTheUnscaledBase) {
  json config = llama(131072, 1e6);
  config["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  const Plan made = plan_of(config, 262144, 32768);
  EXPECT_EQ(made.trained, 32768);
  EXPECT_EQ(made.factor, 8.0);
  EXPECT_FALSE(made.extended);
  EXPECT_NEAR(method_of(made, "present").pairs.back().compression, 0.25, 1e-12);
  EXPECT_NEAR(method_of(made, "yarn").pairs.back().compression, 0.125, 1e-12);
  EXPECT_EQ(method_of(made, "none").pairs.back().compression, 1.0);
  for (const PlanMethod& method : plan_of(llama(4096), 8192).methods)
    EXPECT_NE(method.name, "present");
}

// Llama 3.1 counts as trained at 131072, with the frequencies that its config has.
TEST(Plan, AnExtendedConfigIsTrainedAtItsPublishedLength) {
  json config = llama(131072, 5e5);
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  const Plan made = plan_of(config, 262144);
  EXPECT_TRUE(made.extended);
  EXPECT_EQ(made.trained, 131072);
  EXPECT_EQ(made.factor, 2.0);
  const PlanMethod& present = method_of(made, "present");
  EXPECT_EQ(present.pairs.back().compression, 1.0);
  EXPECT_GT(present.out_of_distribution, 0);
  // Its own scaling goes on; the others would replace what the weights know.
  const PlanMethod& llama3 = method_of(made, "llama3");
  EXPECT_EQ(std::get<encodings::Llama3Scaling>(llama3.rope.scaling).factor, 16.0);
  EXPECT_EQ(std::get<encodings::Llama3Scaling>(llama3.rope.scaling).original_length, 8192);
  EXPECT_NEAR(llama3.pairs.back().compression, 0.5, 1e-12);
  EXPECT_EQ(made.recommended, "llama3");
  EXPECT_FALSE(method_of(made, "yarn").problem.empty());
  EXPECT_TRUE(method_of(made, "ntk").problem.empty());
  tests::expect_error(ErrorCode::invalid_argument, {"131072"}, try_plan(config, 65536));
  // LongRoPE: only the slow pairs are divided further.
  json phi = llama(131072, 5e5);
  phi["original_max_position_embeddings"] = 4096;
  phi["rope_scaling"] = {{"type", "longrope"},
                         {"short_factor", std::vector<double>(64, 1.0)},
                         {"long_factor", std::vector<double>(64, 2.0)}};
  const Plan longer = plan_of(phi, 262144);
  EXPECT_EQ(longer.recommended, "longrope");
  EXPECT_EQ(method_of(longer, "longrope").out_of_distribution, 0);
  const json pasted_keys = json::parse(method_of(longer, "longrope").rope_parameters.json);
  EXPECT_EQ(pasted_keys.at("max_position_embeddings"), 262144);
}

TEST(Plan, RecommendsOneMethodWithFlags) {
  const Plan made = plan_of(llama(4096), 16384);
  EXPECT_EQ(made.recommended, "yarn");
  EXPECT_FALSE(made.reason.empty());
  const PlanMethod& yarn = method_of(made, "yarn");
  EXPECT_EQ(yarn.llama_cpp.flags,
            "-c 16384 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 4096");
  const std::string& vllm = yarn.vllm.flags;
  EXPECT_TRUE(vllm.starts_with("--max-model-len 16384 --hf-overrides '{")) << vllm;
  const std::size_t from = vllm.find('{');
  const json overrides = json::parse(vllm.substr(from, vllm.size() - 1 - from));
  EXPECT_EQ(overrides.at("rope_parameters").at("rope_type"), "yarn");
  EXPECT_TRUE(yarn.sglang.flags.starts_with("--context-length 16384")) << yarn.sglang.flags;
  EXPECT_TRUE(method_of(made, "dynamic").llama_cpp.flags.empty());
  EXPECT_FALSE(method_of(made, "dynamic").llama_cpp.problem.empty());
  // Keys of a part go into that part.
  json text = llama(4096);
  const Plan part = plan_of({{"model_type", "llava"}, {"text_config", text}}, 16384);
  EXPECT_NE(method_of(part, "yarn").vllm.flags.find("{\"text_config\":"), std::string::npos);
  // A window within the trained length needs nothing.
  json window = llama(4096);
  window["model_type"] = "mistral";
  window["sliding_window"] = 1024;
  EXPECT_EQ(plan_of(window, 16384).recommended, "none");
}

TEST(Plan, TrainedLengthCanBeGiven) {
  const Plan made = plan_of(llama(131072), 131072, 4096);
  EXPECT_EQ(made.trained, 4096);
  EXPECT_EQ(made.factor, 32.0);
}

// Every snippet of every method, pasted into every golden config, gives the plan's frequencies.
TEST(Plan, EverySnippetParsesToTheSameFrequencies) {
  int checked = 0;
  for (const fs::path& path : golden_config_files()) {
    SCOPED_TRACE(path.string());
    const ReadableConfig config = read_readable_config(path).value_or_throw();
    if (!config.meaning.other_positions.empty()) continue;
    const Result<Plan> result = plan(config, {std::int64_t{1} << 22, std::nullopt, ""});
    if (!result) {
      // Images have no longer context; of layers with several bases, one must be chosen.
      const std::string name = path.string();
      EXPECT_TRUE(name.find("axial") != std::string::npos ||
                  name.find("listed") != std::string::npos)
          << result.error().what();
      continue;
    }
    for (const PlanMethod& method : result->methods) {
      if (!method.problem.empty()) {
        EXPECT_TRUE(result->extended || path.string().find("proportional") != std::string::npos)
            << method.problem;
        continue;
      }
      for (const PlanSnippet* snippet : {&method.rope_parameters, &method.rope_scaling}) {
        if (snippet->json.empty()) continue;
        const json text = pasted(json::parse(config.text), *snippet);
        const Result<config::ModelConfig> parsed = config::parse_config(text.dump());
        ASSERT_TRUE(parsed.ok()) << parsed.error().what();
        const config::LayerGroup group =
            config::select_layer(*parsed, result->layer_type).value_or_throw();
        const core::Frequencies resolved = encodings::resolve_frequencies(*group.rope, result->to);
        ASSERT_EQ(resolved.values().size(), method.pairs.size());
        for (std::size_t i = 0; i < method.pairs.size(); ++i)
          ASSERT_EQ(resolved.values()[i], method.pairs[i].frequency) << method.name << i;
        EXPECT_EQ(resolved.amplitude(), method.amplitude);
        ++checked;
      }
    }
    // The current form exists for every config and method that applies.
    for (const PlanMethod& method : result->methods) {
      if (method.name == "none" || method.name == "present" || !method.problem.empty()) continue;
      EXPECT_FALSE(method.rope_parameters.json.empty())
          << method.name << ": " << method.rope_parameters.problem;
    }
  }
  EXPECT_GT(checked, 200);
}

TEST(Plan, SnippetsHoldTheKeysOfEachForm) {
  const Plan made = plan_of(llama(4096), 16384);
  const PlanMethod& yarn = method_of(made, "yarn");
  const json current = json::parse(yarn.rope_parameters.json);
  EXPECT_EQ(current.at("max_position_embeddings"), 16384);
  EXPECT_EQ(current.at("rope_parameters"), json({{"rope_type", "yarn"},
                                                 {"rope_theta", 10000},
                                                 {"factor", 4.0},
                                                 {"original_max_position_embeddings", 4096}}));
  EXPECT_EQ(yarn.rope_parameters.remove, std::vector<std::string>{"rope_theta"});
  const json legacy = json::parse(yarn.rope_scaling.json);
  EXPECT_EQ(legacy.at("rope_theta"), 10000);
  EXPECT_EQ(legacy.at("rope_scaling").at("type"), "yarn");
  // Dynamic scaling measures against max_position_embeddings, which therefore stays.
  const json dynamic = json::parse(method_of(made, "dynamic").rope_parameters.json);
  EXPECT_EQ(dynamic.at("max_position_embeddings"), 4096);
  // NTK is a changed base.
  const json ntk = json::parse(method_of(made, "ntk").rope_scaling.json);
  EXPECT_TRUE(ntk.at("rope_scaling").is_null());
  EXPECT_NEAR(ntk.at("rope_theta").get<double>(), 1e4 * std::pow(4.0, 128.0 / 126.0), 1e-6);
}

TEST(Plan, GemmaKeepsItsLocalLayers) {
  const Plan made = plan_of(gemma3(), 1 << 18, 32768);
  EXPECT_EQ(made.layer_type, "full_attention");
  const json parameters =
      json::parse(method_of(made, "yarn").rope_parameters.json).at("rope_parameters");
  EXPECT_EQ(parameters.at("sliding_attention").at("rope_theta"), 10000);
  EXPECT_EQ(parameters.at("full_attention").at("rope_type"), "yarn");
}

TEST(Plan, ASpecUnderAMethodIsThatOfThePlan) {
  const Plan made = plan_of(llama(4096), 16384);
  encodings::RopeSpec spec = method_of(made, "none").rope;
  spec.scaling = encodings::LinearScaling{2.0};  // replaced by the method
  for (const PlanMethod& method : made.methods)
    EXPECT_EQ(extended_spec(spec, method.name, 4.0, 4096), method.rope) << method.name;
  tests::expect_error(ErrorCode::invalid_argument, {"turn", "yarn"},
                      [&] { (void)extended_spec(spec, "turn", 4.0, 4096); });
}

TEST(Plan, Refusals) {
  using tests::expect_error;
  constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
  expect_error(kInvalid, {"trained length 4096", "got 4096"}, try_plan(llama(4096), 4096));
  expect_error(kInvalid, {"2^40", "1099511627776"}, try_plan(llama(4096), std::int64_t{1} << 40));
  expect_error(kInvalid, {"trained", "got 0"}, try_plan(llama(4096), 8192, 0));
  json unknown = llama(4096);
  unknown.erase("max_position_embeddings");
  expect_error(kInvalid, {"max_position_embeddings", "--trained"}, try_plan(unknown, 8192));
  expect_error(kInvalid, {"layer", "7"}, try_plan(llama(4096), 8192, std::nullopt, "7"));
  const json xpos = {{"head_dim", 8}, {"layout", "half"}, {"xpos", json::object()}};
  expect_error(ErrorCode::unsupported, {"xPos"}, try_plan(xpos, 8192, 1024));
}

TEST(Plan, CsvHasOneRowPerMethodAndPair) {
  const Plan made = plan_of(llama(4096), 16384);
  std::istringstream lines(plan_csv(made));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "method,pair,wavelength,turns_trained,frequency,turns_at_n,ood,compression");
  std::size_t rows = 0;
  while (std::getline(lines, line)) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 7);
    ++rows;
  }
  EXPECT_EQ(rows, made.methods.size() * 64);
}

TEST(Plan, JsonHoldsThePlan) {
  const Plan made = plan_of(llama(4096), 16384);
  const json parsed = json::parse(plan_json(made));
  EXPECT_EQ(parsed.at("trained"), 4096);
  EXPECT_EQ(parsed.at("methods").size(), made.methods.size());
  const json& yarn = parsed.at("methods").at(4);
  EXPECT_EQ(yarn.at("method"), "yarn");
  EXPECT_EQ(yarn.at("pairs").size(), 64u);
  EXPECT_EQ(yarn.at("rope_parameters").at("paste").at("rope_parameters").at("factor"), 4.0);
}

}  // namespace
}  // namespace phasor::porting
