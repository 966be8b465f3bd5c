// Two dumps with a known difference: the first place where they part, and the relation there.
#include "phasor/porting/internal/runs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/internal/json.hpp"
#include "porting/rounding.hpp"
#include "porting/runs/names.hpp"
#include "support/errors.hpp"

namespace phasor::porting {
namespace {

using io::NpyArray;
using io::NpyType;
using Shape = std::vector<std::int64_t>;

NpyArray random_tensor(const Shape& shape, unsigned seed) {
  NpyArray array = io::make_npy(NpyType::f32, shape);
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < array.size(); ++i) array.as<float>()[i] = normal(engine);
  return array;
}

NpyArray changed(NpyArray array, const std::function<float(float, std::int64_t)>& change) {
  for (std::int64_t i = 0; i < array.size(); ++i)
    array.as<float>()[i] = change(array.as<float>()[i], i);
  return array;
}

// Noise of a few roundings.
NpyArray noisy(const NpyArray& array, double size, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  return changed(array, [&](float x, std::int64_t) {
    return static_cast<float>(x * (1.0 + size * normal(engine)));
  });
}

NpyArray as_sixteen(const NpyArray& array, NpyType type) {
  NpyArray out = io::make_npy(type, array.shape);
  for (std::int64_t i = 0; i < array.size(); ++i) {
    out.as<std::uint16_t>()[i] = type == NpyType::f16
                                     ? core::to_half(array.as<float>()[i]).bits
                                     : core::to_bfloat16(array.as<float>()[i]).bits;
  }
  return out;
}

RunRelation relation(const NpyArray& a, const NpyArray& b) {
  return compare_run_tensors(a, b).relation;
}

TEST(RunTensors, RoundingIsEqual) {
  const NpyArray x = random_tensor({2, 16, 4, 32}, 1);
  EXPECT_EQ(relation(x, x), RunRelation::equal);
  EXPECT_EQ(relation(x, noisy(x, 5e-7, 2)), RunRelation::equal);
  EXPECT_NE(relation(x, noisy(x, 1e-4, 2)), RunRelation::equal);
  for (const NpyType type : {NpyType::f16, NpyType::bf16}) {
    const double unit = type == NpyType::f16 ? 0x1p-11 : 0x1p-8;
    const NpyArray y = as_sixteen(x, type);
    EXPECT_EQ(relation(x, y), RunRelation::equal);
    EXPECT_EQ(relation(as_sixteen(noisy(x, unit, 3), type), y), RunRelation::equal);
    EXPECT_NE(relation(as_sixteen(noisy(x, 20 * unit, 3), type), y), RunRelation::equal);
    // A dump in float32 of numbers that were rounded counts as rounded.
    const core::DType stored = type == NpyType::f16 ? core::DType::f16 : core::DType::bf16;
    const NpyArray wide = changed(
        x, [&](float value, std::int64_t) { return static_cast<float>(rounded(value, stored)); });
    const RunDifference difference = compare_run_tensors(x, wide);
    EXPECT_EQ(difference.relation, RunRelation::equal);
    EXPECT_EQ(difference.precision, type_name(stored));
  }
}

TEST(RunTensors, WholeNumbersAreNotRounded) {
  NpyArray positions = io::make_npy(NpyType::f32, {200});
  std::iota(positions.as<float>(), positions.as<float>() + 200, 0.0F);
  const NpyArray late = changed(positions, [](float x, std::int64_t) { return x + 1.0F; });
  EXPECT_NE(relation(positions, late), RunRelation::equal);
  NpyArray ids = io::make_npy(NpyType::i64, {3}), other = ids;
  EXPECT_EQ(relation(ids, other), RunRelation::equal);
  other.as<std::int64_t>()[1] = 1;
  EXPECT_NE(relation(ids, other), RunRelation::equal);
}

TEST(RunTensors, OneFactor) {
  const NpyArray x = random_tensor({8, 4, 32}, 1);
  const RunDifference difference =
      compare_run_tensors(x, changed(x, [](float v, std::int64_t) { return v * 0.125F; }));
  EXPECT_EQ(difference.relation, RunRelation::scaled);
  EXPECT_NE(difference.text.find("0.125"), std::string::npos) << difference.text;
  EXPECT_EQ(relation(x, changed(x, [](float v, std::int64_t) { return -v; })), RunRelation::scaled);
  EXPECT_EQ(relation(x, changed(x, [](float, std::int64_t) { return 0.0F; })), RunRelation::scaled);
}

// from(j): the feature of x that is feature j of the result.
NpyArray permuted(const NpyArray& x, const std::function<std::int64_t(std::int64_t)>& from) {
  const std::int64_t width = x.shape.back();
  return changed(
      x, [&](float, std::int64_t i) { return x.as<float>()[i / width * width + from(i % width)]; });
}

TEST(RunTensors, FeaturesInAnotherOrder) {
  const NpyArray x = random_tensor({8, 4, 32}, 1);
  const auto to_half = [](std::int64_t j) { return j < 16 ? 2 * j : 2 * (j - 16) + 1; };
  const auto to_interleaved = [](std::int64_t j) { return j % 2 == 0 ? j / 2 : j / 2 + 16; };
  const RunDifference half = compare_run_tensors(x, permuted(x, to_half));
  EXPECT_EQ(half.relation, RunRelation::permuted);
  EXPECT_NE(half.text.find("B is half"), std::string::npos) << half.text;
  const RunDifference interleaved = compare_run_tensors(x, permuted(x, to_interleaved));
  EXPECT_NE(interleaved.text.find("B is interleaved"), std::string::npos) << interleaved.text;
  // Heads in one axis: the head_dim is found.
  const NpyArray flat = random_tensor({8, 128}, 2);
  const RunDifference heads = compare_run_tensors(
      flat, permuted(flat, [&](std::int64_t j) { return j / 32 * 32 + to_half(j % 32); }));
  EXPECT_EQ(heads.relation, RunRelation::permuted);
  EXPECT_NE(heads.text.find("head_dim 32"), std::string::npos) << heads.text;
  // Any other order, with noise.
  std::vector<std::int64_t> order(32);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  EXPECT_EQ(relation(x, noisy(permuted(x, [&](std::int64_t j) { return order[j]; }), 3e-7, 9)),
            RunRelation::permuted);
}

TEST(RunTensors, AxesInAnotherOrder) {
  const NpyArray x = random_tensor({6, 4, 8}, 1);
  NpyArray swapped = io::make_npy(NpyType::f32, {4, 6, 8});
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j < 4; ++j)
      std::copy_n(x.as<float>() + (i * 4 + j) * 8, 8, swapped.as<float>() + (j * 6 + i) * 8);
  }
  EXPECT_EQ(relation(x, swapped), RunRelation::transposed);
  swapped.shape = {6, 4, 8};  // reshaped, not transposed: one engine forgot to
  EXPECT_NE(relation(x, swapped), RunRelation::equal);
  EXPECT_EQ(relation(x, random_tensor({6, 4, 9}, 1)), RunRelation::shape);
  NpyArray batched = x;
  batched.shape = {1, 6, 4, 8};  // an axis of 1 is no difference
  EXPECT_EQ(relation(x, batched), RunRelation::equal);
}

