// The demo's tiny model.
#pragma once

namespace phasor::tools {

// A tiny decoder with synthetic weights, written to a temporary folder and loaded. The largest
// difference of the last token's logits between all tokens at once, and one by one or after a
// shift of the context.
struct TinyModelCheck {
  double one_by_one = 0.0;
  double shifted = 0.0;
  double largest_logit = 0.0;
};
[[nodiscard]] TinyModelCheck check_tiny_model();

}  // namespace phasor::tools
