// Small networks and batches of every kind, for tests.
#pragma once

#include <string>
#include <vector>

#include "phasor/lab/internal/network.hpp"
#include "phasor/lab/internal/random.hpp"

namespace phasor::lab::tests {

inline constexpr EncodingName kEveryEncoding[] = {
    EncodingName::none,         EncodingName::sinusoidal,     EncodingName::learned,
    EncodingName::hierarchical, EncodingName::rope,           EncodingName::xpos,
    EncodingName::shaw,         EncodingName::transformer_xl, EncodingName::xlnet,
    EncodingName::t5,           EncodingName::tupe,           EncodingName::deberta,
    EncodingName::alibi,        EncodingName::kerple,
};

[[nodiscard]] inline ModelSpec small_spec(Architecture architecture, EncodingName encoding) {
  ModelSpec spec;
  spec.architecture = architecture;
  spec.style = architecture == Architecture::encoder ? Style::roformer : Style::llama;
  spec.vocabulary = 23;
  spec.hidden = 12;
  spec.layers = 2;
  spec.heads = 3;
  spec.intermediate = 20;
  spec.context = 9;
  spec.token_types = architecture == Architecture::encoder ? 2 : 1;
  spec.encoding.name = encoding;
  spec.encoding.clip = 3;
  spec.encoding.buckets = 8;
  spec.encoding.max_distance = 6;
  return spec;
}

// Random ids and labels; the last row has padding at its end.
[[nodiscard]] inline Batch small_batch(const ModelSpec& spec, std::int64_t rows,
                                       std::int64_t tokens, std::uint64_t seed) {
  Random random(seed, Stream::batches);
  Batch batch;
  batch.rows = rows;
  batch.tokens = tokens;
  const std::int64_t count = rows * tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool padding = i >= count - 2;
    batch.ids.push_back(static_cast<std::int32_t>(random.below(spec.vocabulary)));
    batch.token_types.push_back(static_cast<std::int32_t>(random.below(spec.token_types)));
    batch.mask.push_back(padding ? 0 : 1);
    const auto label = static_cast<std::int32_t>(random.below(spec.vocabulary));
    batch.labels.push_back(padding || random.below(3) == 0 ? kNoLabel : label);
  }
  if (spec.head == Head::classification) {
    batch.labels.clear();
    for (std::int64_t row = 0; row < rows; ++row) {
      batch.labels.push_back(static_cast<std::int32_t>(random.below(spec.labels)));
    }
  }
  if (spec.architecture == Architecture::encoder_decoder) {
    batch.source_tokens = tokens - 1;
    for (std::int64_t i = 0; i < rows * batch.source_tokens; ++i) {
      batch.source_ids.push_back(static_cast<std::int32_t>(random.below(spec.vocabulary)));
      batch.source_mask.push_back(i + 1 < rows * batch.source_tokens ? 1 : 0);
    }
  }
  return batch;
}

// Every parameter away from its initial value, so that no gradient is zero by symmetry.
template <class T>
void randomise(Network<T>& network, std::uint64_t seed) {
  Random random(seed, Stream::initial_weights);
  network.initialise(seed);
  for (T& value : network.parameters()) value += static_cast<T>(0.2 * random.normal());
}

}  // namespace phasor::lab::tests