TEST(RunTensors, ShiftsAndParts) {
  const NpyArray x = random_tensor({24, 4, 8}, 1);
  const NpyArray late = changed(random_tensor({24, 4, 8}, 2), [&](float v, std::int64_t i) {
    return i < 3 * 32 ? v : x.as<float>()[i - 3 * 32];
  });
  const RunDifference shifted = compare_run_tensors(x, late);
  EXPECT_EQ(shifted.relation, RunRelation::shifted);
  EXPECT_NE(shifted.text.find("+ 3"), std::string::npos) << shifted.text;
  const RunDifference head = compare_run_tensors(
      x, changed(x, [](float v, std::int64_t i) { return i / 8 % 4 == 2 ? v + 1.0F : v; }));
  EXPECT_EQ(head.relation, RunRelation::part);
  EXPECT_NE(head.text.find("axis 1: 2"), std::string::npos) << head.text;
  const RunDifference tokens = compare_run_tensors(
      x, changed(x, [](float v, std::int64_t i) { return i / 32 >= 20 ? v + 1.0F : v; }));
  EXPECT_NE(tokens.text.find("axis 0: 20-23"), std::string::npos) << tokens.text;
  EXPECT_EQ(relation(x, random_tensor({24, 4, 8}, 7)), RunRelation::other);
  EXPECT_EQ(relation(x, changed(x, [](float v, std::int64_t i) { return i == 5 ? NAN : v; })),
            RunRelation::not_finite);
  const NpyArray holes = changed(x, [](float v, std::int64_t i) { return i == 5 ? NAN : v; });
  EXPECT_EQ(relation(holes, holes), RunRelation::equal);
}

