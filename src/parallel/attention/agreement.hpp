// What the ranks of a plan must agree on, as text.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "phasor/attention/softmax.hpp"
#include "phasor/encodings/score_terms.hpp"
#include "phasor/parallel/communicator.hpp"
#include "phasor/parallel/shards.hpp"

namespace phasor::parallel {

// Collective: runs work(), which does not send. If it fails on any rank, every rank throws: its own
// exception, or which rank could not go on and why. The ranks can go on together afterwards.
template <class Work>
void on_every_rank(Communicator& ranks, const Work& work) {
  std::exception_ptr own;
  std::string reason;
  try {
    work();
  } catch (const std::exception& error) {
    own = std::current_exception();
    reason = error.what();
  }
  const std::vector<std::string> reasons = ranks.gather(reason);
  if (own) std::rethrow_exception(own);
  for (std::size_t r = 0; r < reasons.size(); ++r)
    if (!reasons[r].empty()) refuse(message("rank ", r, ": ", reasons[r]));
}

[[nodiscard]] std::string sizes_text(const attention::AttentionSizes& sizes);
// Of options all that changes results: threads, isa and memory do not.
[[nodiscard]] std::string options_text(const attention::AttentionOptions& options,
                                       const attention::AttentionSizes& whole,
                                       const ParallelOptions& parallel,
                                       attention::AttentionPasses passes);
// The terms with a digest of their numbers.
//
// cost     one read of every table
[[nodiscard]] std::string terms_text(const encodings::ScoreTerms& terms);

}  // namespace phasor::parallel
