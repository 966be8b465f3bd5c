#include "attention/linear/linear_backward.hpp"

#include <algorithm>
#include <cmath>

namespace phasor::attention {

LinearBackwardUnit LinearBackward::unit(std::int64_t index, std::int64_t slot, std::int64_t thread,
                                        const LinearBackwardWorkspace& work) const {
  const std::int64_t held = extent == LinearExtent::part ? index : thread * slots + slot;
  return {
      .b = index / call.k.heads,
      .key_head = index % call.k.heads,
      .keys = Sums::at(work.key_sums + slot * call.sum_floats(), work.exponents + 2 * slot,
                       call.dim, call.value_width, call.width),
      .queries = Sums::at(work.query_sums + slot * LinearBackwardWorkspace::query_sum_floats(call),
                          work.exponents + 2 * slot + 1, call.value_dim, call.width, call.width),
      .cuts = cuts + held * call.k.tokens,
      .cut_count = cut_counts + held};
}

void LinearBackward::begin(const LinearBackwardUnit& unit) const {
  for (const Sums* sums : {&unit.keys, &unit.queries}) {
    std::fill_n(sums->products, sums->floats, 0.0F);
    *sums->exponent = kNoExponent;
  }
  const bool keys_only = step.what == LinearStep::What::keys;
  if (!keys_only) *unit.cut_count = 0;
  if (step.enters != nullptr) {
    load_sums(*step.enters, unit.b * call.k.heads + unit.key_head,
              keys_only ? unit.queries : unit.keys);
  }
}

void LinearBackward::end(const LinearBackwardUnit& unit) const {
  if (step.leaves == nullptr) return;
  store_sums(unit.queries, *step.leaves, unit.b * call.k.heads + unit.key_head);
}

void LinearBackward::rotate_back(const ChunkRows& rows, std::int64_t first, std::int64_t count,
                                 float* gradient) const {
  if (!call.rotates(Rotates::features)) return;
  call.rotations->rotate(rows.transposed + (first - rows.first) * call.rotations->row_floats(),
                         gradient, gradient, call.width, count);
}

void LinearBackward::flip_keys(LinearBackwardWorkspace& work) const {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  kernels.transpose(work.keys.rotated, call.width, work.keys.count, call.dim, work.key_columns,
                    work.columns);
  kernels.transpose(work.keys.values, call.value_width, work.keys.count, call.value_dim,
                    work.value_columns, work.columns);
}

void LinearBackward::add_keys(const LinearBackwardUnit& unit, std::int64_t first,
                              std::int64_t count, LinearBackwardWorkspace& work) const {
  read_keys(call, unit.b, unit.key_head, first, count, work.key_rows, work.keys);
  const float exponent = exponent_for(call, work.keys, *unit.keys.exponent);
  change_exponent(call, SumsOf::keys, exponent, unit.keys);
  map_keys(call, unit.b, exponent, work.key_rows, work.keys);
  unit.cuts[(*unit.cut_count)++] = {count, exponent};
  call.kernels.linear.running_sums(work.keys.features, call.width, count, call.width,
                                   unit.keys.vectors, work.vector_sums, call.width,
                                   work.vector_total);
  add_keys_to_sums(call, work.keys, work.vector_total, unit.keys);
}

// d q of one head's chunk. precondition  flipped = the transpose of the sums' products
//
//   d phi(q_m) = R_m^T sum_n (R_n phi(k_n)) (v_n . g_m) - D_m sum_n phi(k_n)
void LinearBackward::query_gradient(const LinearBackwardUnit& unit, std::int64_t h,
                                    std::int64_t first, std::int64_t count, Own own,
                                    LinearBackwardWorkspace& work) const {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  const std::int64_t width = call.width, value_width = call.value_width;
  const kernels::Matrix rotated{work.queries.rotated, width, 1};
  const kernels::Matrix numerators{work.numerators, value_width, 1};
  const kernels::Matrix g{work.d_numerators, value_width, 1};
  const kernels::Matrix weights{work.weights, work.columns, 1};
  const kernels::Matrix d_features{work.d_features, width, 1};

  load_queries(call, unit.b, h, first, count, work.query_rows, work.queries);
  kernels.multiply(rotated, {unit.keys.products, unit.keys.columns, 1}, numerators, count, call.dim,
                   value_width, 0);
  if (own == Own::chunk) {
    kernels.causal_weights(rotated, {work.key_columns, work.columns, 1}, weights, count, call.dim);
    kernels.add_weighted(weights, {work.keys.values, value_width, 1}, numerators, count,
                         value_width);
  }
  const float* key_sums = own == Own::chunk ? work.vector_sums : unit.keys.vectors;
  const std::int64_t key_sum_stride = own == Own::chunk ? width : 0;
  kernels.dots(work.queries.features, width, key_sums, key_sum_stride, count, width, work.inverses);
  invert(work.inverses, count);
  read_tokens(call, d_out, unit.b, h, first, count, work.d_numerators, value_width);
  kernels.scaled_rows(work.d_numerators, value_width, work.inverses, 1, count, value_width,
                      work.d_numerators, value_width, 0);
  kernels.dots(work.numerators, value_width, work.d_numerators, value_width, count, value_width,
               work.d_denominators);
  for (std::int64_t t = 0; t < count; ++t) {
    work.d_denominators[t] *= -work.inverses[t];  // -D = -o . g
  }

  kernels.multiply(g, {work.flipped, width, 1}, d_features, count, call.value_dim, width, 0);
  if (own == Own::chunk) {
    kernels.causal_weights(g, {work.value_columns, work.columns, 1}, weights, count,
                           call.value_dim);
    kernels.add_weighted(weights, {work.keys.rotated, width, 1}, d_features, count, width);
  }
  rotate_back(work.query_rows, first, count, work.d_features);
  kernels.scaled_rows(key_sums, key_sum_stride, work.d_denominators, 1, count, width,
                      work.d_features, width, 1);
  unmap(call, work.queries.features, nullptr, work.query_rows, first, count, work.d_features,
        work.to_inputs);
  write_tokens(call, work.to_inputs.d_inputs, call.input_width, count, d_q, unit.b, h, first);
}

// Keys [first, first + count) and the queries at their positions.
void LinearBackward::causal_queries(const LinearBackwardUnit& unit, std::int64_t first,
                                    std::int64_t count, LinearBackwardWorkspace& work) const {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  const std::int64_t end = first + count;
  for (std::int64_t at = first; at < end; at += work.keys.count) {
    read_keys(call, unit.b, unit.key_head, at, end - at, work.key_rows, work.keys);
    work.keys.count = shared_chunk(call, work.keys, *unit.keys.exponent);
    const float exponent = exponent_for(call, work.keys, *unit.keys.exponent);
    change_exponent(call, SumsOf::keys, exponent, unit.keys);
    map_keys(call, unit.b, exponent, work.key_rows, work.keys);
    unit.cuts[(*unit.cut_count)++] = {work.keys.count, exponent};
    kernels.running_sums(work.keys.features, call.width, work.keys.count, call.width,
                         unit.keys.vectors, work.vector_sums, call.width, work.vector_total);
    flip_keys(work);
    kernels.transpose(unit.keys.products, unit.keys.columns, call.dim, call.value_width,
                      work.flipped, call.width);
    for (std::int64_t h = unit.key_head * call.group; h < (unit.key_head + 1) * call.group; ++h) {
      const std::int64_t query = at - call.offset;
      query_gradient(unit, h, query, work.keys.count, Own::chunk, work);
      const std::int64_t kept = query_index(unit, h, query);
      std::copy_n(work.inverses, work.keys.count, inverses + kept);
      std::copy_n(work.d_denominators, work.keys.count, d_denominators + kept);
      if (step.leaves != nullptr) {
        scale_queries(unit, exponent, work);
        add_queries(unit, work.keys.count, work);
      }
    }
    add_keys_to_sums(call, work.keys, work.vector_total, unit.keys);
  }
}

// Adds a chunk of queries to sum g (R phi(q))^T.
void LinearBackward::add_query_products(const LinearBackwardUnit& unit, std::int64_t count,
                                        LinearBackwardWorkspace& work) const {
  call.kernels.linear.add_product({work.d_numerators, 1, call.value_width},
                                  {work.queries.rotated, call.width, 1},
                                  {unit.queries.products, unit.queries.columns, 1},
                                  unit.queries.products_carry, call.value_dim, count, call.width);
}

// Adds a chunk of queries to the mirrored sums.
void LinearBackward::add_queries(const LinearBackwardUnit& unit, std::int64_t count,
                                 LinearBackwardWorkspace& work) const {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  add_query_products(unit, count, work);
  kernels.scaled_rows(work.queries.features, call.width, work.d_denominators, 1, count, call.width,
                      work.weighted, call.width, 0);
  // d_features is written by now: room for sums that are not needed.
  kernels.running_sums(work.weighted, call.width, count, call.width, unit.queries.vectors,
                       work.d_features, call.width, work.query_total);
  kernels.add_carried(work.query_total, call.width, unit.queries.vectors,
                      unit.queries.vectors_carry);
}

// Brings g and D of a chunk to the exponent of the mirrored sums, which is that of the first chunk: sums
// that leave a part serve keys before it, whose exponents are no larger.
void LinearBackward::scale_queries(const LinearBackwardUnit& unit, float exponent,
                                   LinearBackwardWorkspace& work) const {
  if (*unit.queries.exponent <= kNoExponent) *unit.queries.exponent = exponent;
  const float bits = *unit.queries.exponent - exponent;
  if (bits == 0.0F) return;
  const float factor = bits < -100.0F ? 0.0F : std::ldexp(1.0F, static_cast<int>(bits));
  call.kernels.linear.scaled_rows(work.d_numerators, 0, &factor, 0, 1,
                                  work.keys.count * call.value_width, work.d_numerators, 0, 0);
  for (std::int64_t t = 0; t < work.keys.count; ++t) work.d_denominators[t] *= factor;
}

// Not causal: queries against the sums over all keys; they are added to the mirrored sums at once.
void LinearBackward::all_queries(const LinearBackwardUnit& unit, std::int64_t first,
                                 std::int64_t count, LinearBackwardWorkspace& work) const {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  kernels.transpose(unit.keys.products, unit.keys.columns, call.dim, call.value_width, work.flipped,
                    call.width);
  for (std::int64_t h = unit.key_head * call.group; h < (unit.key_head + 1) * call.group; ++h) {
    query_gradient(unit, h, first, count, Own::none, work);
    add_queries(unit, count, work);
  }
}

// What the queries after the chunk add to its gradients:
//
//   R_n d phi(k_n) = sum_m (R_m phi(q_m)) (g_m . v_n)
//   d v_n = sum_m g_m (R_m phi(q_m) . R_n phi(k_n))
void LinearBackward::begin_keys(const LinearBackwardUnit& unit, float exponent,
                                LinearBackwardWorkspace& work) const {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  map_keys(call, unit.b, exponent, work.key_rows, work.keys);
  change_exponent(call, SumsOf::queries, exponent, unit.queries);
  kernels.transpose(unit.queries.products, unit.queries.columns, call.value_dim, call.width,
                    work.flipped, call.value_width);
  kernels.multiply(
      {work.keys.values, call.value_width, 1}, {unit.queries.products, unit.queries.columns, 1},
      {work.d_features, call.width, 1}, work.keys.count, call.value_dim, call.width, 0);
  kernels.multiply({work.keys.rotated, call.width, 1}, {work.flipped, call.value_width, 1},
                   {work.d_values, call.value_width, 1}, work.keys.count, call.dim,
                   call.value_width, 0);
  std::fill_n(work.weighted, work.keys.count * call.width, 0.0F);
}

// What the chunk's own queries of one head add; then they are added to the mirrored sums.
void LinearBackward::key_gradient_of_own(const LinearBackwardUnit& unit, std::int64_t h,
                                         LinearBackwardWorkspace& work) const {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  const std::int64_t count = work.keys.count, first = work.keys.first - call.offset;
  const kernels::Matrix rotated{work.queries.rotated, call.width, 1};
  const kernels::Matrix g{work.d_numerators, call.value_width, 1};
  const kernels::Matrix weights{work.weights, work.columns, 1};
  const std::int64_t kept = query_index(unit, h, first);

  load_queries(call, unit.b, h, first, count, work.query_rows, work.queries);
  read_tokens(call, d_out, unit.b, h, first, count, work.d_numerators, call.value_width);
  kernels.scaled_rows(work.d_numerators, call.value_width, inverses + kept, 1, count,
                      call.value_width, work.d_numerators, call.value_width, 0);
  kernels.causal_weights(rotated, {work.key_columns, work.columns, 1}, weights, count, call.dim);
  kernels.add_weighted_transposed(weights, g, {work.d_values, call.value_width, 1}, count,
                                  call.value_width);
  kernels.causal_weights(g, {work.value_columns, work.columns, 1}, weights, count, call.value_dim);
  kernels.add_weighted_transposed(weights, rotated, {work.d_features, call.width, 1}, count,
                                  call.width);
  kernels.scaled_rows(work.queries.features, call.width, d_denominators + kept, 1, count,
                      call.width, work.weighted, call.width, 1);
  add_query_products(unit, count, work);
}

// d phi(k_n) = R_n^T (...) + sum_m -D_m phi(q_m), the sum running from the last query to this
// token.
void LinearBackward::end_keys(const LinearBackwardUnit& unit, LinearBackwardWorkspace& work) const {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  const std::int64_t count = work.keys.count, last = (count - 1) * call.width;
  const float one = 1.0F;
  kernels.running_sums(work.weighted + last, -call.width, count, call.width, unit.queries.vectors,
                       work.vector_sums + last, -call.width, work.vector_total);
  kernels.add_carried(work.vector_total, call.width, unit.queries.vectors,
                      unit.queries.vectors_carry);
  rotate_back(work.key_rows, work.keys.first, count, work.d_features);
  kernels.scaled_rows(work.vector_sums, call.width, &one, 0, count, call.width, work.d_features,
                      call.width, 1);
  unmap(call, work.keys.features, work.keys.inputs, work.key_rows, work.keys.first, count,
        work.d_features, work.to_inputs);
  write_tokens(call, work.to_inputs.d_inputs, call.input_width, count, d_k, unit.b, unit.key_head,
               work.keys.first);
  write_tokens(call, work.d_values, call.value_width, count, d_v, unit.b, unit.key_head,
               work.keys.first);
}

void LinearBackward::causal_keys(const LinearBackwardUnit& unit, std::int64_t first,
                                 std::int64_t count, LinearBackwardWorkspace& work) const {
  for (std::int64_t end = first + count; end > first; end -= work.keys.count) {
    const LinearCut cut = unit.cuts[--*unit.cut_count];
    read_keys(call, unit.b, unit.key_head, end - cut.count, cut.count, work.key_rows, work.keys);
    begin_keys(unit, cut.exponent, work);
    if (work.keys.first >= call.offset) {
      flip_keys(work);
      for (std::int64_t h = unit.key_head * call.group; h < (unit.key_head + 1) * call.group; ++h) {
        key_gradient_of_own(unit, h, work);
      }
    }
    end_keys(unit, work);
  }
}

void LinearBackward::all_keys(const LinearBackwardUnit& unit, std::int64_t first,
                              std::int64_t count, LinearBackwardWorkspace& work) const {
  read_keys(call, unit.b, unit.key_head, first, count, work.key_rows, work.keys);
  begin_keys(unit, *unit.queries.exponent, work);
  end_keys(unit, work);
}

void linear_attend_backward(const std::optional<core::Rotary>& rotary, core::ConstHeadsView q,
                            core::ConstHeadsView k, core::ConstHeadsView v,
                            core::ConstHeadsView d_out, core::HeadsView d_q, core::HeadsView d_k,
                            core::HeadsView d_v, const LinearOptions& options) {
  LinearPlan plan(rotary, linear_sizes(q, k, v), options, LinearUse::backward);
  plan.run_backward(q, k, v, d_out, d_q, d_k, d_v);
}

}  // namespace phasor::attention
