// The backward pass of linear attention: its scratch and its steps.
#pragma once

#include "attention/linear/linear_plan.hpp"

namespace phasor::attention {

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
  float* query_total;     // [width]
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
    query_total = carver.take(call.width);
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
  LinearExtent extent;
  LinearStep step;

  [[nodiscard]] LinearBackwardUnit unit(std::int64_t index, std::int64_t slot, std::int64_t thread,
                                        const LinearBackwardWorkspace& work) const;
  void begin(const LinearBackwardUnit& unit) const;
  void end(const LinearBackwardUnit& unit) const;
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
  void scale_queries(const LinearBackwardUnit& unit, float exponent,
                     LinearBackwardWorkspace& work) const;
  void add_queries(const LinearBackwardUnit& unit, std::int64_t count,
                   LinearBackwardWorkspace& work) const;
  void rotate_back(const ChunkRows& rows, std::int64_t first, std::int64_t count,
                   float* gradient) const;
  [[nodiscard]] std::int64_t query_index(const LinearBackwardUnit& unit, std::int64_t h,
                                         std::int64_t first) const noexcept {
    return (unit.b * call.q.heads + h) * call.q.tokens + first;
  }
};

}  // namespace phasor::attention
