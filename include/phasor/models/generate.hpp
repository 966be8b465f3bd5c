// Text generation, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "phasor/export.h"
#include "phasor/models/decoder.hpp"
#include "phasor/models/sampler.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::models {

enum class WindowFull : std::uint8_t {
  refuse,  // Error when prompt and answer exceed the context, before anything runs
  shift,   // drop the older half of the tokens after the first `keep`; keys are rotated again
};

struct GenerateOptions {
  std::int64_t tokens = 128;  // at most; 0: none
  SamplerOptions sampler = {};
  std::vector<std::int64_t> stops = {};  // ids that end the answer; not part of it
  std::int64_t context = 0;              // 0: the trained length, or what is needed
  WindowFull when_full = WindowFull::refuse;
  std::int64_t keep = 4;     // the first tokens stay through every shift (attention sinks)
  std::int64_t chunk = 512;  // tokens of a prompt that run at once
};

// The ids that end an answer: those of the config and of the tokenizer, which may be null.
[[nodiscard]] PHASOR_API std::vector<std::int64_t> stop_tokens(const Decoder& decoder,
                                                               const text::Tokenizer* tokenizer);

enum class StopReason : std::uint8_t { tokens, stop_token, cancelled };
struct GenerateResult {
  std::vector<std::int64_t> ids;  // without the prompt
  StopReason reason = StopReason::tokens;
  std::int64_t prompt_tokens = 0, cached_tokens = 0;  // of the prompt; already in the cache
  std::int64_t shifts = 0;
  double prompt_seconds = 0.0, decode_seconds = 0.0;
};

class Generation;

// One conversation with a decoder, which must outlive it. The cache is kept between calls: tokens that
// a prompt shares with the last one are not computed again.
class PHASOR_API Generator {
 public:
  explicit Generator(Decoder& decoder, SequenceOptions cache = {});
  ~Generator();

  // Starts an answer, whose tokens Generation::next() computes one by one. Ends an earlier answer.
  //
  // throws   Error(invalid_argument): an empty prompt, invalid options;
  //          Error(out_of_range): ids outside the vocabulary, a prompt beyond the context without
  //          WindowFull::shift (with it, too, when the prompt alone does not fit)
  [[nodiscard]] Generation start(std::span<const std::int64_t> prompt,
                                 const GenerateOptions& options);
  // The whole answer. Calls `on_token` with each token; false cancels.
  //
  // throws   as start(); what `on_token` throws
  GenerateResult generate(std::span<const std::int64_t> prompt, const GenerateOptions& options,
                          const std::function<bool(std::int64_t)>& on_token = {});
  [[nodiscard]] std::span<const std::int64_t> cached_ids() const noexcept;

 private:
  friend class Generation;
  struct State;
  std::shared_ptr<State> state_;
};

// A running answer. May outlive its Generator, not the Decoder; destroying it cancels it.
class PHASOR_API Generation {
 public:
  ~Generation();
  Generation(Generation&&) noexcept;
  Generation& operator=(Generation&&) noexcept;

  // The next token; the first call runs the prompt. nullopt: the answer has ended for the reason in
  // result().
  //
  // throws   Error(invalid_argument): the Generator started another answer; as Decoder::forward. The
  //          answer has then ended; the Generator keeps the tokens that ran
  // cost     a pass through the decoder, which takes one call at a time; from the second token on,
  //          greedy, no allocation when Decoder::forward makes none
  [[nodiscard]] std::optional<std::int64_t> next();
  // Ends a running answer with StopReason::cancelled.
  void cancel() noexcept;
  // The tokens so far; seconds are those spent in next().
  [[nodiscard]] const GenerateResult& result() const noexcept;

 private:
  friend class Generator;
  struct State;
  explicit Generation(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Several prompts at once: one product with the weights for all rows. A row that has stopped is not
// computed any more. Every row has its own random generator with the options' seed, so that its answer
// is the same as alone; seconds are those of the whole batch.
//
// throws   as Generator::generate; Error(invalid_argument) for WindowFull::shift
[[nodiscard]] PHASOR_API std::vector<GenerateResult> generate_batch(
    Decoder& decoder, const std::vector<std::vector<std::int64_t>>& prompts,
    const GenerateOptions& options);

}  // namespace phasor::models
