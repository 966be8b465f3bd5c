// Compares the results of the tiled attention with the reference, within bounds.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "attention/softmax/attend_support.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::attention::tests {

inline constexpr double kEpsilon = 0x1p-23;
// A score is a sum of t float32 products. Each of the t additions rounds by at most epsilon/2 of a
// partial sum, which is about 1 in these problems (normal numbers, scaled); the signs are random,
// so that the errors add up to sqrt(t) epsilon/2, the largest of a million being 5 times that.
// Biases, soft cap and the exponential round in proportion to the score itself.
inline constexpr double kScoreError = 2.5;
// A sum over n keys rounds n times in the same way.
inline constexpr double kSumError = 1.0;

// Weights below this part of the row's largest are zeros: denormal numbers would cost time.
inline constexpr double kLeastWeight = 0x1p-100;

// What attention wrote.
struct Attended {
  Tensor out;
  std::vector<float> log_sum_exp, scores, capped_scores, masked_scores, probabilities;
};
enum class WithExtras : std::uint8_t { none, log_sum_exp, probabilities, all };

inline core::HeadsView out_view(const Problem& p, Tensor& out) {
  core::HeadsView view = out.view();
  view.data = static_cast<char*>(view.data) +
              p.what.shift * static_cast<std::int64_t>(core::size_of(view.dtype));
  return view;
}

inline Attended run_attend(const Problem& p, core::InstructionSet isa, int threads,
                           WithExtras wanted = WithExtras::none) {
  const Case& c = p.what;
  Attended got{Tensor(c.dtype, {c.batch, c.queries, c.heads, c.value_dim}, c.strides, 99),
               {},
               {},
               {},
               {},
               {}};
  const auto rows = static_cast<std::size_t>(c.batch * c.heads * c.queries);
  const std::size_t pairs = rows * static_cast<std::size_t>(c.keys);
  AttentionExtras extras;
  const auto want = [](std::vector<float>& values, std::size_t size) {
    values.assign(size + 1, -77.0F);
    return values.data();
  };
  if (wanted != WithExtras::none) extras.log_sum_exp = want(got.log_sum_exp, rows);
  if (wanted == WithExtras::all) {
    extras.scores = want(got.scores, pairs);
    extras.capped_scores = want(got.capped_scores, pairs);
    extras.masked_scores = want(got.masked_scores, pairs);
  }
  if (wanted >= WithExtras::probabilities) extras.probabilities = want(got.probabilities, pairs);
  AttentionOptions options = p.options;
  options.isa = isa;
  options.threads = threads;
  attend(p.terms, p.q_view(), p.k_view(), p.v_view(), out_view(p, got.out), options, extras);
  for (auto* values : {&got.log_sum_exp, &got.scores, &got.capped_scores, &got.masked_scores,
                       &got.probabilities}) {
    if (values->empty()) continue;
    EXPECT_EQ(values->back(), -77.0F) << "written beyond the end, " << c;
    values->pop_back();
  }
  return got;
}

// The products that make one score.
inline double products_of(const Problem& p) {
  const ScoreTerms& t = p.terms;
  const std::int64_t vectors = 1 + (t.content_bias.given() ? 1 : 0) + (t.query_rows ? 1 : 0) +
                               (t.position_bias.given() ? 1 : 0) + (t.key_rows ? 1 : 0) +
                               (t.segment_rows.given() ? 1 : 0);
  return static_cast<double>(vectors * p.what.head_dim + t.extra_query.dim);
}
// Which query and key the number at `index` of [batch, heads, queries, keys] belongs to.
struct Place {
  std::int64_t batch, head, i, j;
  std::int64_t length;  // keys that count

  [[nodiscard]] std::int64_t distance(const Case& c) const {
    return c.offset.value_or(length - c.queries) + i - j;
  }
};
inline Place place_of(const Problem& p, std::size_t index) {
  const Case& c = p.what;
  const auto at = static_cast<std::int64_t>(index);
  const std::int64_t row = at / c.keys;
  const std::int64_t batch = row / c.queries / c.heads;
  return {batch, row / c.queries % c.heads, row % c.queries, at % c.keys,
          p.key_lengths.empty() ? c.keys : p.key_lengths[static_cast<std::size_t>(batch)]};
}
// |b| + slope |m - n|, or more: the product is as large where they cancel.
inline double bias_size(const Problem& p, std::size_t index) {
  double size = 0.0;
  if (p.terms.bias) size += 4.0;  // of 16 normal numbers, hardly one is larger
  if (!p.terms.slopes.empty()) {
    const Place at = place_of(p, index);
    const std::int64_t farthest = !p.ids.keys.empty() ? p.ids.farthest
                                  : p.what.packed > 0 ? p.what.keys
                                                      : std::abs(at.distance(p.what));
    size += p.terms.slopes[static_cast<std::size_t>(at.head)] * static_cast<double>(farthest);
  }
  return size;
}
inline double score_tolerance(const Problem& p, std::size_t index, double score) {
  return kScoreError * kEpsilon *
         (std::sqrt(products_of(p)) + std::fabs(score) + bias_size(p, index));
}

