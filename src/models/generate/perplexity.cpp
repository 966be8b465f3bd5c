#include "phasor/models/internal/perplexity.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "models/decoder/scaling_for.hpp"
#include "models/generate/require_option.hpp"
#include "phasor/core/error.hpp"
#include "phasor/models/context_share.hpp"
#include "phasor/models/internal/layer_ops.hpp"

namespace phasor::models {
namespace {

using EvalClock = std::chrono::steady_clock;

// Inputs [begin, end) of the text; those from `scored` on predict the next token.
struct Window {
  std::int64_t begin = 0, scored = 0, end = 0;
};

[[nodiscard]] std::vector<Window> windows_of(std::int64_t inputs, std::int64_t context,
                                             std::int64_t stride) {
  std::vector<Window> windows;
  std::int64_t begin = 0, scored = 0;
  for (; scored < inputs; begin += stride) {
    const std::int64_t end = std::min(begin + context, inputs);
    windows.push_back({begin, scored, end});
    scored = end;
  }
  return windows;
}

// The scaling with the frequencies of a whole window of `context`; nullopt: the config's own, which
// does not depend on it.
[[nodiscard]] std::optional<encodings::RopeScaling> window_scaling(
    const Decoder& decoder, const PerplexityOptions& options) {
  // The sequence refuses scalings that read the context: moved positions would change it.
  if (options.first_position != 0 || options.angles != core::AngleMode::exact)
    return options.scaling;
  if (options.scaling) return pinned(*options.scaling, options.context);
  std::optional<encodings::RopeScaling> own;
  bool one_kind = true, reads_context = false;
  for (const config::LayerGroup& group : decoder.config().groups) {
    if (!group.rope) continue;
    const encodings::RopeScaling& scaling = group.rope->scaling;
    one_kind = one_kind && (!own || *own == scaling);
    reads_context = reads_context || encodings::depends_on_context(scaling);
    own = scaling;
  }
  if (!reads_context) return std::nullopt;
  if (!one_kind)
    refuse(ErrorCode::unsupported,
           "perplexity: layers with different scalings that depend on the context are not "
           "supported");
  return pinned(*own, options.context);
}

class Scorer {
 public:
  Scorer(Decoder& decoder, std::span<const std::int64_t> ids, const PerplexityOptions& options,
         const PerplexityState& done)
      : done_(done),
        decoder_(decoder),
        ids_(ids),
        options_(options),
        width_(static_cast<std::size_t>(decoder.facts().vocabulary)),
        sequence_(decoder.sequence(
            {.capacity = std::min(options.context, static_cast<std::int64_t>(ids.size())),
             .scaling = window_scaling(decoder, options),
             .first_position = options.first_position,
             .angles = options.angles,
             .share = options.share})),
        chunk_(options.chunk) {
    // Never [window, vocabulary] at once: 16 MiB of logits, or one row if that is more.
    constexpr std::size_t kLogitBytes = std::size_t{16} << 20;
    const std::size_t rows = std::max<std::size_t>(1, kLogitBytes / (width_ * sizeof(float)));
    score_chunk_ = std::min(options.chunk, static_cast<std::int64_t>(rows));
    if (options.share != nullptr) {
      chunk_ *= options.share->ranks();
      score_chunk_ *= options.share->ranks();
    }
  }

  // Calls `after` with the number of tokens of each piece, and with the last one counts the window.
  template <class After>
  void run(const Window& window, const After& after) {
    sequence_.truncate(0);
    all_ = done_.all;
    last_quarter_ = done_.last_quarter;
    for (std::int64_t at = window.begin; at < window.end;) {
      const bool scores = at >= window.scored;
      const std::int64_t end =
          scores ? std::min(at + score_chunk_, window.end) : std::min(at + chunk_, window.scored);
      const Step step{&sequence_, ids_.subspan(static_cast<std::size_t>(at),
                                               static_cast<std::size_t>(end - at))};
      const ForwardResult result = decoder_.forward(
          {&step, 1},
          {.logits = scores ? LogitsOf::every_token : LogitsOf::none, .rows = RowsOn::own_rank});
      if (scores) score(result, at, end, window);
      if (end == window.end) {
        ++done_.windows;
        done_.all = all_;
        done_.last_quarter = last_quarter_;
      }
      after(end - at);
      at = end;
    }
  }
  [[nodiscard]] const PerplexityState& done() const { return done_; }

 private:
  void score(const ForwardResult& result, std::int64_t at, std::int64_t end, const Window& window) {
    const std::int64_t first = result.rows.empty() ? 0 : result.rows.front().first;
    nats_.clear();
    for (std::size_t i = 0; i * width_ < result.logits.size(); ++i) {
      const std::span<const float> row = std::span(result.logits).subspan(i * width_, width_);
      const std::size_t input = static_cast<std::size_t>(at + first) + i;
      const auto target = static_cast<std::size_t>(ids_[input + 1]);
      nats_.push_back(log_sum_exp(row) - static_cast<double>(row[target]));
    }
    if (options_.share != nullptr) gather_nats(static_cast<std::size_t>(end - at));
    for (std::int64_t input = at; input < end; ++input) {
      const double nats = nats_[static_cast<std::size_t>(input - at)];
      all_.add(nats);
      if (4 * (input - window.begin) >= 3 * options_.context) last_quarter_.add(nats);
    }
  }

