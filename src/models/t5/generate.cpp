// Answers of a T5, token by token.
#include <algorithm>
#include <chrono>

#include "models/generate/require_option.hpp"
#include "phasor/models/t5.hpp"

namespace phasor::models {
namespace {

using T5Clock = std::chrono::steady_clock;

[[nodiscard]] double t5_seconds_since(T5Clock::time_point start) {
  return std::chrono::duration<double>(T5Clock::now() - start).count();
}

void check_t5_options(const GenerateOptions& options) {
  require_option(options.tokens >= 0, "generate: tokens must be at least 0", options.tokens);
  require_option(options.context >= 0, "generate: context must be at least 0", options.context);
  if (options.when_full == WindowFull::shift) {
    refuse(ErrorCode::unsupported,
           "generate: when_full must be refuse for an encoder-decoder, got shift");
  }
  if (options.context > 0 && options.tokens >= options.context) {
    refuse(ErrorCode::out_of_range, message("generate: the start token and ", options.tokens,
                                            " tokens exceed the context of ", options.context));
  }
}

}  // namespace

std::vector<std::int64_t> t5_input_ids(const text::Tokenizer& tokenizer, std::string_view text) {
  if (!tokenizer.specials().end) {
    refuse("t5: the tokenizer has no end token, with which every input ends");
  }
  std::vector<std::int64_t> ids = tokenizer.encode(text);
  ids.push_back(*tokenizer.specials().end);
  return ids;
}

GenerateResult generate(T5Model& model, std::span<const std::int64_t> input,
                        const GenerateOptions& options, std::optional<core::DType> cache,
                        const std::function<bool(std::int64_t)>& on_token) {
  check_t5_options(options);
  Sampler sampler(options.sampler);
  GenerateResult result;
  result.prompt_tokens = static_cast<std::int64_t>(input.size());
  const T5Clock::time_point start = T5Clock::now();
  T5Sequence sequence = model.sequence(
      input, {.capacity = std::max<std::int64_t>(1, options.tokens), .cache = cache});
  result.prompt_seconds = t5_seconds_since(start);
  std::vector<std::int64_t> seen = {model.facts().start_token};
  ForwardResult step;
  while (static_cast<std::int64_t>(result.ids.size()) < options.tokens) {
    const T5Clock::time_point step_start = T5Clock::now();
    model.forward(sequence, std::span(seen).last(1), {.logits = LogitsOf::last_token}, step);
    const std::int64_t id = sampler.next(step.logits, seen);
    result.decode_seconds += t5_seconds_since(step_start);
    if (std::find(options.stops.begin(), options.stops.end(), id) != options.stops.end()) {
      result.reason = StopReason::stop_token;
      return result;
    }
    result.ids.push_back(id);
    seen.push_back(id);
    if (on_token && !on_token(id)) {
      result.reason = StopReason::cancelled;
      return result;
    }
  }
  return result;
}

}  // namespace phasor::models
