// Every config of the golden data, old form and new: frequencies, amplitude, softmax scale, layout,
// axes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"

namespace phasor::config {
namespace {

namespace fs = std::filesystem;
using json = io::Json;

// The expected values and Phasor's are both rounded once.
constexpr double kRelative = 1e-15;

const fs::path kGolden = PHASOR_GOLDEN_DIR;

std::vector<std::string> cases_of(const std::string& group) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGolden / group)) {
    if (fs::exists(entry.path() / "case.json")) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

json read_json(const fs::path& path) { return json::parse(io::read_text(path).value_or_throw()); }

// The other cases of rope_apply describe their rotation outside any config.json.
std::vector<std::string> cases_with_a_model_type() {
  std::vector<std::string> names = cases_of("rope_apply");
  std::erase_if(names, [](const std::string& name) {
    const json facts = read_json(kGolden / "rope_apply" / name / "case.json");
    return !facts.contains("config") || !facts.at("config").contains("model_type");
  });
  return names;
}

std::string plain_name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

core::Frequencies frequencies_of(const encodings::RopeSpec& spec,
                                 std::optional<std::int64_t> context) {
  return std::holds_alternative<encodings::AxialAxes>(spec.axes)
             ? encodings::axial_frequencies(spec)
             : encodings::resolve_frequencies(spec, context);
}

class RopeFreqs : public ::testing::TestWithParam<std::string> {};

// Units in the last place between two floats of one sign.
std::int64_t units_between(float a, float b) {
  std::int32_t bits_a = 0;
  std::int32_t bits_b = 0;
  std::memcpy(&bits_a, &a, sizeof a);
  std::memcpy(&bits_b, &b, sizeof b);
  return std::llabs(std::int64_t{bits_a} - bits_b);
}

TEST_P(RopeFreqs, BothFormsGiveTheStoredFrequencies) {
  const fs::path folder = kGolden / "rope_freqs" / GetParam();
  const json facts = read_json(folder / "case.json");
  std::int64_t compared = 0;
  std::int64_t bit_equal = 0;
  for (const auto& form : facts.at("configs").items()) {
    SCOPED_TRACE(form.key);
    const Result<ModelConfig> config = read_config(folder / form.value.get<std::string>());
    ASSERT_TRUE(config.ok()) << config.error().what();
    for (const json& set : facts.at("sets")) {
      const std::string type =
          set.at("layer_type").is_null() ? "" : set.at("layer_type").get<std::string>();
      const Result<LayerGroup> group = select_layer(*config, type);
      ASSERT_TRUE(group.ok()) << group.error().what();
      ASSERT_EQ(group->rope.has_value(), !set.at("inv_freq").is_null());
      if (!group->rope) continue;
      const std::string name = set.at("inv_freq").get<std::string>();
      const Result<io::NpyArray> truth = io::read_npy(folder / (name + "_f64.npy"));
      const Result<io::NpyArray> stored = io::read_npy(folder / (name + ".npy"));
      ASSERT_TRUE(truth.ok() && stored.ok());
      const json& lengths = facts.at("seq_lens");
      for (std::size_t row = 0; row < lengths.size(); ++row) {
        std::optional<std::int64_t> context;
        if (!lengths[row].is_null()) context = lengths[row].get<std::int64_t>();
        const core::Frequencies got = frequencies_of(*group->rope, context);
        const auto pairs = static_cast<std::size_t>(truth->shape.at(1));
        ASSERT_EQ(static_cast<std::size_t>(got.pairs()), pairs);
        const json& amplitude =
            facts.at("scalars").at(set.at("attention_scaling").get<std::string>());
        EXPECT_NEAR(got.amplitude(), amplitude.at("value").get<double>(), 1e-14);
        for (std::size_t i = 0; i < pairs; ++i) {
          const double want = truth->as<double>()[row * pairs + i];
          EXPECT_NEAR(got.values()[i], want, kRelative * std::fabs(want)) << "pair " << i;
          const float reference = stored->as<float>()[row * pairs + i];
          ++compared;
          bit_equal += got.float32_values()[i] == reference ? 1 : 0;
          EXPECT_LE(units_between(got.float32_values()[i], reference), 2) << "pair " << i;
        }
      }
      if (facts.at("scalars").contains("softmax_scale")) {
        const double want = facts.at("scalars").at("softmax_scale").at("value").get<double>();
        EXPECT_NEAR(group->softmax_scale, want, 1e-15);
      }
    }
  }
  // The reference's own power function misses the nearest float32 now and then, a formula in the
  // wrong order would do so for most pairs.
  EXPECT_GE(bit_equal * 10, compared * 9) << bit_equal << " of " << compared;
  RecordProperty("bit_equal", std::to_string(bit_equal) + " of " + std::to_string(compared));
}

INSTANTIATE_TEST_SUITE_P(Golden, RopeFreqs, ::testing::ValuesIn(cases_of("rope_freqs")),
                         plain_name);

class RopeApply : public ::testing::TestWithParam<std::string> {};

TEST_P(RopeApply, LayoutWidthAndAxesAreThoseOfTheCase) {
  const json facts = read_json(kGolden / "rope_apply" / GetParam() / "case.json");
  const Result<ModelConfig> config = parse_config(facts.at("config").dump());
  ASSERT_TRUE(config.ok()) << config.error().what();
  const Result<LayerGroup> group = select_layer(*config, "");
  ASSERT_TRUE(group.ok() && group->rope);
  const core::Rotary rotary = encodings::resolve(*group->rope);
  EXPECT_EQ(rotary.head_dim, facts.at("head_dim").get<std::int64_t>());
  EXPECT_EQ(rotary.rotary_dim(), facts.at("rotary_dim").get<std::int64_t>());
  const std::string layout = facts.at("layout").get<std::string>();
  const bool two_blocks = layout == "axis_per_half_head";
  const bool axial = two_blocks || layout == "axes_concat_then_half";
  EXPECT_EQ(name_of(rotary.layout), axial ? "half" : layout);
  EXPECT_EQ(rotary.blocks, two_blocks ? 2 : 1);
  EXPECT_EQ(rotary.frequencies.axis_count(), axial ? 2 : facts.contains("mrope_section") ? 3 : 1);
  if (facts.contains("mrope_axis_of_freq")) {
    const auto want = facts.at("mrope_axis_of_freq").get<std::vector<int>>();
    const std::vector<int> got(rotary.frequencies.axes().begin(), rotary.frequencies.axes().end());
    EXPECT_EQ(got, want);
  }
  // The buffer of the reference's rotary module, in its order.
  if (facts.at("inputs").contains("inv_freq")) {
    const Result<io::NpyArray> stored =
        io::read_npy(kGolden / "rope_apply" / GetParam() / "inv_freq.npy");
    ASSERT_TRUE(stored.ok());
    const core::Frequencies listed = frequencies_of(*group->rope, std::nullopt);
    ASSERT_EQ(listed.pairs(), stored->shape.at(0));
    for (std::size_t i = 0; i < listed.values().size(); ++i) {
      EXPECT_LE(units_between(listed.float32_values()[i], stored->as<float>()[i]), 2)
          << "pair " << i;
    }
  }
  if (facts.contains("scalars")) {
    EXPECT_NEAR(rotary.frequencies.amplitude(),
                facts.at("scalars").at("attention_scaling").at("value").get<double>(), 1e-14);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, RopeApply, ::testing::ValuesIn(cases_with_a_model_type()),
                         plain_name);

class Models : public ::testing::TestWithParam<std::string> {};

TEST_P(Models, EveryLayerHasAnEncodingWithALayout) {
  const fs::path folder = kGolden / "models" / GetParam() / "model";
  const json raw = read_json(folder / "config.json");
  const Result<ModelConfig> config = read_config(folder);
  ASSERT_TRUE(config.ok()) << config.error().what();
  EXPECT_EQ(config->model_type, raw.at("model_type").get<std::string>());
  const char* const count = raw.contains("num_hidden_layers") ? "num_hidden_layers" : "n_layer";
  const std::int64_t layers = raw.contains(count) ? raw.at(count).get<std::int64_t>() : 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const Result<LayerGroup> group = select_layer(*config, std::to_string(layer));
    ASSERT_TRUE(group.ok()) << group.error().what();
    if (!config->other_positions.empty()) {
      EXPECT_FALSE(group->rope);
      continue;
    }
    // Layers of some families do not rotate.
    ASSERT_TRUE(!group->rope || group->rope->layout);
    EXPECT_GT(group->softmax_scale, 0.0);
    if (group->layer_type.ends_with("_attention") && raw.contains("layer_types") &&
        config->groups.size() > 1) {
      EXPECT_EQ(group->layer_type,
                raw.at("layer_types").at(static_cast<std::size_t>(layer)).get<std::string>());
    }
  }
  EXPECT_EQ(config->rotates_values,
            raw.contains("rotary_value") && raw.at("rotary_value").get<bool>());
}

INSTANTIATE_TEST_SUITE_P(Golden, Models, ::testing::ValuesIn(cases_of("models")), plain_name);

}  // namespace
}  // namespace phasor::config
