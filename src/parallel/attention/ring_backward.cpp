#include <algorithm>
#include <ranges>
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
  // Summed where the caller wants them if their type is that of the arithmetic.
  const bool queries_in_place = gradients.d_q.dtype == arithmetic();
  if (!queries_in_place)
    query_sums.resize(static_cast<std::size_t>(whole.batch * queries * heads * dim) *
                      sizeof(Number));
  const HeadsView d_q = queries_in_place ? gradients.d_q : dense(query_sums, queries, heads, dim);
  const bool keys_in_place =
      gradients.d_k.dtype == arithmetic() && gradients.d_v.dtype == arithmetic();
  if (!keys_in_place) home_sums.reserve(arithmetic(), whole, keys);
  const HeadsView d_k = keys_in_place ? gradients.d_k : home_sums.keys();
  const HeadsView d_v = keys_in_place ? gradients.d_v : home_sums.values();
  for (const HeadsView& view : {d_q, d_k, d_v}) clear_heads<Number>(view);
  auto* const piece_logs = reinterpret_cast<Number*>(partial_log_sums.data());

  StepTransfers keys_moving, chain_arriving, home_arriving, chain_leaving;
  // What one piece gives to d_q, to the tables, and to the sums of its shard.
  const auto add_piece = [&](const PieceWork& w, ShardBuffer& shard, const HeadsView& key_sums,
                             const HeadsView& value_sums) {
    const Piece& piece = w.piece;
    piece_gradients.set_tokens(piece.keys);
    const HeadsView piece_d_q = dense(partial, piece.queries, heads, dim);
    take_logs(log_sum_exp, whole.batch * heads, queries, piece, piece_logs);
    attention::AttentionForward piece_forward{
        rows_of_view(forward.out, piece.first_query, piece.queries), nullptr,
        rows_of_view(forward.d_out, piece.first_query, piece.queries), nullptr};
    if constexpr (std::is_same_v<Number, double>) {
      piece_forward.wide_log_sum_exp = piece_logs;
    } else {
      piece_forward.log_sum_exp = piece_logs;
    }
    compute_beside({&keys_moving, &chain_arriving, &home_arriving, &chain_leaving}, [&] {
      plans[w.plan].run_backward(
          rows_of_view(rows, piece.first_query, piece.queries),
          rows_of_view(ConstHeadsView(shard.keys()), piece.first_key, piece.keys),
          rows_of_view(ConstHeadsView(shard.values()), piece.first_key, piece.keys), piece_forward,
          {piece_d_q, piece_gradients.keys(), piece_gradients.values(), own_tables});
    });
    chain_arriving.wait();
    add_heads(piece_d_q, rows_of_view(d_q, piece.first_query, piece.queries));
    add_heads(piece_gradients.keys(), rows_of_view(key_sums, piece.first_key, piece.keys));
    add_heads(piece_gradients.values(), rows_of_view(value_sums, piece.first_key, piece.keys));
  };

  // Sums travel one step after their keys: in step s a rank receives what the rank before it has summed for
  // this shard by the end of step s - 1, adds its own, and sends the sum on, or home.
  const int count = ranks.size();
  const bool rounded = wire() != arithmetic();
  for (const int step : std::views::iota(0, count + 1)) {
    if (step + 1 < count) start_keys(step, keys_moving);
    const int shard = schedule.shard(rank, step), before = schedule.wrapped(rank - 1);
    const bool has_work = step > 0 && step < count && schedule.needs(rank, shard);
    const bool continues = has_work && schedule.needs(before, shard);
    ShardBuffer& chain = chains[static_cast<std::size_t>(step % 2)];
    if (has_work) chain.set_tokens(layout.keys().count(shard));
    if (continues) {
      receive(chain.bytes(), before, kGradientsTag, chain_arriving);
    } else if (has_work) {
      chain.clear();
    }
    const bool ends = comes_home(step);
    if (ends) {
      homecoming(step).set_tokens(keys);
      receive(homecoming(step).bytes(), schedule.wrapped(rank + step - 1), kGradientsTag,
              home_arriving);
    }
    if (step == 0) {
      for (const PieceWork& w : work[static_cast<std::size_t>(rank)]) add_piece(w, home, d_k, d_v);
    } else if (has_work) {
      ShardBuffer& shard_total = rounded ? shard_sums : chain;
      if (rounded) {
        shard_sums.set_tokens(layout.keys().count(shard));
        shard_sums.clear();
      }
      for (const PieceWork& w : work[static_cast<std::size_t>(shard)])
        add_piece(w, shard_buffer(step), shard_total.keys(), shard_total.values());
    }
    for (StepTransfers* const moving : {&keys_moving, &chain_leaving, &home_arriving})
      moving->wait();
    if (ends) {
      add_heads(homecoming(step).keys(), d_k);
      add_heads(homecoming(step).values(), d_v);
    }
    if (!has_work) continue;
    if (rounded) {
      add_heads(chain.keys(), shard_sums.keys());
      add_heads(chain.values(), shard_sums.values());
      copy_heads(shard_sums.keys(), chain.keys());
      copy_heads(shard_sums.values(), chain.values());
    }
    send(chain.bytes(), schedule.gradient_target(rank, shard), kGradientsTag, chain_leaving);
  }
  chain_leaving.wait();
  if (rotary) {
    rotate(d_q, core::Role::query, core::Direction::transpose);
    rotate(d_k, core::Role::key, core::Direction::transpose);
  }
  if (!queries_in_place) copy_heads(d_q, gradients.d_q);
  if (!keys_in_place) {
    copy_heads(d_k, gradients.d_k);
    copy_heads(d_v, gradients.d_v);
  }
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
