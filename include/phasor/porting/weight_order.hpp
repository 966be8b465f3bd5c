// Infers the pair layout of q and k projections from the weights alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/rotary.hpp"
#include "phasor/export.h"

namespace phasor::porting {

// A possible order of the weights. Besides the two correct layouts: q and k in different layouts,
// and k permuted from the other layout with a wrong number of heads.
struct PHASOR_API OrderCandidate {
  core::PairLayout queries = core::PairLayout::half, keys = core::PairLayout::half;
  std::optional<std::int64_t> permuted_as_heads;  // of k: the wrong number of heads
  std::string text;                               // description

  // Pair (a, b) of q and k enters the scores only as (qa ka + qb kb) cos + (qa kb - qb ka) sin. So
  // training gives the cross products qa.kb and qb.ka of the weights opposite signs, and leaves two
  // rows that are not a pair uncorrelated:
  //
  //   antisymmetry   mean over pairs of -2 (qa.kb)(qb.ka) / |block|^2,   block = [qa qb]^T [ka kb]
  //   determinant    mean over pairs of 2 det(block) / |block|^2
  //
  // both in [-1, 1] and about 0 for untrained weights. The antisymmetry decides; the determinant is
  // also large for neighbouring pairs of low frequency, which hardly rotate.
  double antisymmetry = 0.0, determinant = 0.0;
  // Standard errors by which the best candidate's antisymmetry exceeds this one's; 0 for the best.
  double behind = 0.0;

  [[nodiscard]] bool consistent() const noexcept {
    return queries == keys && !permuted_as_heads.has_value();
  }
};

struct WeightOrder {
  std::vector<OrderCandidate> candidates;  // best first
  bool tells = false;                      // false: undecided, candidates[0] is only a hint
  // 1 - the probability that untrained weights put one candidate this far ahead.
  double confidence = 0.0;
  std::string reason;                             // for the answer, or why it is undecided
  std::optional<core::PairLayout> config_layout;  // what the config or the metadata says
  std::vector<std::int64_t> layers;               // used
  std::int64_t heads = 0, key_heads = 0;
  std::int64_t samples = 0;  // key heads with their query heads
};

// WeightOrder::tells requires at least this confidence and this antisymmetry.
inline constexpr double kOrderConfidence = 0.999;
inline constexpr double kOrderEffect = 0.02;

// `path` is a GGUF file, or a folder with config.json and safetensors files.
//
// Undecided for untrained weights, for fewer than four key heads, and for candidates that do not
// differ (rotary_dim 2).
//
// error    as read_config() and the readers; a checkpoint without q and k projections
// cost     at most about 3e9 products: of many layers some are used
[[nodiscard]] PHASOR_API Result<WeightOrder> infer_weight_order(const std::filesystem::path& path);

[[nodiscard]] PHASOR_API std::string weight_order_json(const WeightOrder& order);

}  // namespace phasor::porting
