#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/rotate/rotate_support.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::core {
namespace {

using tests::Shape;
using tests::Strides;
using tests::Tensor;

// cos and sin of positions 40 + 10 b + t in rows of `dtype`, with gaps between pairs, tokens and
// batch rows.
class Rows {
 public:
  Rows(const Frequencies& frequencies, DType dtype, std::int64_t batch, std::int64_t tokens)
      : pairs_(frequencies.pairs()),
        tokens_(tokens),
        dtype_(dtype),
        cos_(cells(batch), 0),
        sin_(cells(batch), 0) {
    std::vector<double> cos(static_cast<std::size_t>(pairs_)), sin(cos.size());
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        const double position = static_cast<double>(position_of(b, t));
        cos_sin(frequencies, std::span(&position, 1), cos, sin);
        for (std::int64_t i = 0; i < pairs_; ++i) {
          const std::int64_t at = b * batch_stride() + t * token_stride() + i * kPairStride;
          set_element(writable(cos_), at, cos[static_cast<std::size_t>(i)]);
          set_element(writable(sin_), at, sin[static_cast<std::size_t>(i)]);
        }
      }
    }
  }
  static std::int64_t position_of(std::int64_t b, std::int64_t t) { return 40 + 10 * b + t; }
  [[nodiscard]] CosSinRows get() const {
    return {.cos = cos_.data(),
            .sin = sin_.data(),
            .dtype = dtype_,
            .pairs = pairs_,
            .batch_stride = batch_stride(),
            .token_stride = token_stride(),
            .pair_stride = kPairStride};
  }

 private:
  static constexpr std::int64_t kPairStride = 2;
  [[nodiscard]] std::int64_t token_stride() const { return pairs_ * kPairStride + 3; }
  [[nodiscard]] std::int64_t batch_stride() const { return tokens_ * token_stride() + 1; }
  [[nodiscard]] std::size_t cells(std::int64_t batch) const {
    return static_cast<std::size_t>(batch * batch_stride());
  }
  [[nodiscard]] HeadsView writable(std::vector<double>& cells) const {
    return {.data = cells.data(), .dtype = dtype_};
  }

  std::int64_t pairs_, tokens_;
  DType dtype_;
  std::vector<double> cos_, sin_;  // room for the widest type
};

