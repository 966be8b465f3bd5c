// The part of the demo that runs a model.
#pragma once

namespace phasor::tools {

// A tiny decoder with made-up weights, written to a folder of its own and read back: the largest
// difference of the logits of its last token between running all tokens at once, one by one, and
// behind a window that was shifted.
struct TinyModelCheck {
  double one_by_one = 0.0;
  double shifted = 0.0;
  double largest_logit = 0.0;
};
[[nodiscard]] TinyModelCheck check_tiny_model();

}  // namespace phasor::tools
