#include "phasor/models/generate.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <utility>

#include "models/generate/require_option.hpp"
#include "phasor/core/error.hpp"
#include "phasor/models/context_share.hpp"

namespace phasor::models {
namespace {

using Clock = std::chrono::steady_clock;

[[nodiscard]] double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[nodiscard]] std::int64_t count_of(std::span<const std::int64_t> ids) {
  return static_cast<std::int64_t>(ids.size());
}

void check_prompt(std::span<const std::int64_t> prompt, std::int64_t vocabulary) {
  if (prompt.empty()) refuse("generate: the prompt is empty: it must have at least one token");
  for (const std::int64_t id : prompt) {
    if (id < 0 || id >= vocabulary)
      refuse(ErrorCode::out_of_range,
             message("generate: token ids must be from 0 to ", vocabulary - 1, ", got ", id));
  }
}

// The context in tokens; checks the prompt and the options.
[[nodiscard]] std::int64_t checked_context(std::span<const std::int64_t> prompt,
                                           const GenerateOptions& options,
                                           const DecoderFacts& facts) {
  require_option(options.tokens >= 0, "generate: tokens must be at least 0", options.tokens);
  require_option(options.context >= 0, "generate: context must be at least 0", options.context);
  require_option(options.keep >= 0, "generate: keep must be at least 0", options.keep);
  require_option(options.chunk >= 1, "generate: chunk must be at least 1", options.chunk);
  check_prompt(prompt, facts.vocabulary);
  const std::int64_t length = count_of(prompt);
  const std::int64_t needed = length + options.tokens;
  const std::int64_t context = options.context > 0        ? options.context
                               : facts.trained_length > 0 ? facts.trained_length
                                                          : needed;
  if (facts.position_limit > 0 && context > facts.position_limit) {
    refuse(ErrorCode::out_of_range,
           message("generate: the context must be at most ", facts.position_limit,
                   ", the learned positions of model_type ", facts.model_type, ", got ", context));
  }
  if (facts.position_limit > 0 && options.when_full == WindowFull::shift && needed > context) {
    refuse(ErrorCode::unsupported,
           message("generate: ", length, " + ", options.tokens, " tokens exceed the context of ",
                   context, ", which cannot shift: model_type ", facts.model_type,
                   " has learned positions"));
  }
  if (options.when_full == WindowFull::refuse) {
    if (needed > context)
      refuse(ErrorCode::out_of_range, message("generate: ", length, " + ", options.tokens,
                                              " tokens exceed the context of ", context));
    return context;
  }
  if (length > context)
    refuse(ErrorCode::out_of_range,
           message("generate: a prompt of ", length, " tokens exceeds the context of ", context));
  // A shift drops half of the tokens after `keep`: there must be at least two.
  if (needed > context && options.keep + 2 > context)
    refuse(message("generate: keep must be at most context - 2 = ", context - 2,
                   " for the context to shift, got ", options.keep));
  return context;
}

// Caches grow in steps, so that they are not copied with every line of a conversation.
[[nodiscard]] std::int64_t rounded_capacity(std::int64_t tokens) {
  constexpr std::int64_t kStep = 64;
  return (tokens + kStep - 1) / kStep * kStep;
}

[[nodiscard]] bool stops(const GenerateOptions& options, std::int64_t id) {
  return std::find(options.stops.begin(), options.stops.end(), id) != options.stops.end();
}

}  // namespace

std::vector<std::int64_t> stop_tokens(const Decoder& decoder, const text::Tokenizer* tokenizer) {
  std::vector<std::int64_t> stops = decoder.facts().stops;
  if (tokenizer != nullptr) {
    const std::vector<std::int64_t>& more = tokenizer->specials().stops;
    stops.insert(stops.end(), more.begin(), more.end());
  }
  return stops;
}

struct Generator::State {
  Decoder& decoder;
  SequenceOptions cache;
  std::optional<Sequence> sequence;
  // Leading tokens whose keys depend on all tokens before them: after a shift only `keep`.
  std::int64_t untouched = 0;
  std::int64_t longest = 0;  // length of the sequence since it was empty
  std::int64_t answers = 0;  // started so far; the last one may be running
  ForwardResult forward;     // of the last call; the next one reuses its memory