TEST(RotateBy, ExactRowsRotateAsTheAnglesDo) {
  constexpr std::int64_t kBatch = 2, kTokens = 21, kHeads = 3;
  std::vector<std::int64_t> ids;
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t t = 0; t < kTokens; ++t) ids.push_back(Rows::position_of(b, t));
  }
  const Positions positions = positions_per_row(ids.data(), 1, kBatch, kTokens);
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    for (const PairLayout layout :
         {PairLayout::interleaved, PairLayout::half, PairLayout::interleaved_to_half}) {
      for (const std::int64_t rotary_dim : {2, 20, 64}) {
        for (const Strides strides : {Strides::dense, Strides::padded, Strides::heads_first}) {
          const Rotary rotary{.frequencies = make_frequencies({rotary_dim, 10000.0}),
                              .layout = layout,
                              .head_dim = 70,
                              .offset = 5};
          const Rows rows(rotary.frequencies, dtype == DType::f64 ? DType::f64 : DType::f32, kBatch,
                          kTokens);
          const Tensor x(dtype, {kBatch, kTokens, kHeads, 70}, strides, 1);
          for (const Direction direction : {Direction::forward, Direction::transpose}) {
            const std::vector<double> expected =
                tests::reference_of(rotary, positions, x, direction);
            for (const InstructionSet isa : available_instruction_sets()) {
              SCOPED_TRACE(message(name_of(dtype), " ", name_of(layout), " ", rotary_dim, " ",
                                   name_of(isa), " ", static_cast<int>(direction)));
              Tensor y(x);
              const Rotation rotation{y.view(), y.view()};
              rotate_by(rows.get(), layout, rotary.offset, {&rotation, 1},
                        {.direction = direction, .isa = isa});
              tests::expect_near_reference(rotary, expected, y);
              if (HasFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST(RotateBy, RowsOfEveryTypeAreWidenedAndUsedAsTheyAre) {
  const Frequencies frequencies = make_frequencies({16, 10000.0});
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const Rows rows(frequencies, dtype, 1, 4);
    const CosSinRows given = rows.get();
    Tensor y(DType::f32, {1, 4, 1, 16}, Strides::dense, 7);
    const std::vector<double> before = y.wide();
    const Rotation rotation{y.view(), y.view()};
    rotate_by(given, PairLayout::half, 0, {&rotation, 1});
    const std::vector<double> after = y.wide();
    const ConstHeadsView cos{.data = given.cos, .dtype = dtype},
        sin{.data = given.sin, .dtype = dtype};
    for (std::int64_t t = 0; t < 4; ++t) {
      for (std::int64_t i = 0; i < 8; ++i) {
        const auto a = static_cast<std::size_t>(t * 16 + i);
        const std::int64_t at = t * given.token_stride + i * given.pair_stride;
        const double c = element_of(cos, at), s = element_of(sin, at);
        EXPECT_NEAR(after[a], before[a] * c - before[a + 8] * s, 1e-6) << name_of(dtype);
        EXPECT_NEAR(after[a + 8], before[a + 8] * c + before[a] * s, 1e-6) << name_of(dtype);
      }
    }
  }
}

// Every finite bf16 number times a few cosines, ties among them (1 + 2^-8): one rounding to nearest even at
// every level, whatever the other halves of a lane hold, and infinity where the largest are rounded up.
TEST(RotateBy, Bf16IsRoundedToNearestEven) {
  constexpr std::int64_t kPairs = 35, kHeads = 3,
                         kTokens = 624;  // more than all 65536 patterns
  constexpr float kCos[] = {1.0F, 0.5F, 1.00390625F, 0.99F, 1.3333334F};
  const auto count = static_cast<std::size_t>(kTokens * kHeads * 2 * kPairs);
  std::vector<BFloat16> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    // Neighbours far apart. The factor is odd, so that 65536 in a row are all patterns.
    x[i].bits = static_cast<std::uint16_t>(i * 2654435761U);
    if ((x[i].bits & 0x7f80U) == 0x7f80U) x[i].bits = 0x3f81U;
  }
  const std::vector<float> zeros(kPairs, 0.0F);
  for (const float cos : kCos) {
    const std::vector<float> row(kPairs, cos);
    const CosSinRows rows{.cos = row.data(), .sin = zeros.data(), .pairs = kPairs};
    for (const PairLayout layout : {PairLayout::interleaved, PairLayout::half}) {
      for (const InstructionSet isa : available_instruction_sets()) {
        std::vector<BFloat16> y = x;
        const HeadsView view = heads_view(y.data(), 1, kTokens, kHeads, 2 * kPairs);
        const Rotation rotation{view, view};
        rotate_by(rows, layout, 0, {&rotation, 1}, {.isa = isa});
        for (std::size_t i = 0; i < count; ++i) {
          const float exact = to_float(x[i]) * cos;
          if (exact == 0.0F) continue;  // the sign of a zero depends on the other feature
          ASSERT_EQ(y[i].bits, to_bfloat16(exact).bits)
              << name_of(isa) << " " << name_of(layout) << " " << cos << " x " << x[i].bits;
        }
      }
    }
  }
}

TEST(RotateBy, RefusesWhatItCannotDoAndTouchesNothing) {
  const Rows rows(make_frequencies({16, 10000.0}), DType::f32, 1, 4);
  Tensor y(DType::f32, {1, 4, 1, 16}, Strides::dense, 7);
  const std::vector<std::byte> before = y.bytes();
  const Rotation rotation{y.view(), y.view()};
  const auto refused = [&](const CosSinRows& given, std::int64_t offset, Direction direction) {
    EXPECT_THROW(
        rotate_by(given, PairLayout::half, offset, {&rotation, 1}, {.direction = direction}),
        Error);
    EXPECT_EQ(std::memcmp(before.data(), y.bytes().data(), before.size()), 0);
  };
  refused(rows.get(), 0, Direction::inverse);
  refused(rows.get(), 1, Direction::forward);  // the window leaves the head
  CosSinRows none = rows.get();
  none.cos = nullptr;
  refused(none, 0, Direction::forward);
  CosSinRows empty = rows.get();
  empty.pairs = 0;
  refused(empty, 0, Direction::forward);
  CosSinRows absurd = rows.get();
  absurd.pairs = std::int64_t{1} << 40;
  refused(absurd, 0, Direction::forward);
}

}  // namespace
}  // namespace phasor::core
