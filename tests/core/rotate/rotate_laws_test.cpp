// The laws of the rotation, for random shapes and positions.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "core/rotate/rotate_support.hpp"

namespace phasor::core {
namespace {

using tests::Shape;
using tests::Strides;
using tests::Tensor;

struct Setting {
  Rotary rotary;
  std::int64_t dim;
};
Setting any_setting(double amplitude = 1.0) {
  const std::int64_t dim = 2 * *rc::gen::inRange<std::int64_t>(1, 80);
  const double base = *rc::gen::element(2.0, 100.0, 10000.0, 500000.0, 1e7);
  const auto layout = *rc::gen::element(PairLayout::interleaved, PairLayout::half);
  const Frequencies plain = make_frequencies({dim, base});
  return {{Frequencies({plain.values().begin(), plain.values().end()}, amplitude), layout, dim},
          dim};
}
std::int64_t any_position() { return *rc::gen::inRange<std::int64_t>(-(1 << 24), 1 << 24); }
Tensor any_heads(std::int64_t dim) {
  return Tensor(DType::f64, {1, 1, 3, dim}, Strides::dense, *rc::gen::arbitrary<std::uint32_t>());
}
double norm(const std::vector<double>& x) {
  double sum = 0.0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::fmax(worst, std::fabs(a[i] - b[i]));
  return worst;
}
std::vector<double> rotated(const Setting& s, const Tensor& x, std::int64_t m,
                            Direction direction = Direction::forward) {
  Tensor y(x);
  rotate(s.rotary, positions_from(m), y.view(), {.direction = direction});
  return y.wide();
}
Tensor rotated_tensor(const Setting& s, const Tensor& x, std::int64_t m) {
  Tensor y(x);
  rotate(s.rotary, positions_from(m), y.view());
  return y;
}

RC_GTEST_PROP(RotateLaws, PositionZeroKeepsEveryBit, ()) {
  const Setting s = any_setting();
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const Tensor x(dtype, {1, 1, 2, s.dim}, Strides::dense, *rc::gen::arbitrary<std::uint32_t>());
    Tensor y(x);
    rotate(s.rotary, positions_from(0), y.view());
    RC_ASSERT(y.wide() == x.wide());
  }
}

RC_GTEST_PROP(RotateLaws, NormsHold, ()) {
  const Setting s = any_setting();
  const Tensor x = any_heads(s.dim);
  RC_ASSERT(std::fabs(norm(rotated(s, x, any_position())) / norm(x.wide()) - 1.0) < 1e-14);
}

RC_GTEST_PROP(RotateLaws, RotationsCompose, ()) {  // R_m R_n = R_{m+n}
  const Setting s = any_setting();
  const Tensor x = any_heads(s.dim);
  const std::int64_t m = any_position(), n = any_position();
  RC_ASSERT(distance(rotated(s, rotated_tensor(s, x, n), m), rotated(s, x, m + n)) < 1e-13);
}

RC_GTEST_PROP(RotateLaws, TransposeUndoesForwardAtAmplitudeOne, ()) {
  const Setting s = any_setting();
  const Tensor x = any_heads(s.dim);
  const std::int64_t m = any_position();
  RC_ASSERT(distance(rotated(s, rotated_tensor(s, x, m), m, Direction::transpose), x.wide()) <
            1e-13);
}

RC_GTEST_PROP(RotateLaws, InverseUndoesForwardAtAnyAmplitude, ()) {
  const Setting s = any_setting(*rc::gen::element(0.5, 1.1386, 3.0));
  const Tensor x = any_heads(s.dim);
  const std::int64_t m = any_position();
  RC_ASSERT(distance(rotated(s, rotated_tensor(s, x, m), m, Direction::inverse), x.wide()) < 1e-13);
}

RC_GTEST_PROP(RotateLaws, ScoresDependOnTheDistanceAlone, ()) {  // (16)
  const Setting s = any_setting(*rc::gen::element(1.0, 1.25));
  const Tensor q = any_heads(s.dim), k = any_heads(s.dim);
  const std::int64_t m = any_position() / 4, n = any_position() / 4, shift = any_position() / 4;
  const auto score = [&](std::int64_t a, std::int64_t b) {
    const std::vector<double> x = rotated(s, q, a), y = rotated(s, k, b);
    double sum = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
    return sum;
  };
  RC_ASSERT(std::fabs(score(m, n) - score(m + shift, n + shift)) <
            1e-12 * (1.0 + norm(q.wide()) * norm(k.wide())));
}

RC_GTEST_PROP(RotateLaws, TheLayoutsAreOnePermutationApart, ()) {
  Setting half = any_setting();
  half.rotary.layout = PairLayout::half;
  Setting interleaved = half;
  interleaved.rotary.layout = PairLayout::interleaved;
  Setting across = half;
  across.rotary.layout = PairLayout::interleaved_to_half;
  const Tensor x = any_heads(half.dim);  // interleaved order
  Tensor permuted(x);
  for (std::int64_t h = 0; h < 3; ++h) {
    for (std::int64_t i = 0; i < half.dim / 2; ++i) {
      const std::int64_t head = h * half.dim;
      set_element(permuted.view(), head + i, element_of(x.view(), head + 2 * i));
      set_element(permuted.view(), head + i + half.dim / 2, element_of(x.view(), head + 2 * i + 1));
    }
  }
  const std::int64_t m = any_position();
  const std::vector<double> by_half = rotated(half, permuted, m),
                            by_pairs = rotated(interleaved, x, m);
  RC_ASSERT(rotated(across, x, m) == by_half);
  for (std::int64_t h = 0; h < 3; ++h) {
    for (std::int64_t i = 0; i < half.dim / 2; ++i) {
      const auto head = static_cast<std::size_t>(h * half.dim), at = static_cast<std::size_t>(i);
      RC_ASSERT(std::fabs(by_half[head + at] - by_pairs[head + 2 * at]) < 1e-14);
      RC_ASSERT(std::fabs(by_half[head + at + static_cast<std::size_t>(half.dim / 2)] -
                          by_pairs[head + 2 * at + 1]) < 1e-14);
    }
  }
}

RC_GTEST_PROP(RotateLaws, TransposeIsTheGradient, ()) {
  // d/dx <g, rotate(x)> = transpose(g): the map is linear, so a difference of any size gives it.
  const Setting s = any_setting(*rc::gen::element(1.0, 0.7));
  const Tensor x = any_heads(s.dim), g = any_heads(s.dim);
  const std::int64_t m = any_position();
  const auto at = *rc::gen::inRange<std::int64_t>(0, s.dim);
  Tensor moved(x);
  set_element(moved.view(), at, element_of(x.view(), at) + 1.0);
  const std::vector<double> before = rotated(s, x, m), after = rotated(s, moved, m),
                            weights = g.wide();
  double numeric = 0.0;
  for (std::size_t i = 0; i < before.size(); ++i) numeric += weights[i] * (after[i] - before[i]);
  RC_ASSERT(
      std::fabs(numeric - rotated(s, g, m, Direction::transpose)[static_cast<std::size_t>(at)]) <
      1e-12);
}

}  // namespace
}  // namespace phasor::core
