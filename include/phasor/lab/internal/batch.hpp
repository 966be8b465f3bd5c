// What a step of training reads: padded rows of token ids and what is to be predicted.
#pragma once

#include <cstdint>
#include <vector>

namespace phasor::lab {

inline constexpr std::int32_t kNoLabel = -1;  // this token's prediction does not count

struct Batch {
  std::int64_t rows = 0, tokens = 0;
  std::vector<std::int32_t> ids;  // [rows, tokens]; of an encoder-decoder: the target's side
  std::vector<std::int32_t> token_types;  // [rows, tokens], or empty: all 0
  std::vector<std::uint8_t> mask;         // [rows, tokens]: 0 is padding; or empty: none
  // Language models: [rows, tokens], the id to predict at each place (causal models: that of the next
  // token, already shifted), or kNoLabel. Classification: [rows]. Empty: nothing to predict.
  std::vector<std::int32_t> labels;
  // Encoder-decoder: the source's side.
  std::int64_t source_tokens = 0;
  std::vector<std::int32_t> source_ids;  // [rows, source_tokens]
  std::vector<std::uint8_t> source_mask;
};

}  // namespace phasor::lab
