// The rules of mlx-lm and mlx-vlm.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "phasor/porting/config_reports.hpp"
#include "porting/diff/diff_support.hpp"

namespace phasor::porting {
namespace {

using namespace testing;

// Measured with mlx-lm 0.32: see docs/engines.md.
TEST(Dialects, MlxIgnoresTruncateAndAmplitudes) {
  const json yarn = {
      {"type", "yarn"}, {"factor", 64.0}, {"original_max_position_embeddings", 4096}};
  json truncated = yarn, amplitude = yarn;
  truncated["truncate"] = false;
  amplitude["attention_factor"] = 1.0;
  const DiffReport rounded = compare(with_scaling(llama(262144), truncated), {"hf", "mlx-lm"});
  EXPECT_EQ(cause_ids(only_part(rounded)), std::set<std::string>{"mlx-yarn-truncate"});
  const DiffReport ignored = compare(with_scaling(llama(262144), amplitude), {"hf", "mlx-lm"});
  EXPECT_EQ(cause_ids(only_part(ignored)), std::set<std::string>{"mlx-yarn-attention-factor"});
  EXPECT_NEAR(ignored.groups[0].views[1].amplitude, 1.4158883, 1e-7);
  json phi = phi3();
  phi["rope_scaling"]["attention_factor"] = 1.5;
  const DiffReport lengths = compare(phi, {"hf", "mlx-lm"}, 8192);
  EXPECT_TRUE(cause_ids(only_part(lengths)).contains("mlx-longrope-amplitude"));
  const json ntk = {{"type", "ntk"}, {"factor", 4.0}};
  EXPECT_FALSE(compare(with_scaling(llama(262144), ntk), {"vllm", "mlx-lm"})
                   .groups[0]
                   .views[1]
                   .refusal.empty());
}

TEST(Dialects, MlxAlwaysTakesTheLongList) {
  const DiffReport report = compare(phi3(), {"hf", "mlx-lm"}, 1000);
  EXPECT_EQ(cause_ids(only_part(report)), std::set<std::string>{"mlx-longrope-always-long"});
}

TEST(Dialects, MlxVlm1709_GemmaGlobalScalingDropped) {
  const DiffReport report = compare(gemma3(), {"hf", "mlx-vlm"});
  ASSERT_EQ(report.groups.size(), 2u);
  for (const GroupDiff& group : report.groups) {
    const EngineComparison& part = group.comparisons.at(0);
    if (group.layer_type == "full_attention") {
      EXPECT_NEAR(part.first_difference->ratio, 8.0, 1e-12);
      EXPECT_EQ(part.first_difference->pair, 0);
      EXPECT_TRUE(names_source(part, "mlx-vlm #1709"));
    } else {
      EXPECT_EQ(part.status, ComparisonStatus::agree);
    }
  }
}

}  // namespace
}  // namespace phasor::porting
