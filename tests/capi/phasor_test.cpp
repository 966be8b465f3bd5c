// phasor.h compared with the C++ API: the same numbers, and a status for every error.
#include "phasor/phasor.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "capi/c_only.h"
#include "capi/support.hpp"
#include "phasor/phasor.hpp"

namespace phasor {
namespace {

using capi::testing::expect_status;

struct RopeDelete {
  void operator()(phasor_rope* rope) const { phasor_rope_destroy(rope); }
};
struct TableDelete {
  void operator()(phasor_table* table) const { phasor_table_destroy(table); }
};
using Rope = std::unique_ptr<phasor_rope, RopeDelete>;
using Table = std::unique_ptr<phasor_table, TableDelete>;

phasor_rope_spec spec_of(std::int64_t head_dim, phasor_pair_layout layout) {
  phasor_rope_spec spec;
  EXPECT_EQ(phasor_rope_spec_init(&spec, sizeof(spec)), PHASOR_OK);
  spec.head_dim = head_dim;
  spec.layout = layout;
  return spec;
}

Rope make(const phasor_rope_spec& spec, std::int64_t context = 0) {
  phasor_rope* rope = nullptr;
  EXPECT_EQ(phasor_rope_create(&spec, context, &rope), PHASOR_OK) << phasor_last_error();
  return Rope(rope);
}

Rope from_text(std::string_view text, const char* layer = nullptr, std::int64_t context = 0) {
  phasor_rope* rope = nullptr;
  EXPECT_EQ(phasor_rope_from_config_text(text.data(), text.size(), layer, PHASOR_LAYOUT_UNSET,
                                         context, &rope),
            PHASOR_OK)
      << phasor_last_error();
  return Rope(rope);
}

phasor_rope_info info_of(const Rope& rope) {
  phasor_rope_info info{};
  info.struct_size = sizeof(info);
  EXPECT_EQ(phasor_rope_describe(rope.get(), &info), PHASOR_OK);
  return info;
}

std::vector<double> frequencies_of(const Rope& rope) {
  std::vector<double> out(static_cast<std::size_t>(info_of(rope).pairs));
  EXPECT_EQ(phasor_rope_frequencies(rope.get(), out.data(), out.size()), PHASOR_OK);
  return out;
}

std::vector<double> as_vector(std::span<const double> values) {
  return {values.begin(), values.end()};
}

std::vector<float> ramp(std::size_t count) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = std::sin(0.7F * static_cast<float>(i) + 0.3F);
  return out;
}

phasor_rotate_options options_of(phasor_direction direction = PHASOR_FORWARD) {
  phasor_rotate_options options{};
  options.struct_size = sizeof(options);
  options.direction = direction;
  return options;
}

TEST(Capi, WalksInC) { EXPECT_STREQ(phasor_c_walk(), nullptr); }
TEST(Capi, CancelsInC) { EXPECT_STREQ(phasor_c_cancellation_walk(), nullptr); }

TEST(Capi, ReportsItsVersion) {
  EXPECT_STREQ(phasor_version(), PHASOR_TEST_PROJECT_VERSION);
  EXPECT_EQ(message(PHASOR_VERSION_MAJOR, ".", PHASOR_VERSION_MINOR, ".", PHASOR_VERSION_PATCH),
            PHASOR_TEST_PROJECT_VERSION);
  EXPECT_EQ(phasor_version_number(), PHASOR_VERSION_NUMBER);
  EXPECT_EQ(PHASOR_VERSION_NUMBER,
            10000 * PHASOR_VERSION_MAJOR + 100 * PHASOR_VERSION_MINOR + PHASOR_VERSION_PATCH);
}

TEST(Capi, EveryScalingMatchesTheCppSide) {
  const std::vector<double> shorter(4, 1.5);
  const std::vector<double> longer{2.0, 3.0, 4.0, 5.0};
  struct Case {
    phasor_scaling number;
    RopeScaling scaling;
  };
  YarnScaling yarn;
  yarn.factor = 4.0;
  yarn.original_length = 64;
  yarn.truncate = false;
  yarn.attention_factor = 1.25;
  yarn.extrapolation_factor = 0.75;
  LongRopeScaling longrope;
  longrope.short_factor = shorter;
  longrope.long_factor = longer;
  longrope.original_length = 64;
  longrope.factor = 4.0;
  longrope.attention_factor = 1.25;
  DynamicScaling dynamic;
  dynamic.factor = 4.0;
  dynamic.original_length = 64;
  NtkScaling ntk;
  ntk.factor = 4.0;
  ntk.mixed_b = 0.625;
  const Case cases[] = {
      {PHASOR_SCALING_DEFAULT, DefaultScaling{}},
      {PHASOR_SCALING_LINEAR, LinearScaling{4.0}},
      {PHASOR_SCALING_NTK, ntk},
      {PHASOR_SCALING_DYNAMIC, dynamic},
      {PHASOR_SCALING_NTK_BY_PARTS,
       NtkByPartsScaling{.factor = 4.0, .original_length = 64, .extrapolation_factor = 0.75}},
      {PHASOR_SCALING_YARN, yarn},
      {PHASOR_SCALING_LONGROPE, longrope},
      {PHASOR_SCALING_LLAMA3, Llama3Scaling{4.0, 1.0, 4.0, 64}},
      {PHASOR_SCALING_PROPORTIONAL, ProportionalScaling{0.5, 4.0}},
      {PHASOR_SCALING_TELECHAT3_YARN,
       Telechat3YarnScaling{.factor = 4.0, .original_length = 64, .truncate = false}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.number);
    phasor_rope_spec spec = spec_of(8, PHASOR_HALF);
    spec.scaling = c.number;
    spec.factor = 4.0;
    spec.original_length = 64;
    spec.mixed_b = 0.625;
    spec.yarn_bounds = PHASOR_YARN_FRACTIONAL;
    spec.attention_factor = 1.25;
    spec.extrapolation_factor = 0.75;
    spec.proportion = 0.5;
    spec.short_factor = shorter.data();
    spec.long_factor = longer.data();
    spec.factor_count = 4;
    for (const std::int64_t context : {0, 64, 200}) {
      const Rope rope = make(spec, context);
      ASSERT_NE(rope, nullptr);
      const RopeSpec same{
          .head_dim = 8, .rotary_dim = 8, .layout = PairLayout::half, .scaling = c.scaling};
      const Rotary rotary =
          resolve(same, context == 0 ? std::nullopt : std::optional<std::int64_t>(context));
      EXPECT_EQ(frequencies_of(rope), as_vector(rotary.frequencies.values()));
      EXPECT_EQ(info_of(rope).amplitude, rotary.frequencies.amplitude());
    }
  }
}

TEST(Capi, DynamicTakesAlpha) {
  phasor_rope_spec spec = spec_of(8, PHASOR_HALF);
  spec.scaling = PHASOR_SCALING_DYNAMIC;
  spec.alpha = 1000.0;
  DynamicScaling dynamic;
  dynamic.alpha = 1000.0;
  const RopeSpec same{
      .head_dim = 8, .rotary_dim = 8, .layout = PairLayout::half, .scaling = dynamic};
  EXPECT_EQ(frequencies_of(make(spec)), as_vector(resolve(same).frequencies.values()));
}

TEST(Capi, AxesWindowsAndXposComeThrough) {
  phasor_rope_spec spec = spec_of(20, PHASOR_HALF);
  spec.rotary_dim = 12;
  spec.rotary_offset = 4;
  spec.axes = PHASOR_MROPE_CHUNKED;
  const std::int64_t sections[] = {2, 3, 1};
  spec.sections = sections;
  spec.section_count = 3;
  const Rope rope = make(spec);
  const phasor_rope_info info = info_of(rope);
  EXPECT_EQ(info.head_dim, 20);
  EXPECT_EQ(info.rotary_dim, 12);
  EXPECT_EQ(info.rotary_offset, 4);
  EXPECT_EQ(info.axis_count, 3);
  std::array<std::uint8_t, 6> axes{};
  ASSERT_EQ(phasor_rope_axes(rope.get(), axes.data(), axes.size()), PHASOR_OK);
  EXPECT_EQ(axes, (std::array<std::uint8_t, 6>{0, 0, 1, 1, 1, 2}));

  // A row of positions for each section, even one that no frequency reads.
  const std::int64_t four[] = {4, 2, 0, 0};
  spec.sections = four;
  spec.section_count = 4;
  EXPECT_EQ(info_of(make(spec)).axis_count, 4);

  phasor_rope_spec axial = spec_of(8, PHASOR_HALF);
  axial.axes = PHASOR_AXIAL_PER_HALF_HEAD;
  EXPECT_EQ(info_of(make(axial)).blocks, 2);
  EXPECT_EQ(info_of(make(axial)).axis_count, 2);

  // xPos treats queries and keys differently.
  phasor_rope_spec xpos = spec_of(4, PHASOR_INTERLEAVED);
  xpos.xpos = PHASOR_XPOS_FIXED;
  const Rope growing = make(xpos);
  std::vector<float> q = ramp(4);
  std::vector<float> k = q;
  const phasor_heads q_view = phasor_dense_heads(q.data(), PHASOR_F32, 1, 1, 1, 4);
  const phasor_heads k_view = phasor_dense_heads(k.data(), PHASOR_F32, 1, 1, 1, 4);
  const phasor_positions positions = phasor_positions_from(300);
  ASSERT_EQ(phasor_rotate_in_place(growing.get(), &positions, &q_view, &k_view, nullptr), PHASOR_OK)
      << phasor_last_error();
  EXPECT_GT(std::hypot(k[0], k[1]), 1.2F * std::hypot(q[0], q[1]));
}

TEST(Capi, ListsAndAmplitudeComeThrough) {
  phasor_rope_spec spec = spec_of(0, PHASOR_HALF);
  const std::vector<double> list{1.0, 0.3, 0.1};
  const std::vector<double> factors{2.0, 3.0, 0.1};
  spec.frequencies = list.data();
  spec.frequency_count = list.size();
  EXPECT_EQ(frequencies_of(make(spec)), list);
  EXPECT_EQ(info_of(make(spec)).head_dim, 6);
  EXPECT_EQ(info_of(make(spec)).amplitude, 1.0);
  spec.frequency_factors = factors.data();
  spec.frequency_factor_count = factors.size();
  spec.amplitude = 1.5;
  EXPECT_EQ(frequencies_of(make(spec)), (std::vector<double>{1.0 / 2.0, 0.3 / 3.0, 1.0}));
  EXPECT_EQ(info_of(make(spec)).amplitude, 1.5);

  // A program that was compiled before these members.
  spec = spec_of(6, PHASOR_HALF);
  spec.struct_size = offsetof(phasor_rope_spec, frequencies);
  spec.amplitude = 7.0;
  EXPECT_EQ(info_of(make(spec)).amplitude, 1.0);

  phasor_rope* none = nullptr;
  const auto refused = [&](phasor_rope_spec given, const char* value) {
    expect_status(phasor_rope_create(&given, 0, &none), PHASOR_INVALID_ARGUMENT, value);
    EXPECT_EQ(none, nullptr);
  };
  spec = spec_of(6, PHASOR_HALF);
  spec.frequencies = list.data();
  refused(spec, "frequencies");  // an array of no entries
  spec.frequency_count = 2;
  refused(spec, "frequencies");
  spec.frequency_count = 3;
  spec.base = 500000.0;
  refused(spec, "base");
  spec = spec_of(6, PHASOR_HALF);
  spec.frequency_count = 3;
  refused(spec, "frequencies");  // NULL
  spec = spec_of(6, PHASOR_HALF);
  spec.amplitude = 0.0;
  refused(spec, "amplitude");
  refused(spec_of(0, PHASOR_HALF), "head_dim");
}

TEST(Capi, ConfigsComeThrough) {
  constexpr std::string_view kText =
      R"({"head_dim": 8, "base": 10000, "layout": "interleaved", "rotary_dim": 8})";
  const Rope rope = from_text(kText);
  EXPECT_EQ(info_of(rope).layout, PHASOR_INTERLEAVED);
  phasor_rope* half = nullptr;
  ASSERT_EQ(
      phasor_rope_from_config_text(kText.data(), kText.size(), nullptr, PHASOR_HALF, 0, &half),
      PHASOR_OK);
  EXPECT_EQ(info_of(Rope(half)).layout, PHASOR_HALF);

  phasor_rope* none = nullptr;
  expect_status(phasor_rope_from_config_text("{", 1, nullptr, PHASOR_LAYOUT_UNSET, 0, &none),
                PHASOR_INVALID_ARGUMENT, "config");
  expect_status(
      phasor_rope_from_config_file("/nonexistent", nullptr, PHASOR_LAYOUT_UNSET, 0, &none),
      PHASOR_IO, "/nonexistent");
  EXPECT_EQ(none, nullptr);
}

TEST(Capi, CosSinAndTablesAgree) {
  const Rope rope = make(spec_of(64, PHASOR_HALF));
  phasor_table* raw = nullptr;
  ASSERT_EQ(phasor_table_create(rope.get(), -5, 15, PHASOR_ANGLES_EXACT, 0, &raw), PHASOR_OK);
  const Table table(raw);
  ASSERT_EQ(phasor_table_grow(table.get(), -5, 30, 0, &raw), PHASOR_OK);
  const Table grown(raw);
  std::int64_t first = 0;
  std::int64_t count = 0;
  ASSERT_EQ(phasor_table_range(grown.get(), &first, &count), PHASOR_OK);
  EXPECT_EQ(first, -5);
  EXPECT_EQ(count, 30);

  std::vector<float> cos(32), sin(32);
  for (const std::int64_t position : {-5, 0, 9, 24}) {
    const auto at = static_cast<double>(position);
    ASSERT_EQ(
        phasor_cos_sin_f32(rope.get(), &at, 1, PHASOR_ANGLES_EXACT, cos.data(), sin.data(), 32),
        PHASOR_OK);
    const float* row_cos = nullptr;
    const float* row_sin = nullptr;
    std::size_t pairs = 0;
    ASSERT_EQ(phasor_table_rows(grown.get(), position, &row_cos, &row_sin, &pairs), PHASOR_OK);
    ASSERT_EQ(pairs, 32U);
    EXPECT_TRUE(std::equal(cos.begin(), cos.end(), row_cos));
    EXPECT_TRUE(std::equal(sin.begin(), sin.end(), row_sin));
  }
  const double one = 1.0;
  std::vector<double> cos64(32), sin64(32);
  ASSERT_EQ(phasor_cos_sin_f64(rope.get(), &one, 1, cos64.data(), sin64.data(), 32), PHASOR_OK);
  EXPECT_NEAR(cos64[0], std::cos(1.0), 1e-15);
  EXPECT_NEAR(sin64[0], std::sin(1.0), 1e-15);

  const float* row = nullptr;
  std::size_t pairs = 0;
  expect_status(phasor_table_rows(table.get(), 10, &row, &row, &pairs), PHASOR_OUT_OF_RANGE,
                {"[-5, 10)", "got 10"});
  EXPECT_EQ(phasor_table_rows(table.get(), -6, &row, &row, &pairs), PHASOR_OUT_OF_RANGE);
  EXPECT_EQ(
      phasor_table_rows(table.get(), std::numeric_limits<std::int64_t>::max(), &row, &row, &pairs),
      PHASOR_OUT_OF_RANGE);
  EXPECT_EQ(
      phasor_table_rows(table.get(), std::numeric_limits<std::int64_t>::min(), &row, &row, &pairs),
      PHASOR_OUT_OF_RANGE);
}

TEST(Capi, ATableOfTheCallersOwnRowsRotates) {
  const Rope rope = make(spec_of(2, PHASOR_INTERLEAVED));
  const float cos[] = {1.0F, 0.0F};
  const float sin[] = {0.0F, 1.0F};
  phasor_table* raw = nullptr;
  ASSERT_EQ(phasor_table_from_rows(cos, sin, 2, 1, 7, &raw), PHASOR_OK) << phasor_last_error();
  const Table table(raw);
  float x[] = {3.0F, 5.0F};
  const phasor_heads view = phasor_dense_heads(x, PHASOR_F32, 1, 1, 1, 2);
  phasor_rotate_options options = options_of();
  options.table = table.get();
  const phasor_positions positions = phasor_positions_from(8);
  ASSERT_EQ(phasor_rotate_in_place(rope.get(), &positions, &view, nullptr, &options), PHASOR_OK)
      << phasor_last_error();
  EXPECT_EQ(x[0], -5.0F);
  EXPECT_EQ(x[1], 3.0F);
  expect_status(
      phasor_table_from_rows(cos, sin, std::numeric_limits<std::size_t>::max(), 4, 0, &raw),
      PHASOR_INVALID_ARGUMENT, "rows");
  expect_status(phasor_table_from_rows(cos, sin, 2, 0, 0, &raw), PHASOR_INVALID_ARGUMENT, "pairs");
}

TEST(Capi, EveryKindOfPositionsMatchesTheCppSide) {
  constexpr std::int64_t kBatch = 2, kTokens = 3, kHeads = 2, kDim = 8;
  const Rope rope = make(spec_of(kDim, PHASOR_HALF));
  const Rotary rotary = resolve({.head_dim = kDim, .rotary_dim = kDim, .layout = PairLayout::half});
  const std::int64_t integers[] = {5, 0, -3, 7, 7, 100000};
  const double floats[] = {0.5, 1.25, -3.0, 7.0, 1e6, 2.0};
  const std::int64_t boundaries[] = {0, 2, 3};
  const struct {
    phasor_positions c;
    Positions cpp;
  } cases[] = {
      {phasor_positions_from(-4), positions_from(-4)},
      {phasor_positions_integers(integers, 1, 0, kTokens),
       positions_per_token(std::span(integers, kTokens))},
      {phasor_positions_integers(integers, 1, kBatch, kTokens),
       positions_per_row(integers, 1, kBatch, kTokens)},
      {phasor_positions_floats(floats, 1, 0, kTokens),
       positions_per_token(std::span(floats, kTokens))},
      {phasor_positions_floats(floats, 1, kBatch, kTokens),
       positions_per_row(floats, 1, kBatch, kTokens)},
      {phasor_positions_packed(boundaries, 2, 10), positions_packed(boundaries, 10)},
  };
  for (const auto& c : cases) {
    const std::int64_t batch = c.c.kind == PHASOR_POSITIONS_PACKED ? 1 : kBatch;
    SCOPED_TRACE(c.c.kind);
    for (const phasor_direction direction : {PHASOR_FORWARD, PHASOR_TRANSPOSE, PHASOR_INVERSE}) {
      std::vector<float> in = ramp(batch * kTokens * kHeads * kDim);
      std::vector<float> ours(in.size());
      const phasor_heads from =
          phasor_dense_heads(in.data(), PHASOR_F32, batch, kTokens, kHeads, kDim);
      const phasor_heads to =
          phasor_dense_heads(ours.data(), PHASOR_F32, batch, kTokens, kHeads, kDim);
      const phasor_rotation rotation{&from, &to, PHASOR_QUERY};
      const phasor_rotate_options options = options_of(direction);
      ASSERT_EQ(phasor_rotate(rope.get(), &c.c, &rotation, 1, &options), PHASOR_OK)
          << phasor_last_error();
      RotateOptions same;
      same.direction = static_cast<Direction>(direction);
      rotate(rotary, c.cpp, heads_view(in.data(), batch, kTokens, kHeads, kDim), same);
      EXPECT_EQ(ours, in);
    }
  }
}

TEST(Capi, EveryDtypeAndLevelRotates) {
  const Rope rope = make(spec_of(2, PHASOR_INTERLEAVED));
  const phasor_positions positions = phasor_positions_from(1);
  for (phasor_instruction_set isa = PHASOR_ISA_BEST; isa <= PHASOR_ISA_X86_64_V4; ++isa) {
    phasor_instruction_set level = -1;
    if (phasor_resolve_instruction_set(isa, &level) != PHASOR_OK) {
      EXPECT_EQ(level, -1);
      continue;
    }
    EXPECT_NE(level, PHASOR_ISA_BEST);
    phasor_rotate_options options = options_of();
    options.isa = isa;
    options.threads = 1;
    double f64[] = {1.0, 0.0};
    float f32[] = {1.0F, 0.0F};
    std::uint16_t f16[] = {0x3c00, 0};
    std::uint16_t bf16[] = {0x3f80, 0};
    void* const buffers[] = {f64, f32, f16, bf16};
    for (phasor_dtype dtype = PHASOR_F64; dtype <= PHASOR_BF16; ++dtype) {
      const phasor_heads view = phasor_dense_heads(buffers[dtype], dtype, 1, 1, 1, 2);
      ASSERT_EQ(phasor_rotate_in_place(rope.get(), &positions, &view, nullptr, &options), PHASOR_OK)
          << phasor_last_error();
    }
    EXPECT_NEAR(f64[0], std::cos(1.0), 1e-15);
    EXPECT_NEAR(f32[1], std::sin(1.0), 1e-7);
    EXPECT_EQ(f16[0], 0x3853);   // 0.54053, the float16 nearest to cos 1
    EXPECT_EQ(bf16[1], 0x3f57);  // 0.83984, the bfloat16 nearest to sin 1
  }
}

TEST(Capi, RerotateMovesKeys) {
  const Rope a = make(spec_of(8, PHASOR_HALF));
  phasor_rope_spec other = spec_of(8, PHASOR_HALF);
  other.base = 500000.0;
  const Rope b = make(other);
  const phasor_positions at_3 = phasor_positions_from(3);
  const phasor_positions at_90 = phasor_positions_from(90);
  std::vector<float> moved = ramp(16);
  std::vector<float> fresh = moved;
  const phasor_heads moved_view = phasor_dense_heads(moved.data(), PHASOR_F32, 1, 2, 1, 8);
  const phasor_heads fresh_view = phasor_dense_heads(fresh.data(), PHASOR_F32, 1, 2, 1, 8);
  ASSERT_EQ(phasor_rotate_in_place(a.get(), &at_3, &moved_view, nullptr, nullptr), PHASOR_OK);
  ASSERT_EQ(phasor_rerotate(a.get(), &at_3, b.get(), &at_90, &moved_view, 1), PHASOR_OK)
      << phasor_last_error();
  ASSERT_EQ(phasor_rotate_in_place(b.get(), &at_90, &fresh_view, nullptr, nullptr), PHASOR_OK);
  for (std::size_t i = 0; i < moved.size(); ++i) EXPECT_NEAR(moved[i], fresh[i], 1e-6F) << i;
}

TEST(Capi, DecayMatchesTheCppSide) {
  const Rope rope = make(spec_of(8, PHASOR_HALF));
  const core::Frequencies frequencies = core::make_frequencies({8, 10000.0});
  const std::vector<double> distances{0.0, 1.0, 17.0, 4096.0};
  const std::vector<double> q{1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<double> k{8, 1, 7, 2, 6, 3, 5, 4};
  std::vector<double> out(4);
  ASSERT_EQ(phasor_mean_partial_sums(rope.get(), distances.data(), 4, out.data()), PHASOR_OK);
  EXPECT_EQ(out, mean_partial_sums(frequencies, distances));
  ASSERT_EQ(phasor_abel_bounds(rope.get(), q.data(), k.data(), 8, distances.data(), 4, out.data()),
            PHASOR_OK);
  EXPECT_EQ(out, abel_bounds(frequencies, q, k, distances));
  ASSERT_EQ(
      phasor_rotated_scores(rope.get(), q.data(), k.data(), 8, distances.data(), 4, out.data()),
      PHASOR_OK);
  EXPECT_EQ(out, rotated_scores(frequencies, q, k, distances));
  ASSERT_EQ(phasor_mean_rotated_scores(rope.get(), 0.5, 2.0, PHASOR_EQUAL, distances.data(), 4,
                                       out.data()),
            PHASOR_OK);
  EXPECT_EQ(out, mean_rotated_scores(frequencies, 0.5, 2.0, attention::QueryKey::equal, distances));
  const std::vector<double> before = out;
  EXPECT_NE(phasor_abel_bounds(rope.get(), q.data(), k.data(), 7, distances.data(), 4, out.data()),
            PHASOR_OK);
  expect_status(
      phasor_mean_rotated_scores(rope.get(), 0.5, 2.0, 2, distances.data(), 4, out.data()),
      PHASOR_INVALID_ARGUMENT, {"relation", "1", "2"});
  EXPECT_EQ(out, before);
}

}  // namespace
}  // namespace phasor
