// What the golden kinds of decoders share.
#pragma once

#include <cstdint>
#include <vector>

#include "conform/case.hpp"
#include "phasor/models/decoder.hpp"

namespace phasor::tools {

std::vector<std::int64_t> integers_of(const CaseArray& array);
Computed floats(const std::vector<float>& values, std::vector<std::int64_t> shape);

struct Greedy {
  std::vector<std::vector<std::int64_t>> ids;  // by row
  std::vector<float> logits;                   // [steps, rows, vocabulary]
};
// The largest logit of each row, `count` times over.
Greedy greedy(models::Decoder& decoder, const std::vector<std::vector<std::int64_t>>& prompts,
              std::int64_t count);
Computed tokens_of(const Greedy& result);

}  // namespace phasor::tools
