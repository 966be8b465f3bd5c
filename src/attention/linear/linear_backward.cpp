#include <algorithm>

#include "attention/linear/linear_plan.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::attention {
namespace {

// The scratch of one thread.
struct LinearBackwardWorkspace {
  KeyChunk keys;
  QueryChunk queries;
  ChunkRows key_rows, query_rows;
  std::int64_t columns;   // floats of a row of weights
  float* key_columns;     // [width][columns]: R phi(k), transposed
  float* value_columns;   // [value_width][columns]: v, transposed
  float* weights;         // [chunk][columns]
  float* vector_sums;     // [chunk][width]: sums of vectors at each token
  float* vector_total;    // [width]
  float* numerators;      // [chunk][value_width]
  float* d_numerators;    // [chunk][value_width]: g = d_out / denominator
  float* d_denominators;  // [chunk]: -D
  float* inverses;        // [chunk]: 1 / denominator
  float* flipped;         // products of sums, transposed
  float* d_features;      // [chunk][width]
  InputGradients to_inputs;
  float* d_values;    // [chunk][value_width]
  float* weighted;    // [chunk][width]: -D phi(q), summed over the group
  float* key_sums;    // a state for each key head of the thread
  float* query_sums;  // and its mirror: sum g (R phi(q))^T and sum -D phi(q)
  float* exponents;   // of both

  LinearBackwardWorkspace(const LinearCall& call, std::int64_t slots, Carver& carver)
      : keys(carve_keys(call, carver)),
        queries(carve_queries(call, carver)),
        columns(kernels::rounded_up(call.chunk, kernels::kWidest)) {
    const std::int64_t rows = room_for(call.chunk);
    for (ChunkRows* rows_of : {&key_rows, &query_rows}) {
      rows_of->memory = carver.take(call.row_floats());
      rows_of->transposed_memory = carver.take(call.row_floats());
    }
    key_columns = carver.take(call.width * columns);
    value_columns = carver.take(call.value_width * columns);
    weights = carver.take(rows * columns);
    vector_sums = carver.take(rows * call.width);
    vector_total = carver.take(call.width);
    numerators = carver.take(rows * call.value_width);
    d_numerators = carver.take(rows * call.value_width);
    d_denominators = carver.take(rows);
    inverses = carver.take(rows);
    flipped = carver.take(call.width * call.value_width);
    d_features = carver.take(rows * call.width);
    to_inputs = carve_input_gradients(call, d_features, carver);
    d_values = carver.take(rows * call.value_width);
    weighted = carver.take(rows * call.width);
    key_sums = carver.take(slots * call.sum_floats());
    query_sums = carver.take(slots * query_sum_floats(call));
    exponents = carver.take(2 * slots);
  }
  [[nodiscard]] static std::int64_t query_sum_floats(const LinearCall& call) noexcept {
    return Sums::floats_for(call.value_dim, call.width, call.width);
  }
};

// A key head of a batch row, with the query heads that read it.
struct LinearBackwardUnit {
  std::int64_t b, key_head;
  Sums keys, queries;
  LinearCut* cuts;
  std::int64_t* cut_count;
};

struct LinearBackward {
  const LinearCall& call;
  core::ConstHeadsView d_out;
  core::HeadsView d_q, d_k, d_v;
  std::int64_t slots;  // key heads that a thread works on at once
  Scratch* scratch;
  float* inverses;        // [batch, heads, queries]
  float* d_denominators;  // [batch, heads, queries]
  LinearCut* cuts;        // [threads, slots, keys]
  std::int64_t* cut_counts;

  [[nodiscard]] LinearBackwardUnit unit(std::int64_t index, std::int64_t slot, std::int64_t thread,
                                        const LinearBackwardWorkspace& work) const;
  void begin(const LinearBackwardUnit& unit) const;
  void run_row(std::int64_t first, std::int64_t last, std::int64_t thread,
               LinearBackwardWorkspace& work) const;

  // Left to right: keys go into the sums, gradients of queries come out of them.
  void add_keys(const LinearBackwardUnit& unit, std::int64_t first, std::int64_t count,
                LinearBackwardWorkspace& work) const;
  void causal_queries(const LinearBackwardUnit& unit, std::int64_t first, std::int64_t count,
                      LinearBackwardWorkspace& work) const;
  void all_queries(const LinearBackwardUnit& unit, std::int64_t first, std::int64_t count,
                   LinearBackwardWorkspace& work) const;
  // Right to left: queries go into the mirrored sums, gradients of keys and values come out.
  void causal_keys(const LinearBackwardUnit& unit, std::int64_t first, std::int64_t count,
                   LinearBackwardWorkspace& work) const;
  void all_keys(const LinearBackwardUnit& unit, std::int64_t first, std::int64_t count,
                LinearBackwardWorkspace& work) const;

