#include "attention/encodings.hpp"

#include <cmath>

namespace phasor::bench {
namespace {

using attention::Causality;
using encodings::Encoding;
using encodings::Table;
using encodings::TableGradient;

constexpr double kRowSize = 0.3;  // of trained rows; queries and keys have size 1
constexpr std::int64_t kBuckets = 32;

// The gradient of a table, if there is one, in separate memory.
TableGradient gradient_of(const Table& table, std::deque<std::vector<float>>& storage) {
  if (!table.given()) return {};
  storage.emplace_back(static_cast<std::size_t>(table.heads * table.rows * table.dim));
  return encodings::heads_then_rows(storage.back().data(), table.heads, table.rows, table.dim);
}
TableGradient gradient_of(const std::optional<encodings::RelativeRows>& rows,
                          std::deque<std::vector<float>>& storage) {
  return rows ? gradient_of(rows->table, storage) : TableGradient{};
}

}  // namespace

bool is_close(const core::ConstHeadsView& got, const std::vector<double>& expected) {
  // Gradients are sums over tokens, so errors are relative to the largest value.
  double largest = 1.0;
  for (const double value : expected) largest = std::fmax(largest, std::fabs(value));
  // Backward reads the stored output: two roundings to the storage.
  const double tolerance = got.dtype == core::DType::f16    ? 0x1p-10
                           : got.dtype == core::DType::bf16 ? 0x1p-7
                                                            : 2e-5;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error =
        std::fabs(core::element_of(got, static_cast<std::int64_t>(i)) - expected[i]);
    if (!(error <= tolerance * largest)) return false;
  }
  return true;
}

Wide::Wide(const core::ConstHeadsView& of)
    : values(static_cast<std::size_t>(of.batch * of.tokens * of.heads * of.head_dim)),
      view(core::heads_view(values.data(), of.batch, of.tokens, of.heads, of.head_dim)) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = core::element_of(of, static_cast<std::int64_t>(i));
  }
}

std::string_view name_of(Kind kind) noexcept {
  constexpr std::array<std::string_view, kKinds.size()> kNames = {"none",
                                                                  "rope",
                                                                  "t5",
                                                                  "alibi",
                                                                  "alibi_steep",
                                                                  "shaw_keys_129",
                                                                  "shaw_values_129",
                                                                  "shaw_129",
                                                                  "deberta_128",
                                                                  "deberta_1024",
                                                                  "transformer_xl",
                                                                  "xlnet",
                                                                  "tupe",
                                                                  "tupe_untied"};
  return kNames[static_cast<std::size_t>(kind)];
}

void fill_normal(float* x, std::size_t count, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (std::size_t i = 0; i < count; ++i) {
    // Four uniform 16-bit numbers from one step of splitmix64; their sum has variance 4/12.
    std::uint64_t bits = state += 0x9E3779B97F4A7C15U;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
    bits ^= bits >> 31;
    const auto sum = static_cast<double>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                         (bits >> 32 & 0xFFFF) + (bits >> 48));
    x[i] = static_cast<float>((sum / 65536.0 - 2.0) * 1.7320508075688772);
  }
}

Problem::Problem(Kind kind, const Shape& shape)
    : shape_(shape),
      q_(bytes(shape.heads)),
      k_(bytes(shape.key_heads)),
      v_(bytes(shape.key_heads)),
      out_(bytes(shape.heads)) {
  fill(q_, shape.heads, 1);
  fill(k_, shape.key_heads, 2);
  fill(v_, shape.key_heads, 3);
  const encodings::AttentionShape attention{.heads = shape.heads,
                                            .key_heads = shape.key_heads,
                                            .head_dim = shape.dim,
                                            .value_dim = shape.dim,
                                            .query_tokens = shape.tokens,
                                            .key_tokens = shape.tokens};
  terms_ = encodings::resolve(make(kind), attention);
  if (kind == Kind::shaw_values) terms_.query_rows.reset();
  if (kind == Kind::alibi_steep) {
    for (double& slope : terms_.slopes) slope *= 32.0;
  }
}