  [[nodiscard]] std::int64_t reusable(std::span<const std::int64_t> prompt) const;
  void prepare(std::int64_t cached, std::int64_t capacity);
  // Logits, until the next call.
  [[nodiscard]] std::span<const float> run_prompt(std::span<const std::int64_t> rest,
                                                  std::int64_t chunk);
  [[nodiscard]] std::span<const float> run(std::span<const std::int64_t> ids, LogitsOf logits);
  // The original length of a scaling that reads the context, or 0.
  [[nodiscard]] std::int64_t switching_length() const;
};

std::int64_t Generator::State::switching_length() const {
  std::int64_t least = 0;
  const auto look = [&](const encodings::RopeScaling& scaling) {
    if (!encodings::depends_on_context(scaling)) return;
    const std::int64_t length = encodings::original_length(scaling).value_or(0);
    least = least == 0 ? length : std::min(least, length);
  };
  if (cache.scaling) {
    look(*cache.scaling);
  } else {
    for (const config::LayerGroup& group : decoder.config().groups)
      if (group.rope) look(group.rope->scaling);
  }
  return least;
}

// How many of the prompt's first tokens are in the cache, as a new run would compute them.
std::int64_t Generator::State::reusable(std::span<const std::int64_t> prompt) const {
  if (!sequence) return 0;
  // Hidden states computed with the frequencies of a long context depend on them in every layer but
  // the first, even if the keys are rotated again.
  const std::int64_t original = switching_length();
  if (original > 0 && longest > original && count_of(prompt) <= original) return 0;
  const std::span<const std::int64_t> ids = sequence->ids();
  const auto [end, unused] = std::mismatch(ids.begin(), ids.end(), prompt.begin(), prompt.end());
  // The last token runs again in any case: its logits are not kept.
  return std::min({static_cast<std::int64_t>(end - ids.begin()), untouched, count_of(prompt) - 1});
}

void Generator::State::prepare(std::int64_t cached, std::int64_t capacity) {
  if (!sequence) {
    SequenceOptions options = cache;
    options.capacity = std::max(options.capacity, rounded_capacity(capacity));
    sequence.emplace(decoder.sequence(options));
  }
  sequence->truncate(cached);
  if (cached == 0) longest = 0;
  untouched = cached;
  if (sequence->capacity() < capacity) sequence = sequence->fork(rounded_capacity(capacity));
}

std::span<const float> Generator::State::run(std::span<const std::int64_t> ids, LogitsOf logits) {
  const Step step{&*sequence, ids};
  decoder.forward({&step, 1}, {.logits = logits}, forward);
  longest = std::max(longest, count_of(sequence->ids()));
  return forward.logits;
}

std::span<const float> Generator::State::run_prompt(std::span<const std::int64_t> rest,
                                                    std::int64_t chunk) {
  const std::int64_t ranks = cache.share == nullptr ? 1 : cache.share->ranks();
  const auto size = static_cast<std::size_t>(chunk * ranks);
  for (; rest.size() > size; rest = rest.subspan(size)) (void)run(rest.first(size), LogitsOf::none);
  return run(rest, LogitsOf::last_token);
}

Generator::Generator(Decoder& decoder, SequenceOptions cache)
    : state_(std::make_shared<State>(State{decoder, std::move(cache), std::nullopt, 0, 0, 0, {}})) {
}
Generator::~Generator() = default;

std::span<const std::int64_t> Generator::cached_ids() const noexcept {
  if (!state_->sequence) return {};
  return state_->sequence->ids();
}

struct Generation::State {
  std::shared_ptr<Generator::State> generator;
  GenerateOptions options;
  Sampler sampler;
  std::int64_t context = 0;
  std::int64_t answer = 0;         // which of the generator's answers this is
  std::vector<std::int64_t> seen;  // the prompt, then the answer
  GenerateResult result;
  bool begun = false, over = false;

  [[nodiscard]] std::span<const float> begin();
  [[nodiscard]] std::span<const float> go_on();
};

