#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/encodings/internal/fields.hpp"
#include "phasor/porting/config_reports.hpp"

namespace phasor::porting {
namespace {

using encodings::RopeSpec;

std::vector<RopeSpec> specs() {
  const RopeSpec plain{.head_dim = 8, .rotary_dim = 8, .layout = core::PairLayout::half};
  std::vector<RopeSpec> all = {plain, plain, plain, plain, plain, plain};
  all[1].layout.reset();
  all[2] = {.head_dim = 96,
            .rotary_dim = 16,
            .rotary_offset = 64,
            .base = 500000.25,
            .layout = core::PairLayout::interleaved_to_half};
  all[3].axes = encodings::MropeAxes{{2, 1, 1}, encodings::MropeAxes::Order::interleaved};
  all[4].axes = encodings::AxialAxes{encodings::AxialAxes::Kind::per_half_head};
  all[5].xpos = encodings::Xpos{.policy = encodings::Xpos::Centre::middle_ceil};
  all.push_back(plain);
  all.back().axes = encodings::MropeAxes{{1, 1, 1, 1}, encodings::MropeAxes::Order::chunked};
  all.push_back(plain);
  all.back().frequencies = {1.0, 0.1 + 0.2, 1e-300, -0.0078125};
  all.back().frequency_factors = {1.0, 1.0 / 3.0, 2.0, 4.0};
  all.back().amplitude = 1.0 / 7.0;
  all.back().scaling = encodings::LinearScaling{2.0};
  for (const encodings::RopeScaling& scaling : std::vector<encodings::RopeScaling>{
           encodings::LinearScaling{4.0}, encodings::NtkScaling{2.0, 0.6},
           encodings::DynamicScaling{2.0, std::nullopt, 2048},
           encodings::DynamicScaling{1.0, 1000.0, 0},
           encodings::NtkByPartsScaling{.factor = 4.0, .original_length = 2048, .beta_0 = 1.5},
           encodings::YarnScaling{.factor = 0.1 + 0.2,
           .original_length = 4096,
           .truncate = false,
           .attention_factor = 1.25,
           .extrapolation_factor = 0.7465},
           encodings::LongRopeScaling{.short_factor = {1.0, 1.1, 1.2, 1.3},
           .long_factor = {2.0, 3.0, 4.0, 5.0},
           .original_length = 4096,
           .factor = 32.0,
           .attention_factor = {},
           .short_mscale = 1.1,
           .long_mscale = 1.2},
           encodings::Llama3Scaling{.factor = 8.0, .original_length = 8192},
           encodings::ProportionalScaling{.proportion = 0.5},
           encodings::Telechat3YarnScaling{.factor = 4.0, .original_length = 8192}}) {
    all.push_back(plain);
    all.back().scaling = scaling;
  }
  return all;
}

TEST(PlainSpecJson, EveryTypeOfSpecIsReadBackAsItself) {
  std::set<std::string_view> types;
  for (const RopeSpec& spec : specs()) {
    types.insert(encodings::name_of(spec.scaling));
    const std::string text = plain_spec_json(spec);
    const Result<config::ModelConfig> read = config::parse_config(text);
    ASSERT_TRUE(read) << text << ": " << read.error().what();
    ASSERT_EQ(read->groups.size(), 1U);
    ASSERT_TRUE(read->groups[0].rope) << text;
    EXPECT_EQ(*read->groups[0].rope, spec) << text;
    EXPECT_EQ(plain_spec_json(*read->groups[0].rope), text);
  }
  EXPECT_EQ(types.size(), encodings::scaling_types().size());
}

TEST(PlainSpecJson, ListReplacesTheBase) {
  RopeSpec spec = specs()[0];
  spec.frequencies = {1.0, 0.5, 0.25, 0.125};
  spec.amplitude = 1.5;
  EXPECT_EQ(plain_spec_json(spec),
            R"({"head_dim":8,"layout":"half","frequencies":[1.0,0.5,0.25,0.125],"amplitude":1.5})");
}

TEST(PlainSpecJson, KeysAreInOneOrder) {
  RopeSpec spec = specs()[2];
  spec.scaling = encodings::DynamicScaling{2.0, std::nullopt, 2048};
  EXPECT_EQ(plain_spec_json(spec),
            R"({"head_dim":96,"base":500000.25,"layout":"interleaved_to_half","rotary_dim":16,)"
            R"("rotary_offset":64,"max_position_embeddings":2048,)"
            R"("scaling":{"type":"dynamic","factor":2.0}})");
}

}  // namespace
}  // namespace phasor::porting