TEST(RunNames, NormalNames) {
  EXPECT_EQ(normal_name("model.layers.3.self_attn.q_rope"), "layers.3.self.attn.q.rope");
  EXPECT_EQ(normal_name("transformer/h_03/self-attn/Query:rope"), "layers.3.self.attn.q.rope");
  EXPECT_EQ(normal_name("layer3.k"), normal_name("blk.3.key"));
  EXPECT_EQ(layer_of("q_bf16"), std::nullopt);
  EXPECT_EQ(layer_of("layers.12.q_bf16"), 12);
  EXPECT_EQ(role_of("layers.0.v"), std::nullopt);
  for (const auto& [before, after] : {std::pair{"l.q_before", "l.q_after"},
                                      {"l.q_pre_rope", "l.q_rope"},
                                      {"l.q", "l.q_rot"},
                                      {"l.query_raw", "l.query_rotated"}}) {
    ASSERT_TRUE(role_of(before) && role_of(after));
    EXPECT_EQ(role_of(before)->group, role_of(after)->group);
    EXPECT_NE(role_of(before)->stage, RotationStage::after);
    EXPECT_EQ(role_of(after)->stage, RotationStage::after);
  }
}

// A forward pass: an embedding, then layers with q and k before and after their rotation.
struct Pass {
  std::vector<std::string> names;
  std::vector<NpyArray> arrays;

  void add(std::string name, NpyArray array) {
    names.push_back(std::move(name));
    arrays.push_back(std::move(array));
  }
  NpyArray& operator[](const std::string& name) {
    return arrays[static_cast<std::size_t>(std::find(names.begin(), names.end(), name) -
                                           names.begin())];
  }
  [[nodiscard]] std::vector<RunTensor> tensors() const {
    std::vector<RunTensor> list;
    for (std::size_t i = 0; i < names.size(); ++i)
      list.push_back({names[i], [this, i] { return arrays[i]; }});
    return list;
  }
};

encodings::RopeSpec spec_of(core::PairLayout layout, double base = 10000.0) {
  encodings::RopeSpec spec;
  spec.head_dim = spec.rotary_dim = 32;
  spec.base = base;
  spec.layout = layout;
  return spec;
}

NpyArray rotated(const NpyArray& x, const encodings::RopeSpec& spec) {
  NpyArray y = x;
  const core::HeadsView view = core::heads_view(y.as<float>(), 1, x.shape[0], x.shape[1], 32);
  const core::Rotation rotation{view, view, core::Role::query};
  core::rotate(encodings::resolve(spec), core::positions_counted(0, x.shape[0]),
               std::span(&rotation, 1), {});
  return y;
}

