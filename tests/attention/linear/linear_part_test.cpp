#include "phasor/attention/internal/linear_part.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "attention/linear/linear_support.hpp"
#include "support/errors.hpp"

namespace phasor::attention {
namespace {

using tests::LinearCase;
using tests::LinearProblem;
using tests::part_of;
using tests::Tensor;

// The parts of a sequence, as programs would run that exchange their sums.
class Parts {
 public:
  Parts(const LinearProblem& p, const std::vector<std::int64_t>& counts) : p_(p) {
    std::int64_t first = 0;
    for (const std::int64_t count : counts) {
      LinearOptions options = p.options;
      options.query_positions = options.key_positions = core::positions_from(first);
      LinearSizes sizes = linear_sizes(p.q.view(), p.k.view(), p.v.view());
      sizes.queries = sizes.keys = count;
      parts_.push_back({first, count, LinearPart(p.rotary, sizes, options, LinearUse::training)});
      first += count;
    }
  }

  Tensor attend() {
    Tensor out = p_.new_out();
    const std::vector<PartSums> entering = sum_keys();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      Part& part = parts_[i];
      part.plan.attend(of(p_.q, part), of(p_.k, part), of(p_.v, part), entering[i],
                       part_of(out.view(), part.first, part.count));
    }
    return out;
  }

  tests::LinearGradients backward() {
    tests::LinearGradients got = tests::fresh_gradients(p_);
    const std::vector<PartSums> keys = sum_keys();
    std::vector<PartSums> queries;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      Part& part = parts_[i];
      queries.push_back(part.plan.sums(SumsOf::queries));
      part.plan.query_gradients(of(p_.q, part), of(p_.k, part), of(p_.v, part), of(p_.d_out, part),
                                keys[i], part_of(got.d_q.view(), part.first, part.count),
                                queries[i]);
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      Part& part = parts_[i];
      PartSums entering = part.plan.sums(SumsOf::queries);
      for (std::size_t from = is_causal() ? i + 1 : 0; from < parts_.size(); ++from) {
        entering.add(queries[from]);
      }
      part.plan.key_gradients(of(p_.q, part), of(p_.k, part), of(p_.v, part), of(p_.d_out, part),
                              entering, part_of(got.d_k.view(), part.first, part.count),
                              part_of(got.d_v.view(), part.first, part.count));
    }
    return got;
  }

 private:
  struct Part {
    std::int64_t first, count;
    LinearPart plan;
  };
  [[nodiscard]] bool is_causal() const { return p_.what.causality == Causality::bottom_right; }
  static core::ConstHeadsView of(const Tensor& x, const Part& part) {
    return part_of(x.view(), part.first, part.count);
  }
  // What enters each part.
  std::vector<PartSums> sum_keys() {
    std::vector<PartSums> own, entering;
    for (Part& part : parts_) {
      own.push_back(part.plan.sums(SumsOf::keys));
      part.plan.sum_keys(of(p_.k, part), of(p_.v, part), own.back());
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      entering.push_back(parts_[i].plan.sums(SumsOf::keys));
      const std::size_t end = is_causal() ? i : parts_.size();
      for (std::size_t from = 0; from < end; ++from) entering.back().add(own[from]);
    }
    return entering;
  }

  const LinearProblem& p_;
  std::vector<Part> parts_;
};

void expect_whole(const LinearProblem& p, const std::vector<std::int64_t>& counts) {
  SCOPED_TRACE(testing::Message() << p.what);
  Parts parts(p, counts);
  const Tensor out = parts.attend();
  tests::expect_within_bound(p.reference(), out, out.wide());
  const tests::LinearGradients got = parts.backward();
  const tests::LinearReferenceGradients expected = tests::linear_attend_backward_reference(
      p.rotary, p.q.view(), p.k.view(), p.v.view(), p.d_out.view(), p.options);
  const double error =
      tests::kGradientError * (1.0 + tests::favor_exponent(p.q.view(), p.k.view(), p.options));
  tests::expect_gradients_near("d_q", expected.d_q, got.d_q, error);
  tests::expect_gradients_near("d_k", expected.d_k, got.d_k, error);
  tests::expect_gradients_near("d_v", expected.d_v, got.d_v, error);
}

TEST(LinearPart, PartsAreTheWhole) {
  for (const Rotates rotates : tests::kRotates) {
    tests::for_each_kind({.batch = 2,
                          .heads = 4,
                          .key_heads = 2,
                          .queries = 170,
                          .keys = 170,
                          .head_dim = 12,
                          .value_dim = 10,
                          .rotates = rotates},
                         [](const LinearCase& c) {
                           expect_whole(LinearProblem(c), {70, 0, 1, 66, 33});
                         });
  }
}

// Exponents of the keys rise or fall from part to part, far beyond what float32 can hold.
TEST(LinearPart, LargeKeys) {
  for (const Causality causality : tests::kCausalities) {
    for (const double step : {-30.0, 0.0, 30.0}) {
      LinearProblem p(tests::large_keys_case(causality));
      p.k.for_each([&](std::int64_t at) {
        const auto token = static_cast<double>(at / p.k.view().token_stride);
        core::set_element(
            p.k.view(), at,
            core::element_of(p.k.view(), at) + 200.0 + step * std::floor(token / 40.0));
      });
      expect_whole(p, {50, 50, 0, 50});
    }
  }
}

TEST(LinearPart, RefusesWhatHasNoSums) {
  const LinearSizes sizes{.queries = 3, .keys = 4, .head_dim = 4, .value_dim = 4};
  const LinearOptions causal{.causality = Causality::bottom_right};
  phasor::tests::expect_error(ErrorCode::shape_mismatch, {"3 queries", "4 keys"}, [&] {
    return LinearPart(std::nullopt, sizes, causal, LinearUse::forward);
  });
  LinearSizes wide = sizes;
  wide.dtype = core::DType::f64;
  phasor::tests::expect_error(ErrorCode::unsupported, {"f64"}, [&] {
    return LinearPart(std::nullopt, wide, {}, LinearUse::forward);
  });
}

}  // namespace
}  // namespace phasor::attention