void Problem::fill(const Buffer& buffer, std::int64_t heads, std::uint64_t seed) const {
  fill_normal(buffer.floats(), buffer.count(), seed);
  if (shape_.dtype == core::DType::f32) return;
  // In place: what is written ends before what is read next.
  const core::HeadsView to = view(buffer, heads);
  for (std::size_t i = 0; i < buffer.count(); ++i)
    core::set_element(to, static_cast<std::int64_t>(i), static_cast<double>(buffer.floats()[i]));
}

float* Problem::numbers(std::int64_t count, double size) {
  std::vector<float>& table = tables_.emplace_back(static_cast<std::size_t>(count));
  fill_normal(table.data(), table.size(), 10 + tables_.size());
  for (float& x : table) x *= static_cast<float>(size);
  return table.data();
}

Encoding Problem::make(Kind kind) {
  const std::int64_t heads = shape_.heads, dim = shape_.dim, tokens = shape_.tokens;
  const bool causal = shape_.causality == Causality::bottom_right;
  const auto per_head = [&] {
    return encodings::row_per_head<const float>(numbers(heads * dim, kRowSize), heads, dim);
  };
  // Rows of the distances first, first - 1, ...
  const auto distance_rows = [&](std::int64_t rows) {
    return encodings::rows_then_heads<const float>(numbers(rows * heads * dim, kRowSize), rows,
                                                   heads, dim);
  };
  const auto t5 = [&] {
    return encodings::T5{
        encodings::rows_then_heads<const float>(numbers(kBuckets * heads, 1.0), kBuckets, heads, 1),
        128, causal ? encodings::BucketRange::past_only : encodings::BucketRange::bidirectional};
  };
  const auto clipped_rows = [&](std::int64_t rows) {
    return encodings::shared_rows<const float>(numbers(rows * dim, kRowSize), rows, dim);
  };
  const auto deberta = [&](std::int64_t size) {
    const auto rows = [&] {
      return encodings::heads_then_rows<const float>(numbers(heads * 2 * size * dim, kRowSize),
                                                     heads, 2 * size, dim);
    };
    const Table keys = rows(), queries = rows();
    return encodings::Deberta{encodings::Deberta::Version::v2, keys, queries, size, 0};
  };
  switch (kind) {
    case Kind::none:
      return encodings::NoEncoding{};
    case Kind::rope: {
      encodings::RopeSpec spec;
      spec.head_dim = spec.rotary_dim = dim;
      spec.layout = core::PairLayout::half;
      return spec;
    }
    case Kind::t5:
      return t5();
    case Kind::alibi:
    case Kind::alibi_steep:
      return encodings::Alibi{};
    case Kind::shaw_keys:
      return encodings::Shaw{clipped_rows(129), {}, 64, 64};
    case Kind::shaw_values:
    case Kind::shaw: {
      const Table keys = clipped_rows(129), values = clipped_rows(129);
      return encodings::Shaw{keys, values, 64, 64};
    }
    case Kind::deberta:
      return deberta(64);
    case Kind::deberta_wide:
      return deberta(512);
    case Kind::transformer_xl: {
      const Table rows = distance_rows(causal ? tokens : 2 * tokens - 1);
      const Table u = per_head(), v = per_head();
      return encodings::TransformerXl{rows, u, v, tokens - 1};
    }
    case Kind::xlnet: {
      const Table rows = distance_rows(2 * tokens);
      const Table u = per_head(), v = per_head(), w = per_head();
      const Table segments = encodings::rows_then_heads<const float>(
          numbers(2 * heads * dim, kRowSize), 2, heads, dim);
      segments_.resize(static_cast<std::size_t>(tokens));
      for (std::size_t i = segments_.size() / 2; i < segments_.size(); ++i) segments_[i] = 1;
      return encodings::Xlnet{{rows, u, v, tokens}, segments, w};
    }
    case Kind::tupe:
    case Kind::tupe_untied: {
      const auto rows = [&] {
        return encodings::heads_then_rows<const float>(numbers(heads * tokens * dim, kRowSize),
                                                       heads, tokens, dim);
      };
      const Table queries = rows(), keys = rows();
      encodings::Tupe tupe{queries, keys, t5()};
      if (kind == Kind::tupe_untied) {
        tupe.first_row = encodings::row_per_head<const float>(numbers(heads, 1.0), heads, 1);
        tupe.first_column = encodings::row_per_head<const float>(numbers(heads, 1.0), heads, 1);
      }
      return tupe;
    }
  }
  return encodings::NoEncoding{};
}