Pass pass(const encodings::RopeSpec& spec, unsigned noise) {
  Pass made;
  const auto put = [&](const std::string& name, const NpyArray& array) {
    made.add(name, noisy(array, 1e-7, noise + static_cast<unsigned>(made.names.size())));
  };
  put("embedding", random_tensor({48, 64}, 1));
  for (unsigned layer = 0; layer < 12; ++layer) {
    const std::string start = "layers." + std::to_string(layer) + ".";
    for (const std::string role : {"q", "k"}) {
      const NpyArray x = random_tensor({48, 2, 32}, 100 + 2 * layer + (role == "k" ? 1 : 0));
      put(start + role + "_before", x);
      made.add(start + role + "_after", rotated(made.arrays.back(), spec));  // of the run's own x
    }
    put(start + "attn_out", random_tensor({48, 64}, 200 + layer));
  }
  put("logits", random_tensor({48, 100}, 300));
  return made;
}

RunsReport compared(const Pass& a, const Pass& b,
                    const std::optional<encodings::RopeSpec>& spec = std::nullopt) {
  RunsInput input{a.tensors(), b.tensors()};
  if (spec) input.spec = [&](std::optional<std::int64_t>) { return spec; };
  return compare_runs(input);
}

const encodings::RopeSpec kHalf = spec_of(core::PairLayout::half),
                          kInterleaved = spec_of(core::PairLayout::interleaved);

TEST(Runs, EqualWithinRounding) {
  const RunsReport report = compared(pass(kHalf, 1000), pass(kHalf, 2000));
  EXPECT_FALSE(report.first.has_value());
  EXPECT_EQ(report.parts.size(), 62U);
  EXPECT_EQ(report.parts.front().name, "embedding");
  EXPECT_EQ(report.parts.back().name, "logits");
  EXPECT_TRUE(report.only_a.empty() && report.only_b.empty());
}

TEST(Runs, LayersAreSortedAsNumbers) {
  Pass a = pass(kHalf, 1), b = pass(kHalf, 1);
  for (const char* const name : {"layers.10.attn_out", "layers.2.attn_out"})
    b[name] = random_tensor({48, 64}, 999);
  const RunsReport report = compared(a, b);
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.parts[*report.first].name, "layers.2.attn_out");
  EXPECT_EQ(report.later_differing, 1U);
}

TEST(Runs, TheWrongRotationIsNamed) {
  for (const bool a_is_wrong : {true, false}) {
    const Pass right = pass(kHalf, 10), wrong = pass(kInterleaved, 20);
    const RunsReport report =
        a_is_wrong ? compared(wrong, right, kHalf) : compared(right, wrong, kHalf);
    ASSERT_TRUE(report.first.has_value());
    EXPECT_TRUE(report.parts[*report.first].name.ends_with("_after"));
    ASSERT_TRUE(report.rotation_a && report.rotation_b);
    ASSERT_TRUE(report.rotation_a->check && report.rotation_b->check);
    EXPECT_EQ(report.rotation_a->check->agrees, !a_is_wrong);
    EXPECT_EQ(report.rotation_b->check->agrees, a_is_wrong);
    const auto& differences =
        (a_is_wrong ? report.rotation_a : report.rotation_b)->check->differences;
    EXPECT_TRUE(std::any_of(differences.begin(), differences.end(),
                            [](const ConfigDifference& d) { return d.field == "layout"; }));
  }
}

TEST(Runs, RotationsAreDescribedWithoutAConfig) {
  const RunsReport report =
      compared(pass(kHalf, 10), pass(spec_of(core::PairLayout::half, 500000.0), 20));
  ASSERT_TRUE(report.first && report.rotation_a && report.rotation_b);
  EXPECT_NE(report.rotation_a->text.find("10000"), std::string::npos) << report.rotation_a->text;
  EXPECT_NE(report.rotation_b->text.find("500000"), std::string::npos) << report.rotation_b->text;
}

// The config does not say where positions start: both rotations are as it says, and they differ.
TEST(Runs, RotationsThatAreBothRightAreCompared) {
  const Pass a = pass(kHalf, 10);
  Pass b = pass(kHalf, 20);
  NpyArray& after = b["layers.3.k_after"];
  NpyArray late = b["layers.3.k_before"];
  const core::HeadsView view = core::heads_view(late.as<float>(), 1, 48, 2, 32);
  const core::Rotation rotation{view, view, core::Role::key};
  core::rotate(encodings::resolve(kHalf), core::positions_counted(7, 48), std::span(&rotation, 1),
               {});
  after = late;
  const RunsReport report = compared(a, b, kHalf);
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.parts[*report.first].name, "layers.3.k_after");
  EXPECT_NE(report.rotations.find("0 and 7"), std::string::npos) << report.rotations;
  EXPECT_EQ(report.later_differing, 0U);
}

