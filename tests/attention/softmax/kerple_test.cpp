// KERPLE in attention: the bias of each pair computed where it is added, and differences of the
// result for the gradients of r1 and r2.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "attention/reference/attend_reference.hpp"
#include "attention/softmax/wide_support.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::attention::tests {
namespace {

using encodings::Kerple;
using encodings::ScoreTerms;
using encodings::Table;
using encodings::TableGradient;

constexpr std::int64_t kKerpleHeads = 4, kKeyHeads = 2, kKerpleDim = 6, kQueries = 5, kKeys = 9;

struct KerpleProblem {
  std::vector<double> q, k, v, d_out;
  std::vector<double> r1 = {1.5, 0.3, 4.0, 0.05}, r2 = {0.6, 3.0, 0.02, 1.0};
  std::vector<float> narrow_r1{r1.begin(), r1.end()}, narrow_r2{r2.begin(), r2.end()};
  AttentionOptions options;

  explicit KerpleProblem(Causality causality) {
    options.causality = causality;
    std::mt19937_64 random(5);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<double>& to, std::int64_t size) {
      for (std::int64_t i = 0; i < size; ++i) to.push_back(normal(random));
    };
    fill(q, kQueries * kKerpleHeads * kKerpleDim);
    fill(k, kKeys * kKeyHeads * kKerpleDim);
    fill(v, kKeys * kKeyHeads * kKerpleDim);
    fill(d_out, kQueries * kKerpleHeads * kKerpleDim);
  }

  [[nodiscard]] core::ConstHeadsView q_view() const {
    return core::heads_view(q.data(), 1, kQueries, kKerpleHeads, kKerpleDim);
  }
  [[nodiscard]] core::ConstHeadsView k_view() const {
    return core::heads_view(k.data(), 1, kKeys, kKeyHeads, kKerpleDim);
  }
  [[nodiscard]] core::ConstHeadsView v_view() const {
    return core::heads_view(v.data(), 1, kKeys, kKeyHeads, kKerpleDim);
  }
  [[nodiscard]] Kerple encoding() const {
    Table one = encodings::row_per_head(narrow_r1.data(), kKerpleHeads, 1);
    Table two = encodings::row_per_head(narrow_r2.data(), kKerpleHeads, 1);
    one.wide = r1.data();
    two.wide = r2.data();
    return {one, two};
  }
  [[nodiscard]] ScoreTerms terms() const {
    return encodings::resolve(encoding(),
                              {kKerpleHeads, kKeyHeads, kKerpleDim, kKerpleDim, kQueries, kKeys});
  }

  // softmax(q.k / sqrt(d) - r1 ln(1 + r2 |m - n|)) v, one pair at a time.
  [[nodiscard]] std::vector<double> pair_by_pair() const {
    std::vector<double> out(q.size(), 0.0);
    for (std::int64_t i = 0; i < kQueries; ++i) {
      const std::int64_t m = kKeys - kQueries + i;
      const std::int64_t seen = options.causality == Causality::none ? kKeys : m + 1;
      for (std::int64_t h = 0; h < kKerpleHeads; ++h) {
        const std::int64_t key_head = h / (kKerpleHeads / kKeyHeads);
        const auto head = static_cast<std::size_t>(h);
        const std::int64_t at_q = (i * kKerpleHeads + h) * kKerpleDim;
        double total = 0.0;
        for (std::int64_t n = 0; n < seen; ++n) {
          const std::int64_t at_k = (n * kKeyHeads + key_head) * kKerpleDim;
          double dot = 0.0;
          for (std::int64_t c = 0; c < kKerpleDim; ++c)
            dot += q[static_cast<std::size_t>(at_q + c)] * k[static_cast<std::size_t>(at_k + c)];
          const double distance = std::fabs(static_cast<double>(m - n));
          const double score = dot / std::sqrt(static_cast<double>(kKerpleDim)) -
                               r1[head] * std::log(1.0 + r2[head] * distance);
          const double weight = std::exp(score);
          total += weight;
          for (std::int64_t c = 0; c < kKerpleDim; ++c)
            out[static_cast<std::size_t>(at_q + c)] +=
                weight * v[static_cast<std::size_t>(at_k + c)];
        }
        for (std::int64_t c = 0; c < kKerpleDim; ++c)
          out[static_cast<std::size_t>(at_q + c)] /= total;
      }
    }
    return out;
  }
  [[nodiscard]] double loss() const {
    const std::vector<double> out = pair_by_pair();
    double sum = 0.0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * d_out[i];
    return sum;
  }
};

TEST(KerpleAttention, IsTheFormulaPairByPair) {
  for (const Causality causality : {Causality::none, Causality::bottom_right}) {
    const KerpleProblem p(causality);
    const std::vector<double> want = p.pair_by_pair();
    const ScoreTerms terms = p.terms();
    std::vector<double> out(want.size());
    attend(terms, p.q_view(), p.k_view(), p.v_view(),
           core::heads_view(out.data(), 1, kQueries, kKerpleHeads, kKerpleDim), p.options);
    expect_wide("float64", out, want);
    expect_wide("matrix",
                attend_reference(terms, p.q_view(), p.k_view(), p.v_view(), p.options).out, want);
    const std::vector<float> q(p.q.begin(), p.q.end()), k(p.k.begin(), p.k.end()),
        v(p.v.begin(), p.v.end());
    std::vector<float> narrow(want.size());
    attend(terms, core::heads_view(q.data(), 1, kQueries, kKerpleHeads, kKerpleDim),
           core::heads_view(k.data(), 1, kKeys, kKeyHeads, kKerpleDim),
           core::heads_view(v.data(), 1, kKeys, kKeyHeads, kKerpleDim),
           core::heads_view(narrow.data(), 1, kQueries, kKerpleHeads, kKerpleDim), p.options);
    expect_wide("float32", {narrow.begin(), narrow.end()}, want, 2e-6);
  }
}

TEST(KerpleAttention, GradientsOfR1AndR2AreDifferenceQuotients) {
  for (const Causality causality : {Causality::none, Causality::bottom_right}) {
    KerpleProblem p(causality);
    const ScoreTerms terms = p.terms();
    const std::vector<double> rows =
        attend_backward_reference(
            terms, p.q_view(), p.k_view(), p.v_view(),
            core::heads_view(p.d_out.data(), 1, kQueries, kKerpleHeads, kKerpleDim), p.options)
            .bias;
    std::vector<double> d_rows_memory = rows, got1(kKerpleHeads), got2(kKerpleHeads);
    TableGradient d_rows =
        encodings::heads_then_rows<float>(nullptr, kKerpleHeads, terms.bias->table.rows, 1);
    TableGradient d_r1 = encodings::row_per_head<float>(nullptr, kKerpleHeads, 1), d_r2 = d_r1;
    d_rows.wide = d_rows_memory.data();
    d_r1.wide = got1.data();
    d_r2.wide = got2.data();
    encodings::kerple_backward(p.encoding(), d_rows, d_r1, d_r2);
    constexpr double kStep = 1e-5;
    const auto slope = [&](double& number) {
      const double kept = number;
      number = kept + kStep;
      const double up = p.loss();
      number = kept - kStep;
      const double down = p.loss();
      number = kept;
      return (up - down) / (2.0 * kStep);
    };
    for (std::size_t h = 0; h < kKerpleHeads; ++h) {
      EXPECT_NEAR(got1[h], slope(p.r1[h]), 1e-8) << h;
      EXPECT_NEAR(got2[h], slope(p.r2[h]), 1e-7) << h;
    }
  }
}

}  // namespace
}  // namespace phasor::attention::tests