std::span<const float> Generation::State::begin() {
  const Clock::time_point start = Clock::now();
  const std::span<const std::int64_t> prompt = seen;
  result.cached_tokens = generator->reusable(prompt);
  generator->prepare(result.cached_tokens,
                     std::min(context, result.prompt_tokens + options.tokens));
  const std::span<const float> logits = generator->run_prompt(
      prompt.subspan(static_cast<std::size_t>(result.cached_tokens)), options.chunk);
  generator->untouched = result.prompt_tokens;
  begun = true;
  result.prompt_seconds = seconds_since(start);
  return logits;
}

// Runs the last token that was returned.
std::span<const float> Generation::State::go_on() {
  const std::int64_t filled = count_of(generator->sequence->ids());
  if (filled >= context) {
    generator->sequence->shift(options.keep, (filled - options.keep) / 2);
    generator->untouched = std::min(generator->untouched, options.keep);
    ++result.shifts;
  }
  const std::span<const float> logits =
      generator->run(std::span(seen).last(1), LogitsOf::last_token);
  if (result.shifts == 0) ++generator->untouched;
  return logits;
}

Generation::Generation(std::unique_ptr<State> state) : state_(std::move(state)) {}
Generation::~Generation() = default;
Generation::Generation(Generation&&) noexcept = default;
Generation& Generation::operator=(Generation&&) noexcept = default;

std::optional<std::int64_t> Generation::next() {
  State& state = *state_;
  if (state.over || count_of(state.result.ids) == state.options.tokens) return std::nullopt;
  state.over = true;  // if one of the following throws
  if (state.answer != state.generator->answers)
    refuse("generate: the generator has started another answer, which ended this one");
  std::span<const float> logits;
  if (!state.begun) logits = state.begin();
  const Clock::time_point start = Clock::now();
  if (!state.result.ids.empty()) logits = state.go_on();
  const std::int64_t id = state.sampler.next(logits, state.seen);
  state.result.decode_seconds += seconds_since(start);
  if (stops(state.options, id)) {
    state.result.reason = StopReason::stop_token;
    return std::nullopt;
  }
  state.result.ids.push_back(id);
  state.seen.push_back(id);
  state.over = false;
  return id;
}

void Generation::cancel() noexcept {
  if (!state_->over) state_->result.reason = StopReason::cancelled;
  state_->over = true;
}

const GenerateResult& Generation::result() const noexcept { return state_->result; }

Generation Generator::start(std::span<const std::int64_t> prompt, const GenerateOptions& options) {
  const std::int64_t context = checked_context(prompt, options, state_->decoder.facts());
  auto state =
      std::make_unique<Generation::State>(Generation::State{.generator = state_,
                                                            .options = options,
                                                            .sampler = Sampler(options.sampler),
                                                            .context = context,
                                                            .answer = state_->answers + 1,
                                                            .seen = {prompt.begin(), prompt.end()},
                                                            .result = {},
                                                            .over = options.tokens == 0});
  state->result.prompt_tokens = count_of(prompt);
  // Capacity for an answer that fills the context, so that its tokens allocate nothing.
  constexpr std::int64_t kMostRoom = 65536;
  const auto room = static_cast<std::size_t>(std::min({options.tokens, context, kMostRoom}));
  state->seen.reserve(prompt.size() + room);
  state->result.ids.reserve(room);
  ++state_->answers;
  return Generation(std::move(state));
}

GenerateResult Generator::generate(std::span<const std::int64_t> prompt,
                                   const GenerateOptions& options,
                                   const std::function<bool(std::int64_t)>& on_token) {
  Generation answer = start(prompt, options);
  while (const std::optional<std::int64_t> id = answer.next()) {
    if (on_token && !on_token(*id)) answer.cancel();
  }
  return answer.result();
}