// A base that is off by 2.5 % moves q by less than the rounding of a bfloat16 run allows.
TEST(Runs, SmallFaultsOfARotationAreFoundByTheConfig) {
  encodings::RopeSpec other_base = kHalf;
  other_base.base = 10250.0;  // angles are off by up to 0.04 of a radian, 0.01 on average
  Pass a = pass(kHalf, 10), b = pass(other_base, 20);
  for (Pass* const run : {&a, &b}) {
    for (NpyArray& array : run->arrays) array = as_sixteen(array, NpyType::bf16);
  }
  EXPECT_FALSE(compared(a, b).first.has_value());
  const RunsReport report = compared(a, b, kHalf);
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.parts[*report.first].name, "layers.0.k_after");
  ASSERT_TRUE(report.rotation_a && report.rotation_b);
  EXPECT_TRUE(report.rotation_a->check->agrees);
  EXPECT_FALSE(report.rotation_b->check->agrees);
  // Both alike: equal, with a note.
  const RunsReport both = compared(b, b, kHalf);
  EXPECT_FALSE(both.first.has_value());
  EXPECT_FALSE(both.both_differ.empty());
}

TEST(Runs, LaterFaultsOfTheirOwn) {
  Pass a = pass(kHalf, 1), b = pass(kHalf, 1);
  b["layers.1.attn_out"] = noisy(b["layers.1.attn_out"], 0.01, 4);
  b["layers.4.attn_out"] = noisy(b["layers.4.attn_out"], 0.03, 5);
  RunsReport report = compared(a, b);
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.parts[*report.first].name, "layers.1.attn_out");
  EXPECT_EQ(report.later_differing, 1U);
  EXPECT_FALSE(report.next_jump.has_value());  // three times as large: growth
  b["layers.6.attn_out"] =
      changed(b["layers.6.attn_out"], [](float x, std::int64_t) { return 2.0F * x; });
  report = compared(a, b);
  ASSERT_TRUE(report.next_jump.has_value());
  EXPECT_EQ(report.parts[*report.next_jump].name, "layers.6.attn_out");
}

TEST(Runs, NamesOfAnotherEngine) {
  Pass a = pass(kHalf, 1), b = pass(kHalf, 2);
  for (std::string& name : b.names) {
    if (name.starts_with("layers.")) name = "model/h_" + name.substr(7);
  }
  a.add("only.here", random_tensor({2}, 1));
  b.add("only.there", random_tensor({2}, 1));
  const RunsReport report = compared(a, b);
  EXPECT_FALSE(report.first.has_value());
  EXPECT_EQ(report.parts.size(), 62U);
  EXPECT_EQ(report.only_a, std::vector<std::string>{"only.here"});
  EXPECT_EQ(report.only_b, std::vector<std::string>{"only.there"});

  Pass other;
  other.add("nothing", random_tensor({2}, 1));
  tests::expect_error(ErrorCode::invalid_argument, {"nothing"}, [&] { return compared(other, a); });
}

TEST(Runs, Json) {
  const Pass a = pass(kHalf, 10), b = pass(kInterleaved, 20);
  const io::Json page = io::Json::parse(runs_json(compared(a, b, kHalf)));
  EXPECT_EQ(page.at("equal"), false);
  EXPECT_EQ(page.at("rotation_a").at("as_the_config_says"), true);
  EXPECT_EQ(page.at("rotation_b").at("as_the_config_says"), false);
  EXPECT_EQ(page.at("tensors").size(), 62U);
}

}  // namespace
}  // namespace phasor::porting
