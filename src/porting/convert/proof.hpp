// Attention scores of a checkpoint and of its conversion, on the same random activations.
#pragma once

#include <cstdint>
#include <functional>

#include "phasor/porting/convert.hpp"
#include "porting/convert/checkpoint_names.hpp"

namespace phasor::porting {

struct ProofSide {
  const AttentionTensors& tensors;
  core::PairLayout layout;
};

// q = Wq x + b and k = Wk y + b of some heads of some layers, normalised where the model does,
// turned at random positions in either side's own layout, and all q.k compared; in double. Where
// values turn, what the output projection makes of them is compared too. `release` is called after
// each layer, for the pages of the maps that were touched.
//
// cost     at most three layers; all heads of a layer whose rows are few MiB, else two key heads
//          with two query heads each
[[nodiscard]] ScoreProof prove_scores(const ProofSide& source, const ProofSide& result,
                                      std::uint64_t seed, const std::function<void()>& release);

}  // namespace phasor::porting
