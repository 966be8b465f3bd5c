#include "phasor/core/rotate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/rotate/rotate_support.hpp"

namespace phasor::core {
namespace {

using tests::Shape;
using tests::Strides;
using tests::Tensor;

struct Window {
  std::int64_t head_dim, rotary_dim, offset, blocks;
};
struct Case {
  DType dtype;
  PairLayout layout;
  Window window;
  Strides strides;
};
// Prints nothing: the test's name describes the case; by default every byte is printed, at the start of each of the 800 tests.
void PrintTo(const Case&, std::ostream*) {}
std::string text(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return message(name_of(c.dtype), "_", name_of(c.layout), "_d", c.window.head_dim, "_r",
                 c.window.rotary_dim, "_o", c.window.offset, "_b", c.window.blocks, "_",
                 c.strides == Strides::dense    ? "dense"
                 : c.strides == Strides::padded ? "padded"
                                                : "heads_first");
}

std::vector<Case> grid() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    for (const PairLayout layout :
         {PairLayout::interleaved, PairLayout::half, PairLayout::interleaved_to_half}) {
      for (const Window window :
           {Window{2, 2, 0, 1}, Window{6, 6, 0, 1}, Window{8, 8, 0, 1}, Window{64, 64, 0, 1},
            Window{128, 128, 0, 1}, Window{80, 20, 0, 1}, Window{96, 24, 5, 1},
            Window{100, 66, 34, 1}, Window{48, 40, 8, 2}, Window{258, 258, 0, 1},
            Window{512, 512, 0, 1}}) {
        for (const Strides strides : {Strides::dense, Strides::padded, Strides::heads_first}) {
          cases.push_back({dtype, layout, window, strides});
        }
      }
    }
  }
  return cases;
}

class RotateGrid : public testing::TestWithParam<Case> {};

TEST_P(RotateGrid, AgreesWithTheReferenceInEveryDirectionAtEveryLevel) {
  const Case& c = GetParam();
  const Frequencies plain = make_frequencies({c.window.rotary_dim, 10000.0});
  const Frequencies frequencies({plain.values().begin(), plain.values().end()}, 1.25);
  const Rotary rotary{frequencies,     c.layout,        c.window.head_dim,
                      c.window.offset, c.window.blocks, {}};
  const Shape shape{2, 5, 3, c.window.head_dim};
  // The reference is good to 2^-64 of the angle: float64 is compared near the origin, and far out
  // by angles_test.
  const std::vector<std::int64_t> ids =
      c.dtype == DType::f64
          ? std::vector<std::int64_t>{0, 1, -3, 100, 511, 7, 7, 2, 64, -200}
          : std::vector<std::int64_t>{0, 1, -3, 16777216, 131071, 7, 7, 2, 4096, -16777216};
  const Positions positions = positions_per_row(ids.data(), 1, 2, 5);
  const Tensor x(c.dtype, shape, c.strides, 1);
  for (const Direction direction : {Direction::forward, Direction::transpose, Direction::inverse}) {
    const std::vector<double> expected = tests::reference_of(rotary, positions, x, direction);
    for (const InstructionSet isa : available_instruction_sets()) {
      SCOPED_TRACE(message(name_of(isa), " direction ", static_cast<int>(direction)));
      const RotateOptions options{.direction = direction, .isa = isa};
      Tensor in_place(x);
      rotate(rotary, positions, in_place.view(), options);
      tests::expect_near_reference(rotary, expected, in_place);

      Tensor out(c.dtype, shape, Strides::padded, 2);
      rotate(rotary, positions, x.view(), out.view(), options);
      tests::expect_near_reference(rotary, expected, out);
      if (HasFailure()) return;
    }
  }
}

