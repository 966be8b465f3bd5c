#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "parallel/attention/ring_state.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/core/internal/rotations.hpp"

namespace phasor::parallel {
namespace {

using core::ConstHeadsView;
using core::HeadsView;

// Tags of the messages of a step: keys and values.
constexpr int kKeysTag = 0;

constexpr const char* kWhat = "ring attention";

struct Progress {
  std::initializer_list<StepTransfers*> transfers;
  std::exception_ptr error;
};

bool make_progress(void* user) {
  Progress& progress = *static_cast<Progress*>(user);
  try {
    for (StepTransfers* const transfers : progress.transfers) transfers->poll();
    return false;
  } catch (...) {
    progress.error = std::current_exception();
    return true;
  }
}

// The weights of two partial results, of log-sum-exp a and b, in their sum; and its own log-sum-exp.
struct Merged {
  double first, second, log_sum;
};
Merged merged(double a, double b) noexcept {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  if (b == kNothing) return {1.0, 0.0, a};
  if (a == kNothing) return {0.0, 1.0, b};
  const double top = std::fmax(a, b);
  const double log_sum = top + std::log1p(std::exp(std::fmin(a, b) - top));
  // A NaN is in both weights: fmax and fmin ignore it.
  return {std::exp(a - log_sum), std::exp(b - log_sum), std::isnan(a + b) ? a + b : log_sum};
}

// Adds the partial output of a piece to the sums of its queries.
template <class Number>
void merge_piece(const Piece& piece, const ConstHeadsView& partial, const Number* partial_logs,
                 const HeadsView& sums, Number* logs) {
  for (std::int64_t b = 0; b < partial.batch; ++b) {
    for (std::int64_t h = 0; h < partial.heads; ++h) {
      const std::int64_t line = b * partial.heads + h;
      for (std::int64_t i = 0; i < piece.queries; ++i) {
        const double log = static_cast<double>(partial_logs[line * piece.queries + i]);
        if (log == -std::numeric_limits<double>::infinity()) continue;
        Number& sum_log = logs[line * sums.tokens + piece.first_query + i];
        const Merged weights = merged(static_cast<double>(sum_log), log);
        const auto* const from = static_cast<const Number*>(partial.data) +
                                 b * partial.batch_stride + i * partial.token_stride +
                                 h * partial.head_stride;
        auto* const to = static_cast<Number*>(sums.data) + b * sums.batch_stride +
                         (piece.first_query + i) * sums.token_stride + h * sums.head_stride;
        const auto first = static_cast<Number>(weights.first);
        const auto second = static_cast<Number>(weights.second);
        if (weights.first == 0.0 && weights.second == 1.0) {
          std::copy_n(from, partial.head_dim, to);
        } else {
          for (std::int64_t e = 0; e < partial.head_dim; ++e)
            to[e] = first * to[e] + second * from[e];
        }
        sum_log = static_cast<Number>(weights.log_sum);
      }
    }
  }
}

template <class Number>
attention::AttentionExtras extras_for(Number* log_sums) {
  attention::AttentionExtras extras;
  if constexpr (std::is_same_v<Number, double>) {
    extras.wide_log_sum_exp = log_sums;
  } else {
    extras.log_sum_exp = log_sums;
  }
  return extras;
}

}  // namespace

void StepTransfers::poll() {
  for (Transfer& transfer : transfers_) transfer.poll();
}

void StepTransfers::wait() {
  for (Transfer& transfer : transfers_) transfer.wait(kWhat);
  transfers_.clear();
}

bool StepTransfers::done() const noexcept {
  return std::all_of(transfers_.begin(), transfers_.end(),
                     [](const Transfer& transfer) { return transfer.done(); });
}

void compute_beside(std::initializer_list<StepTransfers*> transfers,
                    const std::function<void()>& work) {
  // The scope below hides that of the caller.
  core::throw_if_cancelled();
  if (std::ranges::all_of(transfers, &StepTransfers::done)) return work();
  Progress progress{transfers, nullptr};
  try {
    const core::CancellationScope scope(
        nullptr,
        {.stop = make_progress, .user = &progress, .interval = std::chrono::milliseconds(1)});
    work();
  } catch (const Error&) {
    if (progress.error) std::rethrow_exception(progress.error);
    throw;
  }
}

void RingPlan::State::check_input(const char* name, const ConstHeadsView& view, std::int64_t tokens,
                                  std::int64_t heads, std::int64_t dim) const {
  if (view.batch != whole.batch || view.tokens != tokens || view.heads != heads ||
      view.head_dim != dim) {
    const std::int64_t wanted[] = {whole.batch, tokens, heads, dim};
    refuse(ErrorCode::shape_mismatch,
           message("ring attention: ", name, " of rank ", rank, " must be ",
                   core::shape_text(wanted), ", got ", core::shape_text(view)));
  }
  if ((view.dtype == core::DType::f64) != (arithmetic() == core::DType::f64)) {
    refuse(ErrorCode::unsupported,
           message("ring attention: ", name, " is ", core::name_of(view.dtype),
                   ", the plan computes in ", core::name_of(arithmetic())));
  }
  if (view.data == nullptr && view.batch * view.tokens > 0)
    refuse(message("ring attention: ", name, " of shape ", core::shape_text(view),
                   " has no data (null)"));
}

void RingPlan::State::check_output(const char* name, const HeadsView& view, std::int64_t tokens,
                                   std::int64_t heads, std::int64_t dim,
                                   std::span<const ConstHeadsView> inputs) const {
  check_input(name, view, tokens, heads, dim);
  if (view.batch * view.tokens == 0) return;
  if (core::overlaps_itself(view))
    refuse(message("ring attention: the elements of ", name, " must be distinct, got strides [",
                   view.batch_stride, ", ", view.token_stride, ", ", view.head_stride, ", 1]"));
  for (const ConstHeadsView& input : inputs) {
    if (input.batch * input.tokens > 0 && core::overlap(view, input))
      refuse(message("ring attention: ", name, " of shape ", core::shape_text(view),
                     " overlaps an input"));
  }
}

void RingPlan::State::rotate(HeadsView view, core::Role role, core::Direction direction) const {
  if (view.batch * view.tokens == 0) return;
  const core::Rotation rotation{view, view, role};
  core::rotate(*rotary, role == core::Role::query ? query_positions : key_positions, {&rotation, 1},
               {.direction = direction,
                .angles = options.angles,
                .threads = options.threads,
                .isa = options.isa});
}

void RingPlan::State::fill_home(const ConstHeadsView& k, const ConstHeadsView& v) {
  if (rotary && options.keys == attention::KeyState::raw) {
    const HeadsView to = wire() == arithmetic()
                             ? home.keys()
                             : dense(wide_keys, keys, whole.key_heads, whole.head_dim);
    copy_heads(k, to);
    rotate(to, core::Role::key, core::Direction::forward);
    if (wire() != arithmetic()) copy_heads(to, home.keys());
  } else {
    copy_heads(k, home.keys());
  }
  copy_heads(v, home.values());
}

ConstHeadsView RingPlan::State::fill_queries(const ConstHeadsView& q) {
  if (!rotary) return q;
  const HeadsView rotated = dense(rotated_queries, queries, whole.heads, whole.head_dim);
  copy_heads(q, rotated);
  rotate(rotated, core::Role::query, core::Direction::forward);
  return rotated;
}

void RingPlan::State::send(std::span<const std::byte> bytes, int to, int tag,
                           StepTransfers& transfers) {
  if (bytes.empty()) return;
  transfers.add(ranks.exchange(bytes, to, {}, rank, tag));
  sent += static_cast<std::int64_t>(bytes.size());
}

void RingPlan::State::receive(std::span<std::byte> bytes, int from, int tag,
                              StepTransfers& transfers) {
  if (!bytes.empty()) transfers.add(ranks.exchange({}, rank, bytes, from, tag));
}

ShardBuffer& RingPlan::State::shard_buffer(int step) noexcept {
  return step == 0 ? home : incoming[static_cast<std::size_t>(step % 2)];
}

bool RingPlan::State::comes_home(int step) const noexcept {
  const int last = schedule.wrapped(rank + step - 1);
  return step > 1 && schedule.needs(last, rank) && schedule.gradient_target(last, rank) == rank;
}

// In the last step no shard is worked on: the buffer of its chain is free.
ShardBuffer& RingPlan::State::homecoming(int step) noexcept {
  return step == ranks.size() ? chains[static_cast<std::size_t>(step % 2)] : early_chain;
}

void RingPlan::State::start_keys(int step, StepTransfers& transfers) {
  const int shard = schedule.shard(rank, step);
  const int next = schedule.shard(rank, step + 1);
  if (schedule.needs(rank, next)) {
    ShardBuffer& buffer = shard_buffer(step + 1);
    buffer.set_tokens(layout.keys().count(next));
    receive(buffer.bytes(), schedule.source(rank, next), kKeysTag, transfers);
  }
  // On to the next rank; and from home to the rank after a gap.
  const int after = schedule.wrapped(rank + 1), far = schedule.wrapped(rank + step + 1);
  if (schedule.needs(after, shard) && schedule.source(after, shard) == rank)
    send(shard_buffer(step).bytes(), after, kKeysTag, transfers);
  if (step > 0 && schedule.needs(far, rank) && schedule.source(far, rank) == rank)
    send(home.bytes(), far, kKeysTag, transfers);
}

template <class Number>
void RingPlan::State::run(const ConstHeadsView& q, const ConstHeadsView& k, const ConstHeadsView& v,
                          const HeadsView& out, Number* log_sum_exp) {
  check_input("q", q, queries, whole.heads, whole.head_dim);
  check_input("k", k, keys, whole.key_heads, whole.head_dim);
  check_input("v", v, keys, whole.key_heads, whole.value_dim);
  const ConstHeadsView inputs[] = {q, k, v};
  check_output("out", out, queries, whole.heads, whole.value_dim, inputs);
  fill_home(k, v);
  const ConstHeadsView rows = fill_queries(q);
  const bool in_place = out.dtype == arithmetic();
  if (!in_place)
    sums.resize(static_cast<std::size_t>(whole.batch * queries * whole.heads * whole.value_dim) *
                sizeof(Number));
  const HeadsView total = in_place ? out : dense(sums, queries, whole.heads, whole.value_dim);
  clear_heads<Number>(total);
  auto* const logs = reinterpret_cast<Number*>(log_sums.data());
  std::fill_n(logs, whole.batch * whole.heads * queries, -std::numeric_limits<Number>::infinity());
  auto* const piece_logs = reinterpret_cast<Number*>(partial_log_sums.data());

  StepTransfers transfers;
  for (int step = 0; step < ranks.size(); ++step) {
    if (step + 1 < ranks.size()) start_keys(step, transfers);
    ShardBuffer& shard = shard_buffer(step);
    for (const PieceWork& w : work[static_cast<std::size_t>(schedule.shard(rank, step))]) {
      const Piece& piece = w.piece;
      const HeadsView own = dense(partial, piece.queries, whole.heads, whole.value_dim);
      compute_beside({&transfers}, [&] {
        plans[w.plan].run(rows_of_view(rows, piece.first_query, piece.queries),
                          rows_of_view(ConstHeadsView(shard.keys()), piece.first_key, piece.keys),
                          rows_of_view(ConstHeadsView(shard.values()), piece.first_key, piece.keys),
                          own, extras_for(piece_logs));
      });
      merge_piece<Number>(piece, own, piece_logs, total, logs);
    }
    transfers.wait();
  }
  if (!in_place) copy_heads(total, out);
  if (log_sum_exp != nullptr) std::copy_n(logs, whole.batch * whole.heads * queries, log_sum_exp);
}

void RingPlan::run(ConstHeadsView q, ConstHeadsView k, ConstHeadsView v, HeadsView out,
                   float* log_sum_exp, double* wide_log_sum_exp) {
  State& state = *state_;
  state.ranks.guarded([&] {
    if (state.arithmetic() == core::DType::f64) {
      if (log_sum_exp != nullptr)
        refuse("ring attention: f64 writes wide_log_sum_exp, got a log_sum_exp of f32");
      state.run<double>(q, k, v, out, wide_log_sum_exp);
    } else {
      if (wide_log_sum_exp != nullptr)
        refuse("ring attention: f32 writes log_sum_exp, got a wide_log_sum_exp of f64");
      state.run<float>(q, k, v, out, log_sum_exp);
    }
  });
}

}  // namespace phasor::parallel