inline bool near(double got, double expected, double tolerance) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isinf(expected)) return got == expected;
  return std::fabs(got - expected) <= tolerance;
}

// Reports the first few differences with the case.
class Differences {
 public:
  Differences(const Problem& p, core::InstructionSet isa) : problem_(p), isa_(isa) {}
  void check(const char* what, std::size_t index, double got, double expected, double tolerance) {
    if (near(got, expected, tolerance) || ++reported_ > 3) return;
    ADD_FAILURE() << what << "[" << index << "]: got " << got << ", expected " << expected
                  << ", off by " << got - expected << ", allowed " << tolerance << ", "
                  << core::name_of(isa_) << "\n"
                  << problem_.what;
  }

 private:
  const Problem& problem_;
  core::InstructionSet isa_;
  int reported_ = 0;
};

inline double largest_value(const Problem& p) {
  const auto largest = [](double so_far, auto x) {
    const double size = std::fabs(static_cast<double>(x));
    return size > so_far ? size : so_far;  // NaN never is
  };
  double v = 0.0, c = 0.0;
  for (const double x : p.v.wide()) v = largest(v, x);
  if (p.terms.value_rows) {
    const Table& t = p.terms.value_rows->table;
    for (std::int64_t i = 0; i < t.heads * t.rows * t.dim; ++i) c = largest(c, t.data[i]);
  }
  return v + c;
}

// The effect of the errors of one row's scores: sum_n P(m, n) |error of s(m, n)|.
inline std::vector<double> row_tolerances(const Problem& p, const ReferenceResult& expected) {
  const auto keys = static_cast<std::size_t>(p.what.keys);
  std::vector<double> tolerances(expected.log_sum_exp.size(), 0.0);
  for (std::size_t row = 0; row < tolerances.size(); ++row) {
    for (std::size_t j = 0; j < keys; ++j) {
      const std::size_t at = row * keys + j;
      if (expected.probabilities[at] > 0.0) {
        tolerances[row] +=
            expected.probabilities[at] * (score_tolerance(p, at, expected.scores[at]) +
                                          kEpsilon * std::fabs(expected.masked_scores[at]));
      }
    }
  }
  return tolerances;
}

// |error of o| = |sum_n P (error of s) (v_n - o)|, at most 2 max|v| sum_n P |error of s| if every
// error had the sign of its v_n - o; a quarter of that where they do not. Then the sums over the
// keys, and one rounding to storage.
inline double out_tolerance(const Problem& p, double row_tolerance, double largest, double exact) {
  const double sums = kSumError * kEpsilon * (4.0 + std::sqrt(static_cast<double>(p.what.keys)));
  const double f32 = largest * (0.5 * row_tolerance + sums);
  const double size = std::fabs(exact) + f32;
  return f32 + (p.what.dtype == DType::f16    ? size * 0x1p-11 + 0x1p-25
                : p.what.dtype == DType::bf16 ? size * 0x1p-8
                                              : 0.0);
}

// Whether a raw score is defined: padding, which may hold anything, and tokens of other packed
// sequences have none, and rows by distance are read no farther than causality and window reach.
inline bool has_score(const Problem& p, std::size_t index) {
  const Case& c = p.what;
  if (c.packed > 0) return false;
  const Place at = place_of(p, index);
  if (at.j >= at.length) return false;
  if (!p.key_padding.empty() &&
      p.key_padding[static_cast<std::size_t>(at.batch * c.keys + at.j)] == 0) {
    return false;
  }
  if (!p.terms.query_rows && !p.terms.key_rows) return true;
  return (c.causality == Causality::none || at.distance(c) >= 0) &&
         (c.window == 0 || std::abs(at.distance(c)) < c.window);
}

// What is expected of every instruction set.
struct Expectation {
  explicit Expectation(const Problem& p)
      : result(p.reference()), tolerances(row_tolerances(p, result)), largest(largest_value(p)) {}
  ReferenceResult result;
  std::vector<double> tolerances;
  double largest;
};