  // Those of all ranks, which have their tokens in the order of the ranks.
  void gather_nats(std::size_t tokens) {
    ContextShare& share = *options_.share;
    const auto ranks = static_cast<std::size_t>(share.ranks());
    const auto own = static_cast<std::int64_t>(nats_.size() * sizeof(double));
    std::vector<std::int64_t> sizes(ranks);
    share.gather(std::as_bytes(std::span(&own, 1)),
                 std::vector<std::int64_t>(ranks, sizeof(std::int64_t)), ContextShare::kEveryRank,
                 std::as_writable_bytes(std::span(sizes)));
    const std::vector<double> mine = std::move(nats_);
    nats_.assign(tokens, 0.0);
    share.gather(std::as_bytes(std::span(mine)), sizes, ContextShare::kEveryRank,
                 std::as_writable_bytes(std::span(nats_)));
  }

  PerplexityState done_;            // whole windows
  RunningMean all_, last_quarter_;  // with the pieces of the window that runs
  Decoder& decoder_;
  std::span<const std::int64_t> ids_;
  const PerplexityOptions& options_;
  std::size_t width_;
  Sequence sequence_;
  std::int64_t chunk_ = 1, score_chunk_ = 1;
  std::vector<double> nats_;  // of a piece
};

}  // namespace

void RunningMean::add(double value) noexcept {
  ++count;
  const double step = value - mean;
  mean += step / static_cast<double>(count);
  squares += step * (value - mean);
}

double RunningMean::standard_error() const noexcept {
  if (count < 2) return std::numeric_limits<double>::quiet_NaN();
  const auto values = static_cast<double>(count);
  return std::sqrt(squares / (values - 1.0) / values);
}

Perplexity perplexity(Decoder& decoder, std::span<const std::int64_t> ids,
                      const PerplexityOptions& options,
                      const std::function<bool(std::int64_t done, std::int64_t all)>& progress,
                      PerplexityState* state) {
  require_option(options.context >= 2, "perplexity: context must be at least 2", options.context);
  const std::int64_t stride = options.stride == 0 ? options.context / 2 : options.stride;
  require_option(stride >= 1 && stride <= options.context,
                 message("perplexity: stride must be in [1, ", options.context, "], the context"),
                 stride);
  require_option(options.max_tokens >= 0, "perplexity: max_tokens must be at least 0",
                 options.max_tokens);
  require_option(options.chunk >= 1, "perplexity: chunk must be at least 1", options.chunk);
  if (options.max_tokens > 0 && static_cast<std::int64_t>(ids.size()) > options.max_tokens)
    ids = ids.first(static_cast<std::size_t>(options.max_tokens));
  require_option(ids.size() >= 2, "perplexity: the text must have at least 2 tokens", ids.size());
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= decoder.facts().vocabulary)
      refuse(ErrorCode::out_of_range, message("perplexity: token ids must be from 0 to ",
                                              decoder.facts().vocabulary - 1, ", got ", id));
  }

  const EvalClock::time_point start = EvalClock::now();
  const std::vector<Window> windows =
      windows_of(static_cast<std::int64_t>(ids.size()) - 1, options.context, stride);
  const PerplexityState before = state == nullptr ? PerplexityState{} : *state;
  require_option(before.windows >= 0 && before.windows <= static_cast<std::int64_t>(windows.size()),
                 message("perplexity: the state must have 0 to ", windows.size(), " windows"),
                 before.windows);
  const auto next = windows.begin() + before.windows;
  const auto tokens_of = [](auto first, auto last) {
    std::int64_t sum = 0;
    for (auto window = first; window != last; ++window) sum += window->end - window->begin;
    return sum;
  };
  std::int64_t done = tokens_of(windows.begin(), next);
  const std::int64_t in_all = tokens_of(windows.begin(), windows.end());

  Scorer scorer(decoder, ids, options, before);
  const auto seconds = [&] {
    return before.seconds + std::chrono::duration<double>(EvalClock::now() - start).count();
  };
  const auto tell = [&] {
    if (progress && !progress(done, in_all))
      refuse(ErrorCode::cancelled,
             message("perplexity: stopped by `progress` after ", done, " of ", in_all, " tokens"));
  };
  if (done > 0) tell();
  for (auto window = next; window != windows.end(); ++window) {
    scorer.run(*window, [&](std::int64_t tokens) {
      done += tokens;
      if (state != nullptr) {
        *state = scorer.done();
        state->seconds = seconds();
      }
      tell();
    });
  }

  const PerplexityState& ended = scorer.done();
  Perplexity result;
  result.context = options.context;
  result.windows = ended.windows;
  result.scored = ended.all.count;
  result.nats = ended.all.mean;
  result.standard_error = ended.all.standard_error();
  result.perplexity = std::exp(result.nats);
  result.last_quarter_nats = ended.last_quarter.count > 0
                                 ? ended.last_quarter.mean
                                 : std::numeric_limits<double>::quiet_NaN();
  result.seconds = seconds();
  return result;
}

}  // namespace phasor::models
