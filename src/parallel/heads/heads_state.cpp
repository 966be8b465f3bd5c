#include "parallel/heads/heads_state.hpp"

#include <array>

#include "parallel/attention/table_sums.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/core/internal/rotations.hpp"

namespace phasor::parallel {
namespace {

using attention::AttentionPasses;
using attention::AttentionSizes;
using core::ConstHeadsView;
using core::DType;
using core::HeadsView;
using Side = HeadExchange::Side;

}  // namespace

AttentionSizes sizes_of_heads(const AttentionSizes& whole, int ranks) {
  AttentionSizes sizes = whole;
  sizes.heads = heads_of(whole.heads, ranks, 0).count;
  sizes.key_heads = heads_of(whole.key_heads, ranks, 0).count;
  return sizes;
}

void check_heads(const AttentionSizes& whole, const ParallelOptions& parallel, int ranks) {
  if (whole.heads < 1 || whole.key_heads < 1 || whole.heads % whole.key_heads != 0) {
    refuse(ErrorCode::shape_mismatch,
           message("attention by heads: heads must be a multiple of key heads, got ", whole.heads,
                   " and ", whole.key_heads));
  }
  if (whole.heads % ranks != 0) {
    refuse(ErrorCode::shape_mismatch,
           message("attention by heads: heads must be a multiple of the ", ranks,
                   " ranks that divide them, got ", whole.heads));
  }
  if (whole.key_heads % ranks != 0 && ranks % whole.key_heads != 0) {
    refuse(ErrorCode::shape_mismatch,
           message("attention by heads: key heads must be a multiple or a divisor of the ", ranks,
                   " ranks that divide them, got ", whole.key_heads));
  }
  if (parallel.wire == WireType::bf16 && whole.arithmetic == DType::f64) {
    refuse(ErrorCode::unsupported,
           "attention by heads: bf16 on the wire needs f32 arithmetic, got f64");
  }
}

void check_ids(const AttentionSizes& whole, const attention::AttentionOptions& options) {
  const auto check = [&](const std::optional<core::Positions>& given, std::int64_t tokens) {
    if (given) static_cast<void>(core::check_positions(*given, given->axes, whole.batch, tokens));
  };
  check(options.query_positions, whole.queries);
  check(options.key_positions, whole.keys);
}

HeadsState::HeadsState(Communicator& row_ranks, const AttentionSizes& sizes, TokenRows queries,
                       TokenRows keys, WireType wire_type, AttentionPasses for_passes,
                       std::unique_ptr<GatheredAttention> over_heads)
    : row(row_ranks),
      whole(sizes),
      wire(wire_type == WireType::bf16 ? DType::bf16 : sizes.arithmetic),
      passes(for_passes),
      exchange(row_ranks, std::move(queries), std::move(keys), sizes.heads, sizes.key_heads),
      attention(std::move(over_heads)) {
  whole.queries = whole.keys = 0;
  for (int rank = 0; rank < row.size(); ++rank) {
    whole.queries += exchange.count(Side::queries, rank);
    whole.keys += exchange.count(Side::keys, rank);
  }
}

HeadsView HeadsState::gathered(Memory& memory, Side side, std::int64_t dim) {
  const std::int64_t tokens = side == Side::queries ? whole.queries : whole.keys;
  const std::int64_t heads = exchange.heads(side, row.rank()).count;
  const auto elements = static_cast<std::size_t>(whole.batch * tokens * heads * dim);
  fit(memory, elements * core::size_of(wire));
  return {memory.data(),        wire,        whole.batch, tokens, heads, dim,
          tokens * heads * dim, heads * dim, dim};
}

template <class Void>
core::BasicHeadsView<Void> HeadsState::log_sums_view(Void* data, std::int64_t tokens,
                                                     std::int64_t heads) const {
  return {data, whole.arithmetic, whole.batch, tokens, heads, 1, heads * tokens, 1, tokens};
}

void HeadsState::check_view(const char* name, const ConstHeadsView& view, Side side,
                            std::int64_t dim) const {
  const std::int64_t wanted[] = {whole.batch, exchange.count(side, row.rank()),
                                 side == Side::queries ? whole.heads : whole.key_heads, dim};
  if (view.batch != wanted[0] || view.tokens != wanted[1] || view.heads != wanted[2] ||
      view.head_dim != wanted[3]) {
    refuse(ErrorCode::shape_mismatch,
           message("attention by heads: ", name, " of rank ", row.rank(), " must be ",
                   core::shape_text(wanted), ", got ", core::shape_text(view)));
  }
  if ((view.dtype == DType::f64) != is_wide()) {
    refuse(ErrorCode::unsupported,
           message("attention by heads: ", name, " is ", core::name_of(view.dtype),
                   ", the plan computes in ", core::name_of(whole.arithmetic)));
  }
  if (view.data == nullptr && view.batch * view.tokens > 0) {
    refuse(message("attention by heads: ", name, " of shape ", core::shape_text(view),
                   " has no data (null)"));
  }
}

void HeadsState::check_output(const char* name, const HeadsView& view, Side side, std::int64_t dim,
                              std::span<const ConstHeadsView> inputs) const {
  check_view(name, view, side, dim);
  if (view.batch * view.tokens == 0) return;
  if (core::overlaps_itself(view)) {
    refuse(message("attention by heads: the elements of ", name, " must be distinct, got strides [",
                   view.batch_stride, ", ", view.token_stride, ", ", view.head_stride, ", 1]"));
  }
  for (const ConstHeadsView& input : inputs) {
    if (input.batch * input.tokens > 0 && core::overlap(view, input)) {
      refuse(message("attention by heads: ", name, " of shape ", core::shape_text(view),
                     " overlaps an input"));
    }
  }
}

void HeadsState::run(const ConstHeadsView& q, const ConstHeadsView& k, const ConstHeadsView& v,
                     const HeadsView& out, float* log_sum_exp, double* wide_log_sum_exp) {
  counted([&] {
    if (is_wide() ? log_sum_exp != nullptr : wide_log_sum_exp != nullptr) {
      refuse(message("attention by heads: ", core::name_of(whole.arithmetic),
                     is_wide() ? " writes wide_log_sum_exp, got log_sum_exp"
                               : " writes log_sum_exp, got wide_log_sum_exp"));
    }
    run_here(q, k, v, out,
             is_wide() ? static_cast<void*>(wide_log_sum_exp) : static_cast<void*>(log_sum_exp));
  });
}

void HeadsState::run_here(const ConstHeadsView& q, const ConstHeadsView& k, const ConstHeadsView& v,
                          const HeadsView& out, void* log_sums) {
  check_view("q", q, Side::queries, whole.head_dim);
  check_view("k", k, Side::keys, whole.head_dim);
  check_view("v", v, Side::keys, whole.value_dim);
  const std::array<ConstHeadsView, 3> inputs = {q, k, v};
  check_output("out", out, Side::queries, whole.value_dim, inputs);
  const HeadsView all_q = gathered(q_, Side::queries, whole.head_dim);
  const HeadsView all_k = gathered(k_, Side::keys, whole.head_dim);
  const HeadsView all_v = gathered(v_, Side::keys, whole.value_dim);
  const HeadsView all_out = gathered(out_, Side::queries, whole.value_dim);
  const std::array<HeadExchange::Move, 3> inward = {
      HeadExchange::Move{Side::queries, q, all_q}, {Side::keys, k, all_k}, {Side::keys, v, all_v}};
  exchange.gather(inward);
  std::vector<HeadExchange::Move> outward;
  void* all_log_sums = nullptr;
  if (log_sums != nullptr) {
    fit(log_sums_, static_cast<std::size_t>(whole.batch * all_q.heads * whole.queries) *
                       core::size_of(whole.arithmetic));
    all_log_sums = log_sums_.data();
    outward.push_back({Side::queries, log_sums_view(all_log_sums, whole.queries, all_q.heads),
                       log_sums_view(log_sums, q.tokens, whole.heads)});
  }
  attention->run(all_q, all_k, all_v, all_out,
                 is_wide() ? nullptr : static_cast<float*>(all_log_sums),
                 is_wide() ? static_cast<double*>(all_log_sums) : nullptr);
  outward.push_back({Side::queries, all_out, out});
  exchange.release(outward);
}

void HeadsState::run_backward(const ConstHeadsView& q, const ConstHeadsView& k,
                              const ConstHeadsView& v, const attention::AttentionForward& forward,
                              const attention::AttentionGradients& gradients) {
  counted([&] {
    if (passes == AttentionPasses::forward) {
      refuse(
          "attention by heads: backward needs a plan of forward_and_backward, got a plan of "
          "forward");
    }
    is_wide() ? run_backward_here(q, k, v, forward, forward.wide_log_sum_exp, gradients)
              : run_backward_here(q, k, v, forward, forward.log_sum_exp, gradients);
  });
}

template <class Number>
void HeadsState::run_backward_here(const ConstHeadsView& q, const ConstHeadsView& k,
                                   const ConstHeadsView& v,
                                   const attention::AttentionForward& forward,
                                   const Number* log_sums,
                                   const attention::AttentionGradients& gradients) {
  if (log_sums == nullptr && q.batch * q.tokens > 0) {
    refuse("attention by heads: the log-sum-exp of the forward pass is missing (null)");
  }
  const std::int64_t dim = whole.head_dim, value_dim = whole.value_dim;
  check_view("q", q, Side::queries, dim);
  check_view("k", k, Side::keys, dim);
  check_view("v", v, Side::keys, value_dim);
  check_view("out", forward.out, Side::queries, value_dim);
  check_view("d_out", forward.d_out, Side::queries, value_dim);
  const std::array<ConstHeadsView, 5> inputs = {q, k, v, forward.out, forward.d_out};
  check_output("d_q", gradients.d_q, Side::queries, dim, inputs);
  check_output("d_k", gradients.d_k, Side::keys, dim, inputs);
  check_output("d_v", gradients.d_v, Side::keys, value_dim, inputs);

  const HeadsView all_q = gathered(q_, Side::queries, dim);
  const HeadsView all_k = gathered(k_, Side::keys, dim);
  const HeadsView all_v = gathered(v_, Side::keys, value_dim);
  const HeadsView all_out = gathered(out_, Side::queries, value_dim);
  const HeadsView all_d_out = gathered(d_out_, Side::queries, value_dim);
  fit(log_sums_,
      static_cast<std::size_t>(whole.batch * all_q.heads * whole.queries) * sizeof(Number));
  auto* const all_log_sums = reinterpret_cast<Number*>(log_sums_.data());
  const std::array<HeadExchange::Move, 6> inward = {
      HeadExchange::Move{Side::queries, log_sums_view<const void>(log_sums, q.tokens, whole.heads),
                         log_sums_view<void>(all_log_sums, whole.queries, all_q.heads)},
      {Side::queries, q, all_q},
      {Side::keys, k, all_k},
      {Side::keys, v, all_v},
      {Side::queries, forward.out, all_out},
      {Side::queries, forward.d_out, all_d_out}};
  exchange.gather(inward);

  row.agree("the gradients of tables", wanted_text<Number>(gradients.terms));
  TableSums<Number> tables(gradients.terms, table_gradients_);
  attention::AttentionForward all_forward;
  all_forward.out = all_out;
  all_forward.d_out = all_d_out;
  if constexpr (std::is_same_v<Number, double>) {
    all_forward.wide_log_sum_exp = all_log_sums;
  } else {
    all_forward.log_sum_exp = all_log_sums;
  }
  attention::AttentionGradients all_gradients;
  all_gradients.d_q = gathered(d_q_, Side::queries, dim);
  all_gradients.d_k = gathered(d_k_, Side::keys, dim);
  all_gradients.d_v = gathered(d_v_, Side::keys, value_dim);
  const HeadRange own_heads = exchange.heads(Side::queries, row.rank());
  all_gradients.terms = tables.of_heads(own_heads.first, own_heads.count);
  attention->run_backward(all_q, all_k, all_v, all_forward, all_gradients);
  const std::array<HeadExchange::Move, 3> outward = {
      HeadExchange::Move{Side::queries, all_gradients.d_q, gradients.d_q},
      {Side::keys, all_gradients.d_k, gradients.d_k},
      {Side::keys, all_gradients.d_v, gradients.d_v}};
  exchange.release(outward);
  tables.finish(row);
}

std::size_t HeadsState::exchange_bytes() const noexcept {
  std::size_t bytes = exchange.bytes();
  for (const Memory* memory : {&q_, &k_, &v_, &out_, &log_sums_, &d_out_, &d_q_, &d_k_, &d_v_}) {
    bytes += memory->capacity();
  }
  return bytes;
}

std::size_t HeadsState::bytes() const noexcept {
  return exchange_bytes() + attention->bytes() + table_gradients_.capacity();
}

}  // namespace phasor::parallel
