// What the tests of dialects and of diff share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "phasor/porting/config_reports.hpp"
#include "porting/configs.hpp"

namespace phasor::porting::testing {

inline ReadableConfig readable(const json& config) {
  return parse_readable_config(config.dump()).value_or_throw();
}

inline json with_scaling(json config, const json& scaling) {
  config["rope_scaling"] = scaling;
  return config;
}

// Dynamic NTK: the base follows the length beyond 4096.
inline json dynamic_config() {
  return with_scaling(llama(4096), {{"type", "dynamic"}, {"factor", 2.0}});
}

inline json qwen_vl_yarn() {
  return {{"model_type", "qwen2_5_vl_text"},
          {"hidden_size", 3584},
          {"num_attention_heads", 28},
          {"max_position_embeddings", 131072},
          {"rope_theta", 1e6},
          {"rope_scaling",
           {{"type", "yarn"},
            {"factor", 4.0},
            {"original_max_position_embeddings", 32768},
            {"mrope_section", {16, 24, 24}}}}};
}

inline json phi3(std::int64_t pairs = 48) {
  std::vector<double> shorts(static_cast<std::size_t>(pairs), 1.0), longs;
  for (std::int64_t i = 0; i < pairs; ++i) longs.push_back(1.0 + 0.5 * static_cast<double>(i));
  return {
      {"model_type", "phi3"},
      {"hidden_size", 3072},
      {"num_attention_heads", 32},
      {"max_position_embeddings", 131072},
      {"original_max_position_embeddings", 4096},
      {"rope_theta", 10000.0},
      {"rope_scaling", {{"type", "longrope"}, {"short_factor", shorts}, {"long_factor", longs}}}};
}

inline DiffReport compare(const json& config, const std::vector<std::string>& between,
                          std::optional<std::int64_t> context = std::nullopt,
                          std::optional<std::int64_t> max_length = std::nullopt,
                          std::int64_t shifts = 0) {
  DiffOptions options;
  options.between = between;
  options.context = context;
  options.max_length = max_length;
  options.shifts = shifts;
  return diff(readable(config), options).value_or_throw();
}

inline const EngineComparison& only_part(const DiffReport& report) {
  EXPECT_EQ(report.groups.size(), 1u);
  EXPECT_EQ(report.groups.at(0).comparisons.size(), 1u);
  return report.groups.at(0).comparisons.at(0);
}

inline std::set<std::string> cause_ids(const EngineComparison& part) {
  std::set<std::string> ids;
  for (const DifferenceCause& cause : part.causes) ids.emplace(cause.rule.rule.id);
  return ids;
}

inline bool names_source(const EngineComparison& part, std::string_view source) {
  return std::any_of(part.causes.begin(), part.causes.end(), [&](const DifferenceCause& cause) {
    return cause.rule.rule.source.find(source) != std::string_view::npos;
  });
}

inline double largest(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

inline std::set<std::string> ids_in_force(const EngineView& view) {
  std::set<std::string> ids;
  for (const RuleInForce& rule : view.rules) ids.emplace(rule.rule.id);
  return ids;
}

}  // namespace phasor::porting::testing
