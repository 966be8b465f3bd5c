// Text generation, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "phasor/export.h"
#include "phasor/models/decoder.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::models {

// Samples the next token from logits.

// The filters apply in this order: repetition penalty, temperature, top-k, top-p, min-p.
struct SamplerOptions {
  double temperature = 0.0;         // 0: greedy, the largest logit, the first of equals
  std::int64_t top_k = 0;           // 0: all
  double top_p = 1.0;               // the smallest set of tokens whose probability reaches top_p
  double min_p = 0.0;               // tokens below min_p times the largest probability are dropped
  double repetition_penalty = 1.0;  // of tokens seen: positive logits divided, negative multiplied
  std::int64_t repetition_window = 64;  // the last tokens that count as seen; 0: all
  std::uint64_t seed = 0;
};

class PHASOR_API Sampler {
 public:
  // throws   Error(invalid_argument): a negative or not finite temperature, top_k
  //          < 0, top_p outside (0, 1], min_p outside [0, 1), penalty not positive, window < 0
  explicit Sampler(const SamplerOptions& options);
  // The same seed, logits and seen tokens give the same token on every machine. A NaN is never
  // chosen, nor is -inf.
  //
  // throws   Error(invalid_argument): no logit above -inf; std::bad_alloc. The random generator is
  //          then unchanged
  [[nodiscard]] std::int64_t next(std::span<const float> logits,
                                  std::span<const std::int64_t> seen);
  [[nodiscard]] const SamplerOptions& options() const noexcept { return options_; }

 private:
  struct Candidate {
    std::int64_t id;
    double exponent, weight;
  };
  static bool before(const Candidate& a, const Candidate& b);
  void penalise(std::span<const std::int64_t> seen);
  void collect(std::span<const float> logits);
  void keep_top_k();
  [[nodiscard]] double weigh();
  [[nodiscard]] double keep_top_p(double total);
  [[nodiscard]] double keep_min_p(double total);
  [[nodiscard]] std::int64_t draw(double total);

  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<Candidate> candidates_;
  std::vector<float> penalised_;
  std::vector<std::int64_t> recent_;
};

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
  std::int64_t keep = 4;  // the first tokens stay through every shift (attention sinks)
  std::int64_t chunk =
      512;  // tokens of a prompt that run at once; of a shared context, on each rank
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