 private:
  // The queries' own chunk of keys, besides the sums before it; none: the sums are all.
  enum class Own : std::uint8_t { none, chunk };
  void flip_keys(LinearBackwardWorkspace& work) const;
  void query_gradient(const LinearBackwardUnit& unit, std::int64_t h, std::int64_t first,
                      std::int64_t count, Own own, LinearBackwardWorkspace& work) const;
  void begin_keys(const LinearBackwardUnit& unit, float exponent,
                  LinearBackwardWorkspace& work) const;
  void key_gradient_of_own(const LinearBackwardUnit& unit, std::int64_t h,
                           LinearBackwardWorkspace& work) const;
  void end_keys(const LinearBackwardUnit& unit, LinearBackwardWorkspace& work) const;
  void add_query_products(const LinearBackwardUnit& unit, std::int64_t count,
                          LinearBackwardWorkspace& work) const;
  void rotate_back(const ChunkRows& rows, std::int64_t first, std::int64_t count,
                   float* gradient) const;
  [[nodiscard]] std::int64_t query_index(const LinearBackwardUnit& unit, std::int64_t h,
                                         std::int64_t first) const noexcept {
    return (unit.b * call.q.heads + h) * call.q.tokens + first;
  }
};

LinearBackwardUnit LinearBackward::unit(std::int64_t index, std::int64_t slot, std::int64_t thread,
                                        const LinearBackwardWorkspace& work) const {
  const std::int64_t held = thread * slots + slot;
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
  *unit.cut_count = 0;
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
  change_exponent(call, ScaleOf::keys, exponent, unit.keys);
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
    change_exponent(call, ScaleOf::keys, exponent, unit.keys);
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

// Not causal: queries against the sums over all keys; they are added to the mirrored sums at once.
void LinearBackward::all_queries(const LinearBackwardUnit& unit, std::int64_t first,
                                 std::int64_t count, LinearBackwardWorkspace& work) const {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  *unit.queries.exponent = *unit.keys.exponent;
  kernels.transpose(unit.keys.products, unit.keys.columns, call.dim, call.value_width, work.flipped,
                    call.width);
  for (std::int64_t h = unit.key_head * call.group; h < (unit.key_head + 1) * call.group; ++h) {
    query_gradient(unit, h, first, count, Own::none, work);
    add_query_products(unit, count, work);
    kernels.scaled_rows(work.queries.features, call.width, work.d_denominators, 1, count,
                        call.width, work.weighted, call.width, 0);
    kernels.running_sums(work.weighted, call.width, count, call.width, unit.queries.vectors,
                         work.vector_sums, call.width, work.vector_total);
    kernels.add_carried(work.vector_total, call.width, unit.queries.vectors,
                        unit.queries.vectors_carry);
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
  change_exponent(call, ScaleOf::queries, exponent, unit.queries);
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

// Units [first, last) of one batch row, a chunk of tokens at a time.
void LinearBackward::run_row(std::int64_t first, std::int64_t last, std::int64_t thread,
                             LinearBackwardWorkspace& work) const {
  const std::int64_t b = first / call.k.heads;
  const auto for_each_unit = [&](const auto& visit) {
    for (std::int64_t u = first; u < last; ++u) visit(unit(u, u - first, thread, work));
  };
  const auto for_each_chunk = [&](std::int64_t from, std::int64_t to, const auto& visit) {
    for (std::int64_t at = from; at < to; at += call.chunk) {
      core::throw_if_cancelled();
      visit(at, std::min(call.chunk, to - at));
    }
  };
  const auto for_each_chunk_back = [&](std::int64_t from, std::int64_t to, const auto& visit) {
    for (std::int64_t end = to; end > from;) {
      core::throw_if_cancelled();
      const std::int64_t at = from + (end - from - 1) / call.chunk * call.chunk;
      visit(at, end - at);
      end = at;
    }
  };
  for_each_unit([&](const LinearBackwardUnit& u) { begin(u); });

  const std::int64_t keys_before =
      call.is_causal() ? std::max<std::int64_t>(call.offset, 0) : call.k.tokens;
  for_each_chunk(0, keys_before, [&](std::int64_t at, std::int64_t count) {
    make_key_rows(call, b, at, count, work.key_rows);
    for_each_unit([&](const LinearBackwardUnit& u) { add_keys(u, at, count, work); });
  });
  if (!call.is_causal()) {
    for_each_chunk(0, call.q.tokens, [&](std::int64_t at, std::int64_t count) {
      make_query_rows(call, b, at, count, work.query_rows);
      for_each_unit([&](const LinearBackwardUnit& u) { all_queries(u, at, count, work); });
    });
    for_each_chunk(0, call.k.tokens, [&](std::int64_t at, std::int64_t count) {
      make_key_rows(call, b, at, count, work.key_rows);
      for_each_unit([&](const LinearBackwardUnit& u) { all_keys(u, at, count, work); });
    });
    return;
  }
  for_each_chunk(keys_before, call.k.tokens, [&](std::int64_t at, std::int64_t count) {
    make_key_rows(call, b, at, count, work.key_rows);
    make_aligned_query_rows(call, b, at, count, work.key_rows, work.query_rows);
    for_each_unit([&](const LinearBackwardUnit& u) { causal_queries(u, at, count, work); });
  });
  for_each_chunk_back(keys_before, call.k.tokens, [&](std::int64_t at, std::int64_t count) {
    make_key_rows(call, b, at, count, work.key_rows);
    make_aligned_query_rows(call, b, at, count, work.key_rows, work.query_rows);
    for_each_unit([&](const LinearBackwardUnit& u) { causal_keys(u, at, count, work); });
  });
  for_each_chunk_back(0, keys_before, [&](std::int64_t at, std::int64_t count) {
    make_key_rows(call, b, at, count, work.key_rows);
    for_each_unit([&](const LinearBackwardUnit& u) { causal_keys(u, at, count, work); });
  });
  // More queries than keys: the first see none.
  std::fill_n(work.to_inputs.d_inputs, room_for(call.chunk) * call.input_width, 0.0F);
  for (std::int64_t at = 0; at < -call.offset; at += call.chunk) {
    for (std::int64_t h = first % call.k.heads * call.group;
         h < ((last - 1) % call.k.heads + 1) * call.group; ++h) {
      write_tokens(call, work.to_inputs.d_inputs, call.input_width,
                   std::min(call.chunk, -call.offset - at), d_q, b, h, at);
    }
  }
}

void run_linear_backward_part(void* context, int part, int parts) {
  const LinearBackward& backward = *static_cast<const LinearBackward*>(context);
  Carver carver = backward.scratch->part(part);
  LinearBackwardWorkspace work(backward.call, backward.slots, carver);
  const std::int64_t heads = backward.call.k.heads;
  const std::int64_t units = backward.call.k.batch * heads;
  const std::int64_t last = units * (part + 1) / parts;
  for (std::int64_t first = units * part / parts; first < last;) {
    const std::int64_t end = std::min(last, (first / heads + 1) * heads);
    backward.run_row(first, end, part, work);
    first = end;
  }
}

}  // namespace

LinearBackwardMemory make_linear_backward_memory(const LinearCall& call) {
  LinearBackwardMemory memory;
  const std::int64_t units = call.k.batch * call.k.heads;
  memory.threads = linear_threads(call, units);
  memory.slots = std::min(call.k.heads, (units + memory.threads - 1) / memory.threads);
  Carver counter;
  const LinearBackwardWorkspace measure(call, memory.slots, counter);
  memory.scratch = Scratch(memory.threads, counter.used());
  const auto rows =
      static_cast<std::size_t>(call.is_causal() ? call.q.batch * call.q.heads * call.q.tokens : 0);
  memory.inverses.resize(rows);
  memory.d_denominators.resize(rows);
  memory.cut_room = memory.threads * memory.slots * call.k.tokens + 1;
  memory.cuts.reset(new LinearCut[static_cast<std::size_t>(memory.cut_room)]);
  memory.cut_counts.resize(static_cast<std::size_t>(memory.threads * memory.slots));
  return memory;
}

void run_linear_backward(const LinearCall& call, LinearBackwardMemory& memory,
                         const core::ConstHeadsView& d_out, const core::HeadsView& d_q,
                         const core::HeadsView& d_k, const core::HeadsView& d_v) {
  LinearBackward backward{call,
                          d_out,
                          d_q,
                          d_k,
                          d_v,
                          memory.slots,
                          &memory.scratch,
                          memory.inverses.data(),
                          memory.d_denominators.data(),
                          memory.cuts.get(),
                          memory.cut_counts.data()};
  core::run_parts(memory.threads, run_linear_backward_part, &backward);
}

void linear_attend_backward(const std::optional<core::Rotary>& rotary, core::ConstHeadsView q,
                            core::ConstHeadsView k, core::ConstHeadsView v,
                            core::ConstHeadsView d_out, core::HeadsView d_q, core::HeadsView d_k,
                            core::HeadsView d_v, const LinearOptions& options) {
  LinearPlan plan(rotary, linear_sizes(q, k, v), options, LinearUse::backward);
  plan.run_backward(q, k, v, d_out, d_q, d_k, d_v);
}

}  // namespace phasor::attention
