// What a plan of attention holds: sizes, sequences and positions, known without data, and the views of
// one run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "attention/kernels/kernels.hpp"
#include "attention/rotator.hpp"
#include "attention/softmax/call_memory.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::attention {

using core::shape_text;
using phasor::refuse;

// Scores are powers of two inside the kernels, and natural outside.
inline constexpr double kLog2e = 1.44269504088896340736;
inline constexpr double kLn2 = 0.693147180559945309417;

// Distances m - n that occur in any sequence of the call.
struct DistanceRange {
  std::int64_t low = 0, high = 0;
};

// Whether a table that differs by head is worth packing for all heads at once.
enum class Reuse : std::uint8_t { one_run, many_runs };

struct Call {
  const encodings::ScoreTerms& terms;
  core::ConstHeadsView q, k, v;  // without data until bind()
  const AttentionOptions& options;
  const kernels::Kernels& kernels;
  std::int64_t heads, key_heads, group;
  std::int64_t head_dim, value_dim;
  std::int64_t extra_dim;  // extra features of each row, TUPE's first token included
  double scale;
  int threads;
  CallMemory& memory;
  Reuse reuse;
  std::span<const Sequence> sequences;         // in memory
  DistanceRange distances;                     // that queries may see, if there are tables of rows
  std::int64_t bias_first = 0, bias_last = 0;  // columns of the bias
  std::int64_t most_queries = 0, most_keys = 0;  // of a sequence
  std::optional<Rotator> query_rotator, key_rotator;
  // Whether the memory of the forward pass (but for few_queries.cpp) and of the backward pass, with
  // the tables, is prepared for this call.
  bool has_forward = false, has_backward = false;

  // Float64 views: wide.hpp, not the kernels.
  [[nodiscard]] bool is_wide() const noexcept { return q.dtype == core::DType::f64; }
  [[nodiscard]] std::int64_t depth() const noexcept { return head_dim + extra_dim; }
  [[nodiscard]] bool has_first_token() const noexcept {
    return terms.first_row.given() || terms.first_column.given();
  }
  // Whether distances are those of memory.places.
  [[nodiscard]] bool is_scattered() const noexcept { return !memory.places.keys.empty(); }
  // The position of query i and key j of a sequence.
  [[nodiscard]] std::int64_t query_position(const Sequence& s, std::int64_t i) const noexcept {
    if (!is_scattered()) return s.origin + s.offset + s.shift + i;
    const std::int64_t token = s.batch * q.tokens + s.first_query + i;
    return s.origin + memory.places.queries[static_cast<std::size_t>(token)];
  }
  [[nodiscard]] std::int64_t key_position(const Sequence& s, std::int64_t j) const noexcept {
    if (!is_scattered()) return s.origin + j;
    const std::int64_t token = s.batch * k.tokens + s.first_key + j;
    return s.origin + memory.places.keys[static_cast<std::size_t>(token)];
  }
  // The rows of extra_query and extra_key that they read.
  [[nodiscard]] std::int64_t query_row(const Sequence& s, std::int64_t i) const noexcept {
    return options.query_positions ? query_position(s, i) : i;
  }
  [[nodiscard]] std::int64_t key_row(const Sequence& s, std::int64_t j) const noexcept {
    return options.key_positions ? key_position(s, j) : j;
  }
  [[nodiscard]] bool has_refusing_map() const noexcept;
  // b[r(distance)], and with it - slope |distance|; natural.
  [[nodiscard]] double table_bias_of(std::int64_t head, std::int64_t distance) const noexcept;
  [[nodiscard]] double bias_of(std::int64_t head, std::int64_t distance) const noexcept;
  [[nodiscard]] bool has_bias() const noexcept { return terms.bias || !terms.slopes.empty(); }
};

// throws   Error(code, "where: what")
[[noreturn]] void refuse(ErrorCode code, const char* where, const std::string& what);

// The sizes of views that agree.
//
// throws   Error(invalid_argument | shape_mismatch | unsupported)
[[nodiscard]] AttentionSizes sizes_of(const char* where, const core::ConstHeadsView& q,
                                      const core::ConstHeadsView& k, const core::ConstHeadsView& v);
// Checks sizes, options and tables, and computes the rows of cos and sin. `terms`, `options` and
// `memory` must outlive the call; `memory` serves no other meanwhile.
//
// throws   Error(invalid_argument | shape_mismatch | unsupported | out_of_range) as attend()
[[nodiscard]] Call make_call(const char* where, const encodings::ScoreTerms& terms,
                             const AttentionSizes& sizes, const AttentionOptions& options,
                             CallMemory& memory, Reuse reuse);
// Gives a call the views of one run.
//
// throws   Error(invalid_argument | shape_mismatch | unsupported) unless they have its sizes
void bind(const char* where, Call& call, const core::ConstHeadsView& q,
          const core::ConstHeadsView& k, const core::ConstHeadsView& v);
// throws   Error unless the view is writable memory for [batch, tokens, heads, dim] that overlaps no
//          input of the bound call
void check_output(const char* where, const char* name, const core::HeadsView& view,
                  std::int64_t batch, std::int64_t tokens, std::int64_t heads, std::int64_t dim,
                  const Call& call);

// throws   Error(unsupported) if only one of the two is f64: a call computes in float64 or in
//          float32
void check_width(const char* where, const char* name, core::DType dtype, const char* like_name,
                 core::DType like);

// Every element becomes zero.
void clear_view(const core::HeadsView& view);

[[nodiscard]] kernels::Storage storage_of(core::DType dtype) noexcept;
// The rows of one head from `token` on.
[[nodiscard]] kernels::Rows rows_of(const core::ConstHeadsView& view, std::int64_t batch,
                                    std::int64_t head, std::int64_t token) noexcept;
[[nodiscard]] const kernels::Kernels& kernels_for(core::InstructionSet isa);

}  // namespace phasor::attention