inline void expect_near_reference(const Problem& p, const Expectation& expectation,
                                  const Attended& got, core::InstructionSet isa) {
  const Case& c = p.what;
  const auto& [expected, tolerances, largest] = expectation;
  Differences differences(p, isa);
  const auto row_of = [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    return static_cast<std::size_t>((b * c.heads + h) * c.queries + i);
  };

  // Gaps between the rows must have kept their pattern: with the rows put back, nothing differs.
  Tensor restored = got.out;
  Tensor before(c.dtype, {c.batch, c.queries, c.heads, c.value_dim}, c.strides, 99);
  const core::HeadsView out = out_view(p, restored), old = out_view(p, before);
  std::size_t dense = 0;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t i = 0; i < c.queries; ++i) {
      for (std::int64_t h = 0; h < c.heads; ++h) {
        const double tolerance = tolerances[row_of(b, h, i)];
        for (std::int64_t d = 0; d < c.value_dim; ++d, ++dense) {
          const std::int64_t at =
              b * out.batch_stride + i * out.token_stride + h * out.head_stride + d;
          const double exact = expected.out[dense];
          differences.check("out", dense, core::element_of(out, at), exact,
                            out_tolerance(p, tolerance, largest, exact));
          core::set_element(out, at, core::element_of(old, at));
        }
      }
    }
  }
  EXPECT_EQ(std::memcmp(restored.bytes().data(), before.bytes().data(), before.bytes().size()), 0)
      << "written between the rows, " << c;

  const double sums = kSumError * kEpsilon * (4.0 + std::sqrt(static_cast<double>(c.keys)));
  for (std::size_t row = 0; row < got.log_sum_exp.size(); ++row) {
    const double exact = expected.log_sum_exp[row];
    differences.check("log_sum_exp", row, got.log_sum_exp[row], exact,
                      tolerances[row] + sums + kEpsilon * std::fabs(exact));
  }
  for (std::size_t at = 0; at < got.scores.size(); ++at) {
    const double tolerance = score_tolerance(p, at, expected.scores[at]);
    if (has_score(p, at)) {
      differences.check("scores", at, got.scores[at], expected.scores[at], tolerance);
      differences.check("capped_scores", at, got.capped_scores[at], expected.capped_scores[at],
                        tolerance);
    }
    const double masked = expected.masked_scores[at];
    differences.check("masked_scores", at, got.masked_scores[at], masked,
                      tolerance + kEpsilon * std::fabs(masked));
  }
  for (std::size_t at = 0; at < got.probabilities.size(); ++at) {
    const double tolerance = score_tolerance(p, at, expected.scores[at]);
    const double masked = expected.masked_scores[at];
    const double probability = expected.probabilities[at];
    const double row_tolerance = tolerances[at / static_cast<std::size_t>(c.keys)];
    const double spread = tolerance + kEpsilon * std::fabs(masked) + row_tolerance + 2.0 * sums;
    differences.check("probabilities", at, got.probabilities[at], probability,
                      (probability > 0.0 ? probability * spread : 0.0) + kLeastWeight);
  }
}

inline double largest_of(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double x : values) largest = std::fmax(largest, std::fabs(x));
  return largest;
}

// dS = P (dP - D): P is off by what its score is off (row_tolerances), dP and D by the rounding of
// value_dim products, and by that of `out` to its storage. A gradient sums such dS over tokens;
// what cancels in the sum still leaves its rounding, hence the second part of `size`: products of
// value_dim normal numbers are about sqrt(value_dim), summed over the rows that meet in a table.
inline constexpr double kBackwardError = 1.0;
inline double relative_error(const Problem& p, const ReferenceResult& forward) {
  double row = 0.0;
  for (const double x : row_tolerances(p, forward)) row = std::fmax(row, x);
  const Case& c = p.what;
  const auto most = static_cast<double>(std::max(c.keys, c.batch * c.queries * c.heads));
  const double storage = c.dtype == DType::bf16 ? 0x1p-8 : c.dtype == DType::f16 ? 0x1p-11 : 0.0;
  return kBackwardError * (row + kEpsilon * (1.0 + std::sqrt(most)) + storage);
}

// Every instruction set against the reference.
inline void expect_attends(const Problem& p, WithExtras wanted = WithExtras::none) {
  const Expectation expectation(p);
  for (const core::InstructionSet isa : core::available_instruction_sets()) {
    expect_near_reference(p, expectation, run_attend(p, isa, 1, wanted), isa);
  }
}
inline void expect_attends(const Case& c, WithExtras wanted = WithExtras::none) {
  expect_attends(Problem(c), wanted);
}

}  // namespace phasor::attention::tests
