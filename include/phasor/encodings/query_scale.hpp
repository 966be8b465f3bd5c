// Queries that grow with their position, so that long contexts keep sharp scores: models multiply
// each query by a factor after (or instead of) its rotation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "phasor/export.h"

namespace phasor::encodings {

//   factor(position) = 1 + beta ln(1 + floor((position + offset) / length))
//
// Ministral 3 and Mistral 4: llama_4_scaling_beta, original_max_position_embeddings, offset 0, on layers
// that rotate. Llama 4: attn_scale, floor_scale, offset 1, on layers that do not.
struct QueryScale {
  double beta = 0.0;
  std::int64_t length = 0;
  std::int64_t offset = 0;
  bool operator==(const QueryScale&) const = default;
};

// throws   Error(invalid_argument) for a beta that is not finite or negative, a length below 1, a
//          negative offset
PHASOR_API void validate(const QueryScale& scale);

// The factor of each position's query, in double.
//
// throws   as validate(); Error(out_of_range) for a position that is negative or not finite
[[nodiscard]] PHASOR_API std::vector<double> query_scales(const QueryScale& scale,
                                                          std::span<const double> positions);

}  // namespace phasor::encodings