attention::AttentionOptions Problem::options(core::InstructionSet isa, int threads) const {
  attention::AttentionOptions options;
  options.causality = shape_.causality;
  options.query_segments = segments_;
  options.key_segments = segments_;
  options.threads = threads;
  options.isa = isa;
  return options;
}

void Problem::forward(core::InstructionSet isa, int threads) const {
  attention::attend(terms_, q(), k(), v(), out(), options(isa, threads));
}

void Problem::prepare_backward(core::InstructionSet isa) {
  d_out_.emplace(bytes(shape_.heads));
  d_q_.emplace(bytes(shape_.heads));
  d_k_.emplace(bytes(shape_.key_heads));
  d_v_.emplace(bytes(shape_.key_heads));
  fill(*d_out_, shape_.heads, 4);
  log_sum_exp_.resize(static_cast<std::size_t>(shape_.heads * shape_.tokens));
  attention::attend(terms_, q(), k(), v(), out(), options(isa, 1),
                    {.log_sum_exp = log_sum_exp_.data()});
  encodings::ScoreTermGradients& to = table_gradients_;
  to.content_bias = gradient_of(terms_.content_bias, tables_);
  to.position_bias = gradient_of(terms_.position_bias, tables_);
  to.query_rows = gradient_of(terms_.query_rows, tables_);
  to.key_rows = gradient_of(terms_.key_rows, tables_);
  to.bias = gradient_of(terms_.bias, tables_);
  to.extra_query = gradient_of(terms_.extra_query, tables_);
  to.extra_key = gradient_of(terms_.extra_key, tables_);
  to.first_row = gradient_of(terms_.first_row, tables_);
  to.first_column = gradient_of(terms_.first_column, tables_);
  to.segment_rows = gradient_of(terms_.segment_rows, tables_);
  to.segment_bias = gradient_of(terms_.segment_bias, tables_);
  to.value_rows = gradient_of(terms_.value_rows, tables_);
}

void Problem::backward(core::InstructionSet isa, int threads) const {
  attention::attend_backward(terms_, q(), k(), v(), {out(), log_sum_exp_.data(), d_out()},
                             {d_q(), d_k(), d_v(), table_gradients_}, options(isa, threads));
}

bool agrees_with_reference(Kind kind, Shape shape, core::InstructionSet isa, int threads,
                           Check check) {
  // Past the first tile of queries and of keys, and past a clip of 64; ragged.
  shape.tokens = 203;
  Problem problem(kind, shape);
  problem.forward(isa, threads);
  const attention::AttentionOptions options = problem.options(isa, 1);
  const Wide q(problem.q()), k(problem.k()), v(problem.v()), out(problem.out());
  std::vector<double> log_sum_exp(static_cast<std::size_t>(shape.heads * shape.tokens));
  attention::attend(problem.terms(), q.view, k.view, v.view, out.view, options,
                    {.wide_log_sum_exp = log_sum_exp.data()});
  if (!is_close(problem.out(), out.values)) return false;
  if (check == Check::forward) return true;
  problem.prepare_backward(isa);
  problem.backward(isa, threads);
  const Wide d_out(problem.d_out()), d_q(problem.d_q()), d_k(problem.d_k()), d_v(problem.d_v());
  attention::attend_backward(
      problem.terms(), q.view, k.view, v.view,
      {.out = out.view, .d_out = d_out.view, .wide_log_sum_exp = log_sum_exp.data()},
      {d_q.view, d_k.view, d_v.view, {}}, options);
  return is_close(problem.d_q(), d_q.values) && is_close(problem.d_k(), d_k.values) &&
         is_close(problem.d_v(), d_v.values);
}

}  // namespace phasor::bench