namespace {

struct BatchRow {
  std::span<const std::int64_t> prompt;
  Sequence sequence;
  Sampler sampler;
  std::vector<std::int64_t> seen;
};

// Memory that the calls of a batch reuse.
struct BatchMemory {
  std::vector<Step> steps;
  ForwardResult forward;
};

// All prompts, right-aligned in pieces of at most `chunk` tokens in all, so that every row runs
// its last token in the last call, as in a left-padded batch.
void run_prompts(Decoder& decoder, std::vector<BatchRow>& rows, std::int64_t chunk,
                 BatchMemory& memory) {
  std::int64_t longest = 0;
  for (const BatchRow& row : rows) longest = std::max(longest, count_of(row.prompt));
  const std::int64_t columns =
      std::max<std::int64_t>(1, chunk / static_cast<std::int64_t>(rows.size()));
  for (std::int64_t left = longest; left > 0;) {
    // The columns [longest - left, longest - after) of the padded batch.
    const std::int64_t after = (left - 1) / columns * columns;
    memory.steps.clear();
    for (BatchRow& row : rows) {
      const std::int64_t length = count_of(row.prompt);
      const std::int64_t from = std::max<std::int64_t>(0, length - left);
      if (length - after <= from) continue;
      memory.steps.push_back(
          {&row.sequence, row.prompt.subspan(static_cast<std::size_t>(from),
                                             static_cast<std::size_t>(length - after - from))});
    }
    decoder.forward(memory.steps, {.logits = after == 0 ? LogitsOf::last_token : LogitsOf::none},
                    memory.forward);
    left = after;
  }
}

// Samples the next token of a row from its logits; true when the row continues.
[[nodiscard]] bool take_token(BatchRow& row, std::span<const float> logits,
                              const GenerateOptions& options, GenerateResult& result) {
  const std::int64_t id = row.sampler.next(logits, row.seen);
  if (stops(options, id)) {
    result.reason = StopReason::stop_token;
    return false;
  }
  result.ids.push_back(id);
  row.seen.push_back(id);
  return count_of(result.ids) < options.tokens;
}

}  // namespace

std::vector<GenerateResult> generate_batch(Decoder& decoder,
                                           const std::vector<std::vector<std::int64_t>>& prompts,
                                           const GenerateOptions& options) {
  if (options.when_full != WindowFull::refuse)
    refuse("generate: when_full must be refuse for a batch, got shift");
  const Sampler sampler(options.sampler);
  for (const auto& prompt : prompts) (void)checked_context(prompt, options, decoder.facts());
  std::vector<GenerateResult> results(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) results[i].prompt_tokens = count_of(prompts[i]);
  if (prompts.empty() || options.tokens == 0) return results;

  const Clock::time_point start = Clock::now();
  std::vector<BatchRow> rows;
  rows.reserve(prompts.size());
  for (const auto& prompt : prompts) {
    const SequenceOptions room{.capacity = rounded_capacity(count_of(prompt) + options.tokens)};
    rows.push_back({prompt, decoder.sequence(room), sampler, prompt});
  }
  BatchMemory memory;
  run_prompts(decoder, rows, options.chunk, memory);
  const double prompt_seconds = seconds_since(start);
  const Clock::time_point decode_start = Clock::now();

  const auto width = static_cast<std::size_t>(decoder.facts().vocabulary);
  std::vector<std::size_t> running(rows.size());
  std::iota(running.begin(), running.end(), std::size_t{0});
  std::vector<std::size_t> going;
  for (;;) {
    going.clear();
    for (std::size_t i = 0; i < running.size(); ++i) {
      const std::size_t row = running[i];
      if (take_token(rows[row], std::span(memory.forward.logits).subspan(i * width, width), options,
                     results[row]))
        going.push_back(row);
    }
    std::swap(running, going);
    if (running.empty()) break;
    memory.steps.clear();
    for (const std::size_t row : running)
      memory.steps.push_back({&rows[row].sequence, std::span(rows[row].seen).last(1)});
    decoder.forward(memory.steps, {.logits = LogitsOf::last_token}, memory.forward);
  }
  const double decode_seconds = seconds_since(decode_start);
  for (GenerateResult& result : results) {
    result.prompt_seconds = prompt_seconds;
    result.decode_seconds = decode_seconds;
  }
  return results;
}

}  // namespace phasor::models
