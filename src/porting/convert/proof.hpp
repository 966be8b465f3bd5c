// Compares the attention scores of a checkpoint and its conversion on the same random activations.
#pragma once

#include <cstdint>

#include "phasor/porting/convert.hpp"
#include "porting/convert/checkpoint_names.hpp"

namespace phasor::porting {

struct ProofSide {
  const AttentionTensors& tensors;
  core::PairLayout layout;
};

// Computes q = Wq x + b and k = Wk y + b of some heads of some layers, normalised if the model does
// so, rotates them at random positions in each side's own layout and compares all q.k; in double.
// In models that rotate values, the output projection of the values is compared too.
//
// cost     at most three layers; all heads of a layer of up to 4 MiB, else two key heads with two
//          query heads each
[[nodiscard]] ScoreProof prove_scores(const ProofSide& source, const ProofSide& result,
                                      std::uint64_t seed);

}  // namespace phasor::porting
