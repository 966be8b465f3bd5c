// Generation: prompt in, tokens out, one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "phasor/models/decoder.hpp"
#include "phasor/models/sampler.hpp"

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

enum class StopReason : std::uint8_t { tokens, stop_token, cancelled };
struct GenerateResult {
  std::vector<std::int64_t> ids;  // without the prompt
  StopReason reason = StopReason::tokens;
  std::int64_t prompt_tokens = 0, cached_tokens = 0;  // of the prompt; already in the cache
  std::int64_t shifts = 0;
  double prompt_seconds = 0.0, decode_seconds = 0.0;
};

// One conversation with a decoder: keeps its cache between calls, so that a prompt that begins as
// the last one ended is not computed again.
class Generator {
 public:
  explicit Generator(Decoder& decoder, SequenceOptions cache = {});
  ~Generator();

  // Gives each token to `on_token` as it comes; a false answer cancels.
  //
  // throws   Error(invalid_argument): an empty prompt, options that make no sense;
  //          Error(out_of_range): ids outside the vocabulary, a prompt beyond the context without
  //          WindowFull::shift (with it, too, when the prompt alone does not fit)
  GenerateResult generate(std::span<const std::int64_t> prompt, const GenerateOptions& options,
                          const std::function<bool(std::int64_t)>& on_token = {});
  [[nodiscard]] std::span<const std::int64_t> cached_ids() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Several prompts at once: one product with the weights for all rows. A row that stops is left out
// from then on. Every row draws from its own generator with the options' seed, so that it answers as
// it would alone; seconds are those of the whole batch.
//
// throws   as Generator::generate; Error(invalid_argument) for WindowFull::shift
[[nodiscard]] std::vector<GenerateResult> generate_batch(
    Decoder& decoder, const std::vector<std::vector<std::int64_t>>& prompts,
    const GenerateOptions& options);

}  // namespace phasor::models