TEST_P(RotateGrid, TouchesNothingButItsWindow) {
  const Case& c = GetParam();
  const Rotary rotary{make_frequencies({c.window.rotary_dim, 10000.0}),
                      c.layout,
                      c.window.head_dim,
                      c.window.offset,
                      c.window.blocks,
                      {}};
  const Tensor x(c.dtype, {2, 3, 2, c.window.head_dim}, c.strides, 3);
  for (const InstructionSet isa : available_instruction_sets()) {
    Tensor y(x);
    rotate(rotary, positions_from(5), y.view(), {.isa = isa});
    std::vector<bool> rotated(static_cast<std::size_t>(x.size()), false);
    std::int64_t dense = 0;
    x.for_each([&](std::int64_t at) {
      const std::int64_t d = dense++ % c.window.head_dim;
      rotated[static_cast<std::size_t>(at)] =
          d >= c.window.offset && d < c.window.offset + c.window.rotary_dim;
    });
    const std::size_t size = size_of(c.dtype);
    for (std::size_t i = 0; i < rotated.size(); ++i) {
      if (rotated[i]) continue;
      ASSERT_EQ(std::memcmp(x.bytes().data() + i * size, y.bytes().data() + i * size, size), 0)
          << name_of(isa) << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, RotateGrid, testing::ValuesIn(grid()), text);

Rotary rotary_of(PairLayout layout, std::int64_t dim) {
  return {make_frequencies({dim, 10000.0}), layout, dim};
}

// Heads before tokens, from memory: tokens are rotated in runs, whose length is measured. Two runs and a
// rest, and rows so long that fewer tokens fit, against a few tokens a call.
TEST(Rotate, LargeTensorsWithHeadsFirstGetTheBitsOfSmallOnes) {
  constexpr std::int64_t kFew = 7;
  for (const auto& [shape, rotary_dim] : {std::pair{Shape{2, 2100, 3, 128}, std::int64_t{128}},
                                          std::pair{Shape{1, 2100, 2, 272}, std::int64_t{264}},
                                          std::pair{Shape{1, 300, 2, 2048}, std::int64_t{2048}}}) {
    const Frequencies frequencies = make_frequencies({rotary_dim, 10000.0});
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const PairLayout layout : {PairLayout::interleaved, PairLayout::half}) {
        const Rotary rotary{frequencies, layout, shape.head_dim, shape.head_dim - rotary_dim};
        const Tensor x(dtype, shape, Strides::heads_first, 5);
        Tensor expected(x);
        for (std::int64_t token = 0; token < shape.tokens; token += kFew) {
          HeadsView few = expected.view();
          few.data = static_cast<std::byte*>(few.data) +
                     token * few.token_stride * static_cast<std::int64_t>(size_of(dtype));
          few.tokens = std::min(kFew, shape.tokens - token);
          rotate(rotary, positions_from(9 + token), few);
        }
        for (const int threads : {1, 2}) {
          SCOPED_TRACE(message(name_of(dtype), " ", name_of(layout), " ", rotary_dim, ", threads ",
                               threads));
          Tensor in_place(x);
          rotate(rotary, positions_from(9), in_place.view(), {.threads = threads});
          EXPECT_TRUE(in_place.bytes() == expected.bytes());
          Tensor out(dtype, shape, Strides::heads_first, 6);
          rotate(rotary, positions_from(9), x.view(), out.view(), {.threads = threads});
          EXPECT_TRUE(out.wide() == expected.wide());
        }
      }
    }
  }
}

// Large calls try every way of moving through memory before they keep one: as many pieces as that takes,
// in place, out of place and with heads first.
TEST(Rotate, EveryWayThroughMemoryGivesTheSameBits) {
  const Shape shape{1, 3000, 4, 128};
  const CosSinTable table = CosSinTable::build(make_frequencies({128, 10000.0}), {0, shape.tokens});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const PairLayout layout : {PairLayout::interleaved, PairLayout::half}) {
      const Rotary rotary = rotary_of(layout, 128);
      for (const Strides strides : {Strides::dense, Strides::heads_first}) {
        const Tensor x(dtype, shape, strides, 5);
        Tensor expected(x);
        for (std::int64_t token = 0; token < shape.tokens; ++token) {
          HeadsView one = expected.view();
          one.data = static_cast<std::byte*>(one.data) +
                     token * one.token_stride * static_cast<std::int64_t>(size_of(dtype));
          one.tokens = 1;
          rotate(rotary, positions_from(token), one, {.table = &table});
        }
        for (int call = 0; call < (strides == Strides::dense ? 1 : 4); ++call) {
          SCOPED_TRACE(message(name_of(dtype), " ", name_of(layout), ", call ", call));
          Tensor in_place(x);
          rotate(rotary, positions_from(0), in_place.view(), {.table = &table, .threads = 1});
          ASSERT_TRUE(in_place.bytes() == expected.bytes());
          Tensor out(dtype, shape, strides, 6);
          rotate(rotary, positions_from(0), x.view(), out.view(), {.table = &table, .threads = 1});
          ASSERT_TRUE(out.wide() == expected.wide());
        }
      }
    }
  }
}

