#include <algorithm>
#include <utility>

#include "parallel/attention/agreement.hpp"
#include "parallel/heads/heads_state.hpp"
#include "phasor/core/error.hpp"
#include "phasor/parallel/attention.hpp"

namespace phasor::parallel {
namespace {

using attention::AttentionForward;
using attention::AttentionGradients;
using attention::AttentionOptions;
using attention::AttentionPasses;
using attention::AttentionSizes;
using core::ConstHeadsView;
using core::HeadsView;
using encodings::ScoreTerms;

// One AttentionPlan, with the lists that it would only view.
class WholeSequence final : public GatheredAttention {
 public:
  WholeSequence(const ScoreTerms& terms, const AttentionSizes& sizes, AttentionOptions options,
                AttentionPasses passes)
      : key_padding_(options.key_padding.begin(), options.key_padding.end()),
        query_segments_(options.query_segments.begin(), options.query_segments.end()),
        key_segments_(options.key_segments.begin(), options.key_segments.end()),
        plan_(terms, sizes, with_lists(std::move(options)), passes) {}

  void run(const ConstHeadsView& q, const ConstHeadsView& k, const ConstHeadsView& v,
           const HeadsView& out, float* log_sum_exp, double* wide_log_sum_exp) override {
    attention::AttentionExtras extras;
    extras.log_sum_exp = log_sum_exp;
    extras.wide_log_sum_exp = wide_log_sum_exp;
    plan_.run(q, k, v, out, extras);
  }
  void run_backward(const ConstHeadsView& q, const ConstHeadsView& k, const ConstHeadsView& v,
                    const AttentionForward& forward, const AttentionGradients& gradients) override {
    plan_.run_backward(q, k, v, forward, gradients);
  }
  void update_tables() override { plan_.update_tables(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return plan_.bytes(); }

 private:
  AttentionOptions with_lists(AttentionOptions options) const {
    options.key_padding = key_padding_;
    options.query_segments = query_segments_;
    options.key_segments = key_segments_;
    return options;
  }
  std::vector<std::uint8_t> key_padding_;
  std::vector<std::int32_t> query_segments_, key_segments_;
  attention::AttentionPlan plan_;
};

class RingOfColumn final : public GatheredAttention {
 public:
  explicit RingOfColumn(RingPlan plan) : plan_(std::move(plan)) {}
  void run(const ConstHeadsView& q, const ConstHeadsView& k, const ConstHeadsView& v,
           const HeadsView& out, float* log_sum_exp, double* wide_log_sum_exp) override {
    plan_.run(q, k, v, out, log_sum_exp, wide_log_sum_exp);
  }
  void run_backward(const ConstHeadsView& q, const ConstHeadsView& k, const ConstHeadsView& v,
                    const AttentionForward& forward, const AttentionGradients& gradients) override {
    plan_.run_backward(q, k, v, forward, gradients);
  }
  void update_tables() override { plan_.update_tables(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return plan_.bytes(); }
  [[nodiscard]] std::int64_t bytes_sent() const noexcept override { return plan_.bytes_sent(); }

 private:
  RingPlan plan_;
};

// What RingPlan refuses and options_text() does not say.
std::string more_options_text(const AttentionOptions& options) {
  std::string text =
      message("mask of kind ", static_cast<int>(options.mask.kind), " over ", options.mask.keys,
              " keys, query_offset ",
              options.query_offset ? message(*options.query_offset) : "none", ", key_lengths");
  for (const std::int64_t length : options.key_lengths) text += message(" ", length);
  return text;
}

// The rows that the ranks of a row have in the tokens of its ring index: contiguous parts.
TokenRows parts_of(std::int64_t tokens, int ranks) {
  return token_rows(Shards(TokenOrder::contiguous, tokens, ranks));
}

}  // namespace

HeadsPlan::HeadsPlan(Communicator& ranks, ScoreTerms terms, const AttentionSizes& whole,
                     const AttentionOptions& options, const ParallelOptions& parallel,
                     AttentionPasses passes) {
  on_every_rank(ranks, [&] {
    check_heads(whole, parallel, ranks.size());
    check_ids(whole, options);
  });
  ranks.agree("the sizes of attention", sizes_text(whole));
  ranks.agree("the options of attention",
              options_text(options, whole, parallel, passes) + ", " + more_options_text(options));
  ranks.agree("the terms of attention", terms_text(terms));
  on_every_rank(ranks, [&] {
    const HeadRange range = heads_of(whole.heads, ranks.size(), ranks.rank());
    auto attention = std::make_unique<WholeSequence>(terms_of_heads(std::move(terms), range),
                                                     sizes_of_heads(whole, ranks.size()),
                                                     options_of_heads(options, range), passes);
    auto queries = std::make_unique<Shards>(parallel.order, whole.queries, ranks.size());
    auto keys = std::make_unique<Shards>(parallel.order, whole.keys, ranks.size());
    state_ = std::make_unique<HeadsState>(ranks, whole, token_rows(*queries), token_rows(*keys),
                                          parallel.wire, passes, std::move(attention));
    state_->query_shards = std::move(queries);
    state_->key_shards = std::move(keys);
  });
}
HeadsPlan::~HeadsPlan() = default;
HeadsPlan::HeadsPlan(HeadsPlan&&) noexcept = default;
HeadsPlan& HeadsPlan::operator=(HeadsPlan&&) noexcept = default;

void HeadsPlan::run(ConstHeadsView q, ConstHeadsView k, ConstHeadsView v, HeadsView out,
                    float* log_sum_exp, double* wide_log_sum_exp) {
  state_->run(q, k, v, out, log_sum_exp, wide_log_sum_exp);
}
void HeadsPlan::run_backward(ConstHeadsView q, ConstHeadsView k, ConstHeadsView v,
                             const AttentionForward& forward, const AttentionGradients& gradients) {
  state_->run_backward(q, k, v, forward, gradients);
}
void HeadsPlan::update_tables() { state_->attention->update_tables(); }
const Shards& HeadsPlan::queries() const noexcept { return *state_->query_shards; }
const Shards& HeadsPlan::keys() const noexcept { return *state_->key_shards; }
std::int64_t HeadsPlan::bytes_sent() const noexcept { return state_->bytes_sent(); }
std::size_t HeadsPlan::bytes() const noexcept { return state_->bytes(); }
std::size_t HeadsPlan::exchange_bytes() const noexcept { return state_->exchange_bytes(); }

std::vector<std::int64_t> grid_tokens(TokenOrder order, std::int64_t tokens, const GridSize& grid,
                                      int rank) {
  const std::vector<std::int64_t> row =
      Shards(order, tokens, grid.ring).tokens_of(rank / grid.heads);
  const Shards parts(TokenOrder::contiguous, static_cast<std::int64_t>(row.size()), grid.heads);
  std::vector<std::int64_t> own;
  for (const std::int64_t at : parts.tokens_of(rank % grid.heads)) {
    own.push_back(row[static_cast<std::size_t>(at)]);
  }
  return own;
}

GridPlan::GridPlan(Communicator& ranks, const GridSize& grid, ScoreTerms terms,
                   const AttentionSizes& whole, const AttentionOptions& options,
                   const ParallelOptions& parallel, AttentionPasses passes)
    : grid_(grid) {
  on_every_rank(ranks, [&] {
    if (grid.ring < 1 || grid.heads < 1 || grid.ring * grid.heads != ranks.size()) {
      refuse(message("attention over a grid: ring x heads must be the ", ranks.size(),
                     " ranks, got ", grid.ring, " x ", grid.heads));
    }
    check_heads(whole, parallel, grid.heads);
    check_ids(whole, options);
  });
  ranks.agree("the grid of ranks", message(grid.ring, " x ", grid.heads));
  ranks.agree("the sizes of attention", sizes_text(whole));
  ranks.agree("the options of attention", options_text(options, whole, parallel, passes));
  ranks.agree("the terms of attention", terms_text(terms));
  const int row = ranks.rank() / grid.heads, column = ranks.rank() % grid.heads;
  row_ = ranks.split(row, column);
  column_ = ranks.split(column, row);
  const HeadRange range = heads_of(whole.heads, grid.heads, column);
  RingPlan ring(*column_, terms_of_heads(std::move(terms), range),
                sizes_of_heads(whole, grid.heads), options, parallel, passes);
  const std::int64_t queries = ring.queries().count(row), keys = ring.keys().count(row);
  on_every_rank(ranks, [&] {
    state_ = std::make_unique<HeadsState>(*row_, whole, parts_of(queries, grid.heads),
                                          parts_of(keys, grid.heads), parallel.wire, passes,
                                          std::make_unique<RingOfColumn>(std::move(ring)));
  });
}
GridPlan::~GridPlan() = default;
GridPlan::GridPlan(GridPlan&&) noexcept = default;
GridPlan& GridPlan::operator=(GridPlan&&) noexcept = default;

void GridPlan::run(ConstHeadsView q, ConstHeadsView k, ConstHeadsView v, HeadsView out,
                   float* log_sum_exp, double* wide_log_sum_exp) {
  state_->run(q, k, v, out, log_sum_exp, wide_log_sum_exp);
}
void GridPlan::run_backward(ConstHeadsView q, ConstHeadsView k, ConstHeadsView v,
                            const AttentionForward& forward, const AttentionGradients& gradients) {
  state_->run_backward(q, k, v, forward, gradients);
}
void GridPlan::update_tables() { state_->attention->update_tables(); }
std::int64_t GridPlan::bytes_sent() const noexcept { return state_->bytes_sent(); }
std::size_t GridPlan::bytes() const noexcept { return state_->bytes(); }
std::size_t GridPlan::exchange_bytes() const noexcept { return state_->exchange_bytes(); }

}  // namespace phasor::parallel
