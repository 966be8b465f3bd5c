#include "phasor/parallel/linear.hpp"

#include <algorithm>
#include <vector>

#include "parallel/attention/agreement.hpp"
#include "parallel/linear/sums_exchange.hpp"
#include "phasor/attention/internal/linear_part.hpp"
#include "phasor/core/error.hpp"

namespace phasor::parallel {
namespace {

using attention::AttentionPasses;
using attention::Causality;
using attention::LinearOptions;
using attention::LinearPart;
using attention::LinearSizes;
using attention::LinearUse;
using attention::PartSums;
using attention::SumsOf;
using core::ConstHeadsView;
using core::HeadsView;

// What all ranks must give alike.
std::string agreed_text(const std::optional<core::Rotary>& rotary, const LinearSizes& whole,
                        const LinearOptions& options, AttentionPasses passes) {
  const attention::AttentionSizes sizes{whole.batch,     whole.queries,   whole.keys,
                                        whole.heads,     whole.key_heads, whole.head_dim,
                                        whole.value_dim, whole.dtype};
  encodings::ScoreTerms terms;
  terms.rotation = rotary;
  const attention::AttentionOptions common{.causality = options.causality,
                                           .key_padding = options.key_padding,
                                           .query_positions = options.query_positions,
                                           .key_positions = options.key_positions};
  return message(sizes_text(sizes), ", ", name_of(options.features), ", feature_count ",
                 options.feature_count, ", seed ", options.seed, ", rotates ",
                 name_of(options.rotates), ", ", options_text(common, sizes, {}, passes), ", ",
                 terms_text(terms));
}

void check_linear(const LinearSizes& whole, const LinearOptions& options) {
  if (options.causality == Causality::bottom_right && whole.queries != whole.keys) {
    refuse(
        ErrorCode::shape_mismatch,
        message("linear attention over ranks: causal attention needs as many queries as keys, got ",
                whole.queries, " and ", whole.keys));
  }
  const auto padding = static_cast<std::int64_t>(options.key_padding.size());
  if (padding != 0 && padding != whole.batch * whole.keys) {
    refuse(ErrorCode::shape_mismatch,
           message("linear attention over ranks: key_padding must be [batch ", whole.batch,
                   ", keys ", whole.keys, "], got ", padding, " elements"));
  }
  const auto check_positions = [&](const std::optional<core::Positions>& given,
                                   std::int64_t tokens) {
    if (given) static_cast<void>(core::check_positions(*given, given->axes, whole.batch, tokens));
  };
  check_positions(options.query_positions, whole.queries);
  check_positions(options.key_positions, whole.keys);
}

// Positions of tokens [first, first + count) of those of all `tokens`.
core::Positions part_of(const core::Positions& whole, int axes, std::int64_t batch,
                        std::int64_t tokens, std::int64_t first, std::int64_t count) {
  static_cast<void>(core::check_positions(whole, axes, batch, tokens));
  if (whole.kind == core::Positions::Kind::offset || count == 0) {
    return core::positions_from(whole.offset + first);
  }
  const bool per_row = whole.kind == core::Positions::Kind::packed || whole.batch != 0;
  const std::int64_t rows = per_row ? batch : 1;
  std::vector<double> numbers;
  numbers.reserve(static_cast<std::size_t>(axes * rows * count));
  for (int axis = 0; axis < axes; ++axis) {
    for (std::int64_t b = 0; b < rows; ++b) {
      for (std::int64_t t = first; t < first + count; ++t) numbers.push_back(whole.at(axis, b, t));
    }
  }
  const std::int64_t shape[] = {axes, rows, count};
  core::Positions part = core::positions_of_shape(std::move(numbers), shape);
  if (!per_row) part.batch = 0;
  return part;
}

}  // namespace

struct ParallelLinearPlan::State {
  State(Communicator& communicator, const std::optional<core::Rotary>& rotary,
        const LinearSizes& whole, const LinearOptions& given, AttentionPasses passes)
      : ranks(communicator),
        queries(TokenOrder::contiguous, whole.queries, ranks.size()),
        keys(TokenOrder::contiguous, whole.keys, ranks.size()),
        causal(given.causality == Causality::bottom_right) {
    const int rank = ranks.rank();
    LinearSizes sizes = whole;
    sizes.queries = queries.count(rank);
    sizes.keys = keys.count(rank);
    const auto first = [&](const Shards& shards, std::int64_t count) {
      return count == 0 ? 0 : shards.token(rank, 0);
    };
    const std::int64_t first_query = first(queries, sizes.queries);
    const std::int64_t first_key = first(keys, sizes.keys);
    LinearOptions options = given;
    if (rotary) {
      const int axes = rotary->frequencies.axis_count();
      options.query_positions =
          part_of(given.query_positions.value_or(core::positions_from(whole.keys - whole.queries)),
                  axes, whole.batch, whole.queries, first_query, sizes.queries);
      options.key_positions = part_of(given.key_positions.value_or(core::positions_from(0)), axes,
                                      whole.batch, whole.keys, first_key, sizes.keys);
    }
    for (std::int64_t b = 0; b < whole.batch && !given.key_padding.empty(); ++b) {
      const auto from = given.key_padding.begin() + b * whole.keys + first_key;
      padding.insert(padding.end(), from, from + sizes.keys);
    }
    options.key_padding = padding;
    const bool trains = passes == AttentionPasses::forward_and_backward;
    part.emplace(rotary, sizes, options, trains ? LinearUse::training : LinearUse::forward);
    own_keys.emplace(part->sums(SumsOf::keys));
    key_sums.emplace(ranks, *own_keys, causal ? SumOver::before : SumOver::all);
    if (!trains) return;
    own_queries.emplace(part->sums(SumsOf::queries));
    query_sums.emplace(ranks, *own_queries, causal ? SumOver::after : SumOver::all);
  }