// A decode step takes a shorter path than the tokens of a prompt.
TEST(Rotate, OneTokenGetsTheBitsOfMany) {
  constexpr std::int64_t kDim = 96;
  for (const Window window : {Window{kDim, kDim, 0, 1}, Window{kDim, 40, 8, 1},
                              Window{kDim, 36, 60, 1}, Window{kDim, 64, 0, 2}}) {
    const Frequencies frequencies = make_frequencies({window.rotary_dim, 10000.0});
    const CosSinTable table = CosSinTable::build(frequencies, {-2, 20});
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const PairLayout layout :
           {PairLayout::interleaved, PairLayout::half, PairLayout::interleaved_to_half}) {
        const Rotary rotary{frequencies, layout, kDim, window.offset, window.blocks};
        for (const Direction direction : {Direction::forward, Direction::transpose}) {
          for (const CosSinTable* given : {static_cast<const CosSinTable*>(nullptr), &table}) {
            const RotateOptions options{.direction = direction, .table = given};
            Tensor q(dtype, {1, 9, 4, kDim}, Strides::dense, 4),
                k(dtype, {1, 9, 3, kDim}, Strides::padded, 5);
            Tensor q_by_token(q), k_by_token(k);
            rotate_qk(rotary, positions_from(-2), q.view(), k.view(), options);
            for (std::int64_t token = 0; token < 9; ++token) {
              const auto one = [&](HeadsView view) {
                view.data = static_cast<std::byte*>(view.data) +
                            token * view.token_stride * static_cast<std::int64_t>(size_of(dtype));
                view.tokens = 1;
                return view;
              };
              rotate_qk(rotary, positions_from(token - 2), one(q_by_token.view()),
                        one(k_by_token.view()), options);
            }
            SCOPED_TRACE(message(name_of(dtype), " ", name_of(layout), " ", window.rotary_dim));
            EXPECT_EQ(q_by_token.bytes(), q.bytes());
            EXPECT_EQ(k_by_token.bytes(), k.bytes());
          }
        }
      }
    }
  }
}

TEST(Rotate, ATableGivesTheSameBitsAsNoTable) {
  const CosSinTable table = CosSinTable::build(make_frequencies({64, 10000.0}), {-10, 200});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const PairLayout layout :
         {PairLayout::interleaved, PairLayout::half, PairLayout::interleaved_to_half}) {
      const Tensor x(dtype, {2, 9, 4, 64}, Strides::dense, 4);
      Tensor with(x), without(x);
      rotate(rotary_of(layout, 64), positions_from(-3), with.view(), {.table = &table});
      rotate(rotary_of(layout, 64), positions_from(-3), without.view());
      EXPECT_EQ(with.bytes(), without.bytes()) << name_of(dtype) << " " << name_of(layout);
    }
  }
}

TEST(Rotate, QueriesAndKeysInOneCallAreTheSameAsApart) {
  const Rotary rotary = rotary_of(PairLayout::half, 64);
  Tensor q(DType::f32, {2, 7, 8, 64}, Strides::dense, 5),
      k(DType::f32, {2, 7, 2, 64}, Strides::padded, 6);
  Tensor q_alone(q), k_alone(k);
  rotate_qk(rotary, positions_from(11), q.view(), k.view());
  rotate(rotary, positions_from(11), q_alone.view());
  rotate(rotary, positions_from(11), k_alone.view());
  EXPECT_EQ(q.bytes(), q_alone.bytes());
  EXPECT_EQ(k.bytes(), k_alone.bytes());
}

