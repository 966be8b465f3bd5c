#include "phasor/models/internal/perplexity.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "models/decoder/scaling_for.hpp"
#include "models/generate/require_option.hpp"
#include "models/matrix/layer_ops.hpp"
#include "phasor/core/error.hpp"

namespace phasor::models {
namespace {

using EvalClock = std::chrono::steady_clock;

// Running mean and variance (Welford), in double.
class Mean {
 public:
  void add(double value) {
    ++count_;
    const double step = value - mean_;
    mean_ += step / static_cast<double>(count_);
    squares_ += step * (value - mean_);
  }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] double mean() const {
    return count_ > 0 ? mean_ : std::numeric_limits<double>::quiet_NaN();
  }
  [[nodiscard]] double standard_error() const {
    if (count_ < 2) return std::numeric_limits<double>::quiet_NaN();
    const auto count = static_cast<double>(count_);
    return std::sqrt(squares_ / (count - 1.0) / count);
  }

 private:
  std::int64_t count_ = 0;
  double mean_ = 0.0, squares_ = 0.0;
};

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
  Scorer(Decoder& decoder, std::span<const std::int64_t> ids, const PerplexityOptions& options)
      : decoder_(decoder),
        ids_(ids),
        options_(options),
        width_(static_cast<std::size_t>(decoder.facts().vocabulary)),
        sequence_(decoder.sequence(
            {.capacity = std::min(options.context, static_cast<std::int64_t>(ids.size())),
             .scaling = window_scaling(decoder, options)})) {
    // Never [window, vocabulary] at once: 16 MiB of logits, or one row if that is more.
    constexpr std::size_t kLogitBytes = std::size_t{16} << 20;
    const std::size_t rows = std::max<std::size_t>(1, kLogitBytes / (width_ * sizeof(float)));
    score_chunk_ = std::min(options.chunk, static_cast<std::int64_t>(rows));
  }

  // Calls `after` with the number of tokens of each piece.
  template <class After>
  void run(const Window& window, const After& after) {
    sequence_.truncate(0);
    for (std::int64_t at = window.begin; at < window.end;) {
      const bool scores = at >= window.scored;
      const std::int64_t end = scores ? std::min(at + score_chunk_, window.end)
                                      : std::min(at + options_.chunk, window.scored);
      const Step step{&sequence_, ids_.subspan(static_cast<std::size_t>(at),
                                               static_cast<std::size_t>(end - at))};
      const ForwardResult result =
          decoder_.forward({&step, 1}, {.logits = scores ? LogitsOf::every_token : LogitsOf::none});
      if (scores) score(result.logits, at, end, window);
      after(end - at);
      at = end;
    }
  }

  Mean all, last_quarter;

 private:
  void score(const std::vector<float>& logits, std::int64_t at, std::int64_t end,
             const Window& window) {
    for (std::int64_t input = at; input < end; ++input) {
      const std::span<const float> row =
          std::span(logits).subspan(static_cast<std::size_t>(input - at) * width_, width_);
      const auto target = static_cast<std::size_t>(ids_[static_cast<std::size_t>(input + 1)]);
      const double nats = log_sum_exp(row) - static_cast<double>(row[target]);
      all.add(nats);
      if (4 * (input - window.begin) >= 3 * options_.context) last_quarter.add(nats);
    }
  }

  Decoder& decoder_;
  std::span<const std::int64_t> ids_;
  const PerplexityOptions& options_;
  std::size_t width_;
  Sequence sequence_;
  std::int64_t score_chunk_ = 1;
};

}  // namespace

Perplexity perplexity(Decoder& decoder, std::span<const std::int64_t> ids,
                      const PerplexityOptions& options,
                      const std::function<bool(std::int64_t done, std::int64_t all)>& progress) {
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
  std::int64_t done = 0, in_all = 0;
  for (const Window& window : windows) in_all += window.end - window.begin;

  Scorer scorer(decoder, ids, options);
  for (const Window& window : windows) {
    scorer.run(window, [&](std::int64_t tokens) {
      done += tokens;
      if (progress && !progress(done, in_all))
        refuse(ErrorCode::cancelled, message("perplexity: stopped by `progress` after ", done,
                                             " of ", in_all, " tokens"));
    });
  }

  Perplexity result;
  result.context = options.context;
  result.windows = static_cast<std::int64_t>(windows.size());
  result.scored = scorer.all.count();
  result.nats = scorer.all.mean();
  result.standard_error = scorer.all.standard_error();
  result.perplexity = std::exp(result.nats);
  result.last_quarter_nats = scorer.last_quarter.mean();
  result.seconds = std::chrono::duration<double>(EvalClock::now() - start).count();
  return result;
}

}  // namespace phasor::models