  Communicator& ranks;
  Shards queries, keys;
  bool causal;
  std::vector<std::uint8_t> padding;
  std::optional<LinearPart> part;
  std::optional<PartSums> own_keys, own_queries;
  std::optional<SumsExchange> key_sums, query_sums;
  std::int64_t sent = 0;

  // The sums over keys that enter this rank's part.
  const PartSums& entering_keys(const ConstHeadsView& k, const ConstHeadsView& v) {
    part->sum_keys(k, v, *own_keys);
    return key_sums->add(*own_keys);
  }
  template <class Work>
  void run(const Work& work) {
    const std::int64_t before = ranks.bytes_sent();
    ranks.guarded(work);
    sent += ranks.bytes_sent() - before;
  }
};

ParallelLinearPlan::ParallelLinearPlan(Communicator& ranks,
                                       const std::optional<core::Rotary>& rotary,
                                       const LinearSizes& whole, const LinearOptions& options,
                                       AttentionPasses passes) {
  on_every_rank(ranks, [&] { check_linear(whole, options); });
  ranks.agree("linear attention", agreed_text(rotary, whole, options, passes));
  on_every_rank(ranks,
                [&] { state_ = std::make_unique<State>(ranks, rotary, whole, options, passes); });
}
ParallelLinearPlan::~ParallelLinearPlan() = default;
ParallelLinearPlan::ParallelLinearPlan(ParallelLinearPlan&&) noexcept = default;
ParallelLinearPlan& ParallelLinearPlan::operator=(ParallelLinearPlan&&) noexcept = default;

void ParallelLinearPlan::run(const ConstHeadsView& q, const ConstHeadsView& k,
                             const ConstHeadsView& v, const HeadsView& out) {
  State& s = *state_;
  s.run([&] {
    s.part->check(q, k, v, out);
    s.part->attend(q, k, v, s.entering_keys(k, v), out);
  });
}

void ParallelLinearPlan::run_backward(const ConstHeadsView& q, const ConstHeadsView& k,
                                      const ConstHeadsView& v, const ConstHeadsView& d_out,
                                      const HeadsView& d_q, const HeadsView& d_k,
                                      const HeadsView& d_v) {
  State& s = *state_;
  s.run([&] {
    if (!s.query_sums) {
      refuse(
          "linear attention over ranks: backward needs a plan of forward_and_backward, got a "
          "plan of forward");
    }
    s.part->check_backward(q, k, v, d_out, d_q, d_k, d_v);
    s.part->query_gradients(q, k, v, d_out, s.entering_keys(k, v), d_q, *s.own_queries);
    s.part->key_gradients(q, k, v, d_out, s.query_sums->add(*s.own_queries), d_k, d_v);
  });
}

const Shards& ParallelLinearPlan::queries() const noexcept { return state_->queries; }
const Shards& ParallelLinearPlan::keys() const noexcept { return state_->keys; }
std::int64_t ParallelLinearPlan::bytes_sent() const noexcept { return state_->sent; }

std::int64_t ParallelLinearPlan::sum_bytes() const noexcept {
  const State& s = *state_;
  std::int64_t bytes = s.key_sums->bytes();
  for (const auto* sums : {&s.own_keys, &s.own_queries}) {
    if (*sums) bytes += static_cast<std::int64_t>((*sums)->numbers().size() * sizeof(double));
  }
  if (s.query_sums) bytes += s.query_sums->bytes();
  return bytes;
}

std::int64_t ParallelLinearPlan::bytes() const noexcept {
  return static_cast<std::int64_t>(state_->padding.size()) + state_->part->bytes() + sum_bytes();
}

}  // namespace phasor::parallel
