// From q and k projection weights alone: in which order do the features of a head stand?
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

// An order that the weights may be in. Beside the two right ones: q and k in different ones, and k
// permuted on its way from the other layout as if it had another number of heads.
struct PHASOR_API OrderCandidate {
  core::PairLayout queries = core::PairLayout::half, keys = core::PairLayout::half;
  std::optional<std::int64_t> permuted_as_heads;  // k, and not its own number
  std::string text;                               // the same in words

  // Pair (a, b) of q and of k enters the scores as (qa ka + qb kb) cos + (qa kb - qb ka) sin, and as
  // nothing else. So training drives the cross products qa.kb and qb.ka of the weights apart, and
  // leaves any two rows that are no pair unrelated:
  //
  //   antisymmetry   mean over pairs of -2 (qa.kb)(qb.ka) / |block|^2,   block = [qa qb]^T [ka kb]
  //   determinant    mean over pairs of 2 det(block) / |block|^2
  //
  // both in [-1, 1] and about 0 for untrained weights. The first one decides; the second is also
  // large for neighbours of low frequency, which hardly turn.
  double antisymmetry = 0.0, determinant = 0.0;
  // Standard errors by which the best candidate's antisymmetry exceeds this one's; 0 for the best.
  double behind = 0.0;

  [[nodiscard]] bool consistent() const noexcept {
    return queries == keys && !permuted_as_heads.has_value();
  }
};

struct WeightOrder {
  std::vector<OrderCandidate> candidates;  // best first
  bool tells = false;                      // false: cannot tell, and candidates[0] is only a hint
  // 1 - the chance that weights without any order would put one candidate so far ahead.
  double confidence = 0.0;
  std::string reason;                             // of the answer, or why there is none
  std::optional<core::PairLayout> config_layout;  // what the config or the metadata says
  std::vector<std::int64_t> layers;               // looked at
  std::int64_t heads = 0, key_heads = 0;
  std::int64_t samples = 0;  // key heads with their query heads
};

// From this confidence on, and this antisymmetry, WeightOrder::tells.
inline constexpr double kOrderConfidence = 0.999;
inline constexpr double kOrderEffect = 0.02;

// `path` is a GGUF file, or a folder with config.json and safetensors files.
//
// Cannot tell for weights that are not trained, for a handful of heads, and for candidates that
// differ by nothing (rotary_dim 2).
//
// refuses  what read_config() and the readers refuse; a checkpoint without q and k projections
// cost     at most a few thousand million products: layers are left out where there are many
[[nodiscard]] PHASOR_API Result<WeightOrder> infer_weight_order(const std::filesystem::path& path);

[[nodiscard]] PHASOR_API std::string weight_order_json(const WeightOrder& order);

}  // namespace phasor::porting