TEST(Rotate, FusedQkvSlicesAreFine) {
  // One buffer [tokens, q | k | v]: the views interleave without overlapping.
  const Rotary rotary = rotary_of(PairLayout::interleaved, 8);
  std::vector<float> qkv(6 * 8 * 4, 1.0F);
  HeadsView q = heads_view(qkv.data(), 1, 6, 2, 8), k = heads_view(qkv.data() + 16, 1, 6, 1, 8);
  q.token_stride = k.token_stride = 32;
  EXPECT_NO_THROW(rotate_qk(rotary, positions_from(1), q, k));
  EXPECT_EQ(qkv[24], 1.0F) << "v keeps its bits";
  EXPECT_NE(qkv[16], 1.0F);
}

TEST(Rotate, PackedSequencesAreTheSameAsApart) {
  const Rotary rotary = rotary_of(PairLayout::half, 16);
  const std::vector<std::int64_t> boundaries = {0, 3, 3, 8, 10};
  const Tensor x(DType::f32, {1, 10, 2, 16}, Strides::dense, 7);
  Tensor packed(x);
  rotate(rotary, positions_packed(boundaries, 5), packed.view());
  Tensor apart(x);
  for (std::size_t s = 0; s + 1 < boundaries.size(); ++s) {
    HeadsView part = apart.view();
    part.data = static_cast<float*>(part.data) + boundaries[s] * part.token_stride;
    part.tokens = boundaries[s + 1] - boundaries[s];
    rotate(rotary, positions_from(5), part);
  }
  EXPECT_EQ(packed.bytes(), apart.bytes());
}

TEST(Rotate, EachFrequencyReadsItsAxis) {
  const Frequencies plain = make_frequencies({12, 10000.0});
  const Frequencies three({plain.values().begin(), plain.values().end()}, 1.0, {0, 0, 1, 1, 2, 2});
  std::vector<std::int64_t> ids(3 * 2 * 4);
  std::iota(ids.begin(), ids.end(), -5);
  const Positions positions = positions_per_row(ids.data(), 3, 2, 4);
  const CosSinTable table = CosSinTable::build(three, {-5, 40});
  for (const PairLayout layout : {PairLayout::half, PairLayout::interleaved}) {
    const Rotary rotary{three, layout, 12};
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      const Tensor x(dtype, {2, 4, 3, 12}, Strides::dense, 8);
      const std::vector<double> expected =
          tests::reference_of(rotary, positions, x, Direction::forward);
      Tensor y(x);
      rotate(rotary, positions, y.view());
      tests::expect_near_reference(rotary, expected, y);
      if (dtype == DType::f64) continue;
      Tensor by_table(x);
      rotate(rotary, positions, by_table.view(), {.table = &table});
      EXPECT_EQ(by_table.bytes(), y.bytes());
    }
  }
}

TEST(Rotate, OneRowOfTextPositionsServesEveryAxis) {
  const Frequencies three({1.0, 0.5, 0.25}, 1.0, {0, 1, 2}), one({1.0, 0.5, 0.25});
  const std::vector<std::int64_t> ids = {4, 9, 2};
  Tensor a(DType::f32, {1, 3, 2, 6}, Strides::dense, 9), b(a);
  rotate({three, PairLayout::half, 6}, positions_per_token(ids), a.view());
  rotate({one, PairLayout::half, 6}, positions_per_token(ids), b.view());
  EXPECT_EQ(a.bytes(), b.bytes());
}

TEST(Rotate, FloatPositionsRotateByFractions) {
  const Rotary rotary = rotary_of(PairLayout::half, 8);
  const std::vector<double> ids = {0.5, -2.25, 1000.125};
  const Tensor x(DType::f32, {1, 3, 2, 8}, Strides::dense, 10);
  Tensor y(x);
  rotate(rotary, positions_per_token(ids), y.view());
  tests::expect_near_reference(
      rotary, tests::reference_of(rotary, positions_per_token(ids), x, Direction::forward), y);
}

TEST(Rotate, GrowthGrowsQueriesAndShrinksKeys) {
  const Frequencies frequencies = make_frequencies({8, 10000.0});
  const Rotary rotary{
      frequencies, PairLayout::interleaved, 8, 0, 1, Growth{{-1e-3, -5e-4, -2e-4, -1e-5}, 4.0}};
  for (const DType dtype : {DType::f64, DType::f32, DType::f16}) {
    for (const Direction direction :
         {Direction::forward, Direction::transpose, Direction::inverse}) {
      for (const Role role : {Role::query, Role::key}) {
        const Tensor x(dtype, {1, 9, 2, 8}, Strides::dense, 11);
        Tensor y(x);
        const Rotation rotation{y.view(), y.view(), role};
        rotate(rotary, positions_from(1), {&rotation, 1}, {.direction = direction});
        tests::expect_near_reference(
            rotary, tests::reference_of(rotary, positions_from(1), x, direction, role), y);
      }
    }
  }
}

