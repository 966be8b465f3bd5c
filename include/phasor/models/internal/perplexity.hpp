// Perplexity of a text under a model, for windows of several lengths and for several scalings.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "phasor/encodings/rope.hpp"
#include "phasor/models/decoder.hpp"

namespace phasor::models {

// Windows of `context` inputs, `stride` apart; every input predicts the next token. A window scores
// only the tokens that no earlier window scored, so that every token after the first is scored once,
// with more than context - stride tokens before it (fewer in the first window). A text that fills a
// window has context + 1 tokens.
//
// A window runs in pieces, but with the frequencies of the whole window from its first token on:
// scalings that depend on the context (dynamic, longrope) use `context`.
struct PerplexityOptions {
  std::int64_t context = 0;
  std::int64_t stride = 0;                                       // 0: context / 2
  std::int64_t max_tokens = 0;                                   // of the text; 0: all
  std::optional<encodings::RopeScaling> scaling = std::nullopt;  // nullopt: the config's own
  std::int64_t chunk = 512;  // tokens that run at once; fewer if logits would exceed 16 MiB
  // As in SequenceOptions; the first token of every window has this position.
  std::int64_t first_position = 0;
  core::AngleMode angles = core::AngleMode::exact;
  // As in SequenceOptions: ranks that share each window. The chunk is that of one rank.
  ContextShare* share = nullptr;
};

// Running mean and variance (Welford), in double.
struct RunningMean {
  std::int64_t count = 0;
  double mean = 0.0;
  double squares = 0.0;  // sum of squared differences from the mean

  void add(double value) noexcept;
  [[nodiscard]] double standard_error() const noexcept;  // NaN for fewer than two values
  bool operator==(const RunningMean&) const = default;
};

// The windows that are done. A call that continues from it ends with the same bits as one that was not
// interrupted, its seconds aside.
struct PerplexityState {
  std::int64_t windows = 0;
  RunningMean all, last_quarter;
  double seconds = 0.0;
};

struct Perplexity {
  std::int64_t context = 0, windows = 0, scored = 0;
  double nats = 0.0;            // mean negative log-likelihood of a scored token
  double standard_error = 0.0;  // of that mean, tokens taken as independent; NaN for one token
  double perplexity = 0.0;      // e^nats
  // The mean over inputs in the last quarter of their window; NaN when there are none.
  double last_quarter_nats = 0.0;
  double seconds = 0.0;
};

// Calls `progress` with tokens done and tokens in all, those of earlier calls included; false stops
// with Error(cancelled).
//
// state    of the same text and options, to continue from; updated after each window, before
//          `progress` is called, so that it is whole whenever the call stops. Null: from the start
// throws   Error(invalid_argument): a context below 2, fewer than 2 tokens, a stride outside
//          [1, context], a state of more windows than there are; as Decoder::sequence and
//          Decoder::forward
[[nodiscard]] Perplexity perplexity(
    Decoder& decoder, std::span<const std::int64_t> ids, const PerplexityOptions& options,
    const std::function<bool(std::int64_t done, std::int64_t all)>& progress = {},
    PerplexityState* state = nullptr);

// The scaling of a name for a model trained to `trained` tokens and run with `context`: "none" keeps the
// config's own; linear, ntk (base * factor^(dim / (dim - 2))), dynamic and yarn get the factor
// context / trained (at least 1), as `phasor plan` does. longrope reads its lists from `longrope`,
// which it needs.
//
// error    an unknown name, listing the known ones; a model whose trained length is not known
[[nodiscard]] Result<std::optional<encodings::RopeScaling>> scaling_for(
    std::string_view name, std::int64_t trained, std::int64_t context,
    const std::optional<encodings::LongRopeScaling>& longrope = std::nullopt);

}  // namespace phasor::models
