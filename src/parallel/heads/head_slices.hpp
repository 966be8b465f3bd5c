// Terms and options of some heads of attention, and the gradients of their tables.
#pragma once

#include <vector>

#include "parallel/heads/head_exchange.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/encodings/score_terms.hpp"

namespace phasor::parallel {

// The same numbers, of heads [range.first, range.first + range.count) out of `heads`.
[[nodiscard]] encodings::ScoreTerms terms_of_heads(encodings::ScoreTerms terms, HeadRange range);
[[nodiscard]] attention::AttentionOptions options_of_heads(attention::AttentionOptions options,
                                                           HeadRange range);

// The gradients of the tables of all heads, of which this rank computes some.
class TableSums {
 public:
  // Zeros for each table whose gradient is wanted, of all its heads.
  TableSums(const encodings::ScoreTermGradients& wanted, core::DType arithmetic);
  // Where the gradients of some heads go.
  [[nodiscard]] encodings::ScoreTermGradients of_heads(HeadRange range);
  // Collective: sums over ranks, and adds to the gradients that were wanted.
  //
  // throws   Error(io)
  void add_over(Communicator& ranks);

 private:
  encodings::ScoreTermGradients wanted_, all_;
  std::vector<float> numbers_;
  std::vector<double> wide_;
};

}  // namespace phasor::parallel
