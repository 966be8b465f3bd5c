#include <algorithm>
#include <type_traits>

#include "parallel/attention/ring_state.hpp"
#include "parallel/attention/table_sums.hpp"
#include "phasor/core/error.hpp"

namespace phasor::parallel {
namespace {

using core::ConstHeadsView;
using core::HeadsView;
using encodings::ScoreTermGradients;

// Tags of the messages of a step: gradients of keys and values.
constexpr int kGradientsTag = 1;

// The rows of a piece of logs [batch * heads, tokens].
template <class Number>
void take_logs(const Number* logs, std::int64_t lines, std::int64_t tokens, const Piece& piece,
               Number* to) {
  for (std::int64_t line = 0; line < lines; ++line)
    std::copy_n(logs + line * tokens + piece.first_query, piece.queries, to + line * piece.queries);
}

}  // namespace

template <class Number>
void RingPlan::State::run_backward(const ConstHeadsView& q, const ConstHeadsView& k,
                                   const ConstHeadsView& v,
                                   const attention::AttentionForward& forward,
                                   const Number* log_sum_exp,
                                   const attention::AttentionGradients& gradients) {
  if (passes == attention::AttentionPasses::forward) {
    refuse(
        "ring attention: the plan was made for AttentionPasses::forward alone; make it for "
        "forward_and_backward");
  }
  const std::int64_t heads = whole.heads, key_heads = whole.key_heads;
  const std::int64_t dim = whole.head_dim, value_dim = whole.value_dim;
  check_input("q", q, queries, heads, dim);
  check_input("k", k, keys, key_heads, dim);
  check_input("v", v, keys, key_heads, value_dim);
  check_input("out", forward.out, queries, heads, value_dim);
  check_input("d_out", forward.d_out, queries, heads, value_dim);
  if (log_sum_exp == nullptr && whole.batch * queries > 0)
    refuse("ring attention: the log-sum-exp of the forward pass is missing (null)");
  const ConstHeadsView inputs[] = {q, k, v, forward.out, forward.d_out};
  check_output("d_q", gradients.d_q, queries, heads, dim, inputs);
  check_output("d_k", gradients.d_k, keys, key_heads, dim, inputs);
  check_output("d_v", gradients.d_v, keys, key_heads, value_dim, inputs);
  ranks.agree("the gradients of tables", wanted_text<Number>(gradients.terms));

  fill_home(k, v);
  const ConstHeadsView rows = fill_queries(q);
  TableSums<Number> tables(gradients.terms, table_gradients);
  const ScoreTermGradients& own_tables = tables.own();
  const HeadsView d_q = dense(query_gradients, queries, heads, dim);
  std::ranges::fill(query_gradients, std::byte{0});
  home_gradients.clear();
  auto* const piece_logs = reinterpret_cast<Number*>(partial_log_sums.data());

  StepTransfers keys_moving, sums_arriving, sum_leaving;
  // What one piece gives to d_q, to the tables, and to `sums` of its shard's keys and values.
  const auto add_piece = [&](const PieceWork& w, ShardBuffer& shard, ShardBuffer& sums_of_shard) {
    const Piece& piece = w.piece;
    piece_gradients.set_tokens(piece.keys);
    const HeadsView piece_d_q = dense(piece_query_gradients, piece.queries, heads, dim);
    take_logs(log_sum_exp, whole.batch * heads, queries, piece, piece_logs);
    attention::AttentionForward piece_forward{
        rows_of_view(forward.out, piece.first_query, piece.queries), nullptr,
        rows_of_view(forward.d_out, piece.first_query, piece.queries), nullptr};
    if constexpr (std::is_same_v<Number, double>) {
      piece_forward.wide_log_sum_exp = piece_logs;
    } else {
      piece_forward.log_sum_exp = piece_logs;
    }
    compute_beside({&keys_moving, &sums_arriving, &sum_leaving}, [&] {
      plans[w.plan].run_backward(
          rows_of_view(rows, piece.first_query, piece.queries),
          rows_of_view(ConstHeadsView(shard.keys()), piece.first_key, piece.keys),
          rows_of_view(ConstHeadsView(shard.values()), piece.first_key, piece.keys), piece_forward,
          {piece_d_q, piece_gradients.keys(), piece_gradients.values(), own_tables});
    });
    add_heads(piece_d_q, rows_of_view(d_q, piece.first_query, piece.queries));
    add_heads(piece_gradients.keys(),
              rows_of_view(sums_of_shard.keys(), piece.first_key, piece.keys));
    add_heads(piece_gradients.values(),
              rows_of_view(sums_of_shard.values(), piece.first_key, piece.keys));
  };

  // Gradients travel one step after their keys: in step s a rank receives what the rank before it has
  // summed for this shard by the end of step s - 1, adds its own, and sends the sum on or home.
  const int count = ranks.size();
  for (int step = 0; step <= count; ++step) {
    if (step + 1 < count) start_keys(step, keys_moving);
    const int shard = schedule.shard(rank, step), before = schedule.wrapped(rank - 1);
    const bool has_work = step < count && step > 0 && schedule.needs(rank, shard);
    const bool continues = has_work && schedule.needs(before, shard);
    if (continues) {
      chain_in.set_tokens(layout.keys().count(shard));
      receive(chain_in.bytes(), before, kGradientsTag, sums_arriving);
    }
    const int last = schedule.wrapped(rank + step - 1);
    const bool ends =
        step > 1 && schedule.needs(last, rank) && schedule.gradient_target(last, rank) == rank;
    if (ends) receive(home_in.bytes(), last, kGradientsTag, sums_arriving);
    if (step == 0) {
      for (const PieceWork& w : work[static_cast<std::size_t>(rank)])
        add_piece(w, home, home_gradients);
    } else if (has_work) {
      shard_gradients.set_tokens(layout.keys().count(shard));
      shard_gradients.clear();
      for (const PieceWork& w : work[static_cast<std::size_t>(shard)])
        add_piece(w, shard_buffer(step), shard_gradients);
    }
    keys_moving.wait();
    sums_arriving.wait();
    sum_leaving.wait();
    if (continues) {
      add_heads(chain_in.keys(), shard_gradients.keys());
      add_heads(chain_in.values(), shard_gradients.values());
    }
    if (ends) {
      add_heads(home_in.keys(), home_gradients.keys());
      add_heads(home_in.values(), home_gradients.values());
    }
    if (has_work) {
      gradients_out.set_tokens(layout.keys().count(shard));
      copy_heads(shard_gradients.keys(), gradients_out.keys());
      copy_heads(shard_gradients.values(), gradients_out.values());
      send(gradients_out.bytes(), schedule.gradient_target(rank, shard), kGradientsTag,
           sum_leaving);
    }
  }
  sum_leaving.wait();
  if (rotary) {
    rotate(d_q, core::Role::query, core::Direction::transpose);
    rotate(home_gradients.keys(), core::Role::key, core::Direction::transpose);
  }
  copy_heads(d_q, gradients.d_q);
  copy_heads(home_gradients.keys(), gradients.d_k);
  copy_heads(home_gradients.values(), gradients.d_v);
  tables.finish(ranks);
}

void RingPlan::run_backward(ConstHeadsView q, ConstHeadsView k, ConstHeadsView v,
                            const attention::AttentionForward& forward,
                            const attention::AttentionGradients& gradients) {
  State& state = *state_;
  state.ranks.guarded([&] {
    if (state.arithmetic() == core::DType::f64) {
      state.run_backward<double>(q, k, v, forward, forward.wide_log_sum_exp, gradients);
    } else {
      state.run_backward<float>(q, k, v, forward, forward.log_sum_exp, gradients);
    }
  });
}

}  // namespace phasor::parallel
