// Terms and options of some heads of attention.
#pragma once

#include "parallel/heads/head_exchange.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/encodings/score_terms.hpp"

namespace phasor::parallel {

// The same numbers, of heads [range.first, range.first + range.count) out of `heads`.
[[nodiscard]] encodings::ScoreTerms terms_of_heads(encodings::ScoreTerms terms, HeadRange range);
[[nodiscard]] attention::AttentionOptions options_of_heads(attention::AttentionOptions options,
                                                           HeadRange range);

}  // namespace phasor::parallel