TEST(Rotate, LargeTensorsOutOfPlaceAndByThreadsGiveTheSameBits) {
  // Above the thresholds for threads, prefetching and streaming stores, with outputs that are
  // aligned for them and outputs that are not, dense ones and ones with gaps.
  const std::int64_t tokens = 700, heads = 16, dim = 128;
  const std::size_t count = static_cast<std::size_t>(tokens * heads * dim);
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(i % 101) - 50.0F;
  std::vector<float> memory(2 * count + 64);
  float* aligned =
      memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) / 4 % 16;
  for (const std::int64_t rotary_dim : {dim, std::int64_t{96}}) {
    for (const PairLayout layout : {PairLayout::half, PairLayout::interleaved}) {
      const Rotary rotary{make_frequencies({rotary_dim, 10000.0}), layout, dim};
      for (const InstructionSet isa : available_instruction_sets()) {
        std::vector<float> expected = x;
        for (std::int64_t t = 0; t < tokens; ++t) {  // a token at a time: nothing large about it
          rotate(rotary, positions_from(t),
                 heads_view(expected.data() + t * heads * dim, 1, 1, heads, dim),
                 {.threads = 1, .isa = isa});
        }
        for (const int threads : {1, 3}) {
          for (const std::int64_t shift : {0, 4, 5}) {
            for (const std::int64_t gap : {0, 3}) {
              HeadsView out = heads_view(aligned + shift, 1, tokens, heads, dim);
              out.head_stride += gap;
              out.token_stride = heads * out.head_stride;
              rotate(rotary, positions_from(0),
                     heads_view(static_cast<const float*>(x.data()), 1, tokens, heads, dim), out,
                     {.threads = threads, .isa = isa});
              for (std::int64_t h = 0; h < tokens * heads; ++h) {
                ASSERT_TRUE(std::equal(expected.begin() + h * dim, expected.begin() + (h + 1) * dim,
                                       aligned + shift + h * out.head_stride))
                    << name_of(isa) << " threads " << threads << " shift " << shift << " gap "
                    << gap << " head " << h;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Rotate, NoTokensIsFine) {
  float nothing = 0.0F;
  const Rotary rotary = rotary_of(PairLayout::half, 8);
  EXPECT_NO_THROW(rotate(rotary, positions_from(0), heads_view(&nothing, 1, 0, 2, 8)));
  EXPECT_NO_THROW(rotate(rotary, positions_from(0), heads_view<float>(nullptr, 0, 5, 2, 8)));
  EXPECT_NO_THROW(rotate(rotary, positions_per_token(std::span<const std::int64_t>{}),
                         heads_view(&nothing, 3, 0, 2, 8)));
  EXPECT_NO_THROW(rotate(rotary, positions_per_token(std::span<const double>{}),
                         heads_view(&nothing, 3, 0, 2, 8)));
  EXPECT_NO_THROW(rotate(rotary, positions_from(0), heads_view<float>(nullptr, 1, 4, 0, 8)));
  EXPECT_NO_THROW(rotate(rotary, positions_from(0), std::span<const Rotation>{}));
}

TEST(Rotate, NanAndInfinityStayInTheirPair) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    for (const PairLayout layout : {PairLayout::half, PairLayout::interleaved}) {
      Tensor x(dtype, {1, 1, 1, 64}, Strides::dense, 12);
      set_element(x.view(), 0, std::nan(""));
      rotate(rotary_of(layout, 64), positions_from(3), x.view());
      const std::int64_t partner = layout == PairLayout::half ? 32 : 1;
      for (std::int64_t d = 0; d < 64; ++d) {
        EXPECT_EQ(std::isnan(element_of(x.view(), d)), d == 0 || d == partner)
            << name_of(dtype) << " " << name_of(layout) << " " << d;
      }
    }
  }
}

}  // namespace
}  // namespace phasor::core
