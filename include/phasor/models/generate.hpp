// Generation: prompt in, tokens out, one at a time.
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
  refuse,  // a prompt and answer that do not fit are an error before anything runs
  shift,   // drop the oldest half behind the first `keep` tokens; keys are turned again
};

struct GenerateOptions {
  std::int64_t tokens = 128;  // at most; 0: none
  SamplerOptions sampler = {};
  std::vector<std::int64_t> stops = {};  // ids that end the answer; they are not given out
  std::int64_t context = 0;              // the window; 0: the trained length, or what is needed
  WindowFull when_full = WindowFull::refuse;
  std::int64_t keep = 4;     // the first tokens stay through every shift (attention sinks)
  std::int64_t chunk = 512;  // tokens of a prompt that run at once
};

// The ids that end an answer: those of the config and of the tokenizer, where there is one.
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

// One conversation with a decoder, which must outlive it: keeps its cache between calls, so that a
// prompt that begins as the last one ended is not computed again.
class PHASOR_API Generator {
 public:
  explicit Generator(Decoder& decoder, SequenceOptions cache = {});
  ~Generator();

  // Begins an answer whose tokens are asked for one by one. Nothing runs before the first is; an
  // answer begun earlier ends here.
  //
  // throws   Error(invalid_argument): an empty prompt, options that make no sense;
  //          Error(out_of_range): ids outside the vocabulary, a prompt beyond the context without
  //          WindowFull::shift (with it, too, when the prompt alone does not fit)
  [[nodiscard]] Generation start(std::span<const std::int64_t> prompt,
                                 const GenerateOptions& options);
  // The whole answer. Gives each token to `on_token` as it comes; a false answer cancels.
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

// An answer under way. Outlives its Generator, not the Decoder; to drop one is to cancel it.
class PHASOR_API Generation {
 public:
  ~Generation();
  Generation(Generation&&) noexcept;
  Generation& operator=(Generation&&) noexcept;

  // The next token; the first call runs the prompt. None: the answer has ended, and result() says
  // why.
  //
  // throws   Error(invalid_argument): the Generator began another answer; as Decoder::forward. The
  //          answer has then ended; the Generator keeps the tokens that ran, and answers the next
  //          prompt as if this one had ended there
  // cost     a pass through the decoder, which takes one call at a time; from the second token on,
  //          greedy, no allocation where Decoder::forward makes none
  [[nodiscard]] std::optional<std::int64_t> next();
  // Ends the answer where it goes on: its reason is StopReason::cancelled.
  void cancel() noexcept;
  // What came so far; seconds are those spent in next().
  [[nodiscard]] const GenerateResult& result() const noexcept;

 private:
  friend class Generator;
  struct State;
  explicit Generation(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Several prompts at once: one product with the weights for all rows. A row that stops is left out
// from then on. Every row draws from its own generator with the options' seed, so that it answers as
// it would alone; seconds are those of the whole batch.
//
// throws   as Generator::generate; Error(invalid_argument) for WindowFull::shift
[[nodiscard]] PHASOR_API std::vector<GenerateResult> generate_batch(
    Decoder& decoder, const std::vector<std::vector<std::int64_t>>& prompts,
    const GenerateOptions& options);

}  // namespace phasor::models
