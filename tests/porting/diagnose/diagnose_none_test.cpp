// Which axis is which; what is not a rotation, undetermined, invalid, or not what a config specifies
// for.
#include "phasor/porting/diagnose.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"
#include "porting/diagnose/diagnose_sample.hpp"
#include "support/errors.hpp"

namespace phasor::porting {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using encodings::RopeSpec;

// ---- axes

TEST(Diagnose, TheTokenAxisIsFound) {
  Recipe recipe;
  recipe.batch = 2;
  recipe.tokens = 5;
  recipe.heads = 9;
  Sample sample = make(recipe);
  // [batch, tokens, heads, dim] -> [batch, heads, tokens, dim]
  const auto swapped = [&](const std::vector<double>& values) {
    std::vector<double> result(values.size());
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t t = 0; t < 5; ++t) {
        for (std::int64_t h = 0; h < 9; ++h) {
          std::copy_n(values.begin() + ((b * 5 + t) * 9 + h) * 64, 64,
                      result.begin() + ((b * 9 + h) * 5 + t) * 64);
        }
      }
    }
    return result;
  };
  EXPECT_EQ(sample.diagnose().axes, (std::vector<std::string>{"batch", "tokens", "heads", "dim"}));
  sample.before = swapped(sample.before);
  sample.after = swapped(sample.after);
  sample.shape = {2, 9, 5, 64};
  const std::vector<std::string> heads_first = {"batch", "heads", "tokens", "dim"};
  const Diagnosis found = sample.diagnose();
  EXPECT_EQ(found.axes, heads_first);
  expect_rotation(found, recipe);
  EXPECT_EQ(sample.diagnose(std::nullopt, {"batch", "head", "seq", "dim"}).axes, heads_first);
  // The wrong axes given: vectors of one "token" are rotated differently.
  EXPECT_EQ(sample.diagnose(std::nullopt, {"batch", "tokens", "heads", "dim"}).answer,
            Answer::none);
  sample.shape = {18, 5, 64};
  EXPECT_EQ(sample.diagnose().axes, (std::vector<std::string>{"heads", "tokens", "dim"}));
}

// ---- no rotation

Diagnosis after_of(const std::function<void(Sample&)>& change) {
  Recipe recipe;
  Sample sample = make(recipe);
  sample.after = sample.before;
  change(sample);
  return sample.diagnose(range(0, recipe.tokens));
}

void expect_none(const Diagnosis& found, std::string_view words) {
  EXPECT_EQ(found.answer, Answer::none) << page(found);
  EXPECT_NE(found.reason.find(words), std::string::npos) << found.reason;
}

TEST(DiagnoseNone, Identical) {
  expect_none(after_of([](Sample&) {}), "equals");
}

TEST(DiagnoseNone, Scaled) {
  expect_none(after_of([](Sample& sample) {
                for (double& value : sample.after) value = static_cast<float>(1.25 * value);
              }),
              "1.25");
}

TEST(DiagnoseNone, Permuted) {
  expect_none(after_of([](Sample& sample) {
                for (std::size_t v = 0; v < sample.after.size(); v += 64) {
                  for (std::size_t i = 0; i < 32; ++i) {
                    sample.after[v + i] = sample.before[v + 2 * i];
                    sample.after[v + 32 + i] = sample.before[v + 2 * i + 1];
                  }
                }
              }),
              "interleaved to half order, features 0 to 63");
  expect_none(after_of([](Sample& sample) {
                for (std::size_t v = 0; v < sample.after.size(); v += 64) {
                  std::swap(sample.after[v + 3], sample.after[v + 9]);
                }
              }),
              "3 from 9, 9 from 3");
}

TEST(DiagnoseNone, ATableWasAdded) {
  for (const double size : {1.0, 0.05}) {
    expect_none(after_of([size](Sample& sample) {
                  for (std::size_t k = 0; k < sample.after.size(); ++k) {
                    const auto token = static_cast<double>(k / 64 / 3);
                    const double angle =
                        token * std::pow(10000.0, -static_cast<double>(k % 64 / 2) / 32.0);
                    sample.after[k] += size * (k % 2 == 0 ? std::sin(angle) : std::cos(angle));
                  }
                }),
                "sinusoidal");
  }
  const std::vector<double> row = random_values(24 * 64, 9, io::NpyType::f32);
  expect_none(after_of([&](Sample& sample) {
                for (std::size_t k = 0; k < sample.after.size(); ++k) {
                  sample.after[k] += row[k / 64 / 3 * 64 + k % 64];
                }
              }),
              "added");
}

TEST(DiagnoseNone, AnotherOrthogonalMap) {
  expect_none(after_of([](Sample& sample) {
                // Reflected at another plane for each token (Householder).
                for (std::size_t v = 0; v < sample.after.size(); v += 64) {
                  const std::vector<double> n =
                      random_values(64, static_cast<unsigned>(100 + v / 64 / 3), io::NpyType::f64);
                  double length = 0.0, along = 0.0;
                  for (std::size_t j = 0; j < 64; ++j) {
                    length += n[j] * n[j];
                    along += n[j] * sample.before[v + j];
                  }
                  for (std::size_t j = 0; j < 64; ++j) {
                    sample.after[v + j] = sample.before[v + j] - 2.0 * along / length * n[j];
                  }
                }
              }),
              "orthogonal");
}

TEST(DiagnoseNone, UnrelatedTensors) {
  expect_none(after_of([](Sample& sample) {
                sample.after = random_values(sample.before.size(), 77, io::NpyType::f32);
              }),
              "every layout");
}

TEST(DiagnoseNone, ReflectedPairs) {
  expect_none(after_of([](Sample& sample) {
                for (std::size_t v = 0; v < sample.after.size(); v += 64) {
                  for (std::size_t i = 0; i < 32; ++i) {
                    const double angle = static_cast<double>(v / 64 / 3) *
                                         std::pow(10000.0, -static_cast<double>(i) / 32.0);
                    const double a = sample.before[v + i], b = sample.before[v + i + 32];
                    sample.after[v + i] = a * std::cos(angle) + b * std::sin(angle);
                    sample.after[v + i + 32] = a * std::sin(angle) - b * std::cos(angle);
                  }
                }
              }),
              "reflected");
}

TEST(DiagnoseNone, RotationsThatNoPositionExplains) {
  Recipe recipe;
  recipe.tokens = 1;
  recipe.heads = 2;
  recipe.positions = {1.0};
  Sample whole;
  whole.shape = {1, 24, 2, 64};
  std::mt19937 generator(3);
  std::uniform_real_distribution<double> angle(-3.0, 3.0);
  for (unsigned t = 0; t < 24; ++t) {
    recipe.frequencies.clear();
    for (int i = 0; i < 32; ++i) recipe.frequencies.push_back(angle(generator));
    recipe.seed = t + 1;
    const Sample one = make(recipe);
    whole.before.insert(whole.before.end(), one.before.begin(), one.before.end());
    whole.after.insert(whole.after.end(), one.after.begin(), one.after.end());
  }
  expect_none(whole.diagnose(), "65535");
}

TEST(DiagnoseNone, NotFinite) {
  expect_none(after_of([](Sample& sample) {
                for (double& value : sample.after) value = std::numeric_limits<double>::infinity();
              }),
              "finite");
  Recipe recipe;
  Sample holes = make(recipe);
  holes.after[5] = std::numeric_limits<double>::quiet_NaN();                // token 0, head 0
  holes.after[64 * (3 * 2 + 1)] = std::numeric_limits<double>::infinity();  // token 2, head 1
  const Diagnosis rest = holes.diagnose();
  expect_rotation(rest, recipe);
  EXPECT_TRUE(says(rest.notes, "[0, 0, 0], [0, 2, 1]")) << page(rest);
  Sample sample = make(recipe);
  sample.before[3] = sample.after[3] = std::numeric_limits<double>::quiet_NaN();
  const Diagnosis found = sample.diagnose();
  expect_rotation(found, recipe);
  EXPECT_TRUE(says(found.notes, "1 of 72")) << page(found);
}

// ---- undetermined

bool is_open(const Diagnosis& found, std::string_view field) {
  return std::any_of(found.undetermined.begin(), found.undetermined.end(),
                     [&](const Undetermined& open) { return open.field == field; });
}

TEST(DiagnoseLittle, OneTokenAtAGivenPosition) {
  Recipe recipe;
  recipe.tokens = 1;
  recipe.offset = 57;
  const Diagnosis found = make(recipe).diagnose(range(57, 1));
  expect_rotation(found, recipe);
  EXPECT_EQ(found.base, 10000.0) << page(found);
}

TEST(DiagnoseLittle, OneVectorOfOnePair) {
  Recipe recipe;
  recipe.tokens = recipe.heads = 1;
  recipe.head_dim = recipe.rotary_dim = 2;
  recipe.offset = 3;
  for (const bool given : {false, true}) {
    const Diagnosis found = given ? make(recipe).diagnose(range(3, 1)) : make(recipe).diagnose();
    EXPECT_EQ(found.answer, Answer::rope) << page(found);
    EXPECT_EQ(found.layout, std::nullopt);
    EXPECT_EQ(found.base, std::nullopt);
    EXPECT_TRUE(is_open(found, "layout") && is_open(found, "base")) << page(found);
    EXPECT_TRUE(io::Json::parse(page(found))["base"].is_null());
  }
}

TEST(DiagnoseLittle, OnePairOverManyTokens) {
  Recipe recipe;
  recipe.head_dim = recipe.rotary_dim = 2;
  recipe.offset = 3;
  const Diagnosis found = make(recipe).diagnose(range(3, recipe.tokens));
  EXPECT_EQ(found.answer, Answer::rope);
  EXPECT_EQ(found.base, std::nullopt);
  EXPECT_EQ(found.scaling->type, "default") << page(found);
  EXPECT_EQ(found.inverse, false);
}

TEST(DiagnoseLittle, SmallShapesNeverCrash) {
  for (const std::int64_t tokens : {1, 2, 3}) {
    for (const std::int64_t heads : {1, 2}) {
      for (const std::int64_t dim : {2, 4, 6, 8}) {
        for (const std::int64_t offset : {0, 1, 1000000000}) {
          for (const bool given : {false, true}) {
            Recipe recipe;
            recipe.tokens = tokens;
            recipe.heads = heads;
            recipe.head_dim = recipe.rotary_dim = dim;
            recipe.offset = offset;
            const Sample sample = make(recipe);
            const Diagnosis found =
                given ? sample.diagnose(range(offset, tokens)) : sample.diagnose();
            const io::Json parsed = io::Json::parse(page(found));
            for (const char* field : {"base", "inverse", "layout", "scaling"}) {
              if (found.answer == Answer::rope && parsed[field].is_null()) {
                EXPECT_TRUE(is_open(found, field)) << field << " " << page(found);
              }
            }
          }
        }
      }
    }
  }
}

TEST(DiagnoseLittle, ZerosAndSubnormalsNeverCrash) {
  Recipe recipe;
  Sample sample = make(recipe);
  std::fill(sample.before.begin(), sample.before.end(), 0.0);
  EXPECT_EQ(sample.diagnose().answer, Answer::none);
  sample.after = sample.before;
  EXPECT_EQ(sample.diagnose().answer, Answer::none);
  sample = make(recipe);
  for (std::vector<double>* values : {&sample.before, &sample.after}) {
    for (double& value : *values) value *= 1e-40;
  }
  EXPECT_NO_THROW((void)sample.diagnose());
}

// ---- refusals

TEST(DiagnoseRefuses, WrongInput) {
  const auto refuse = [](const io::NpyArray& x, const io::NpyArray& y,
                         const io::NpyArray* positions, std::vector<std::string> axes,
                         ErrorCode code, std::initializer_list<std::string_view> values) {
    tests::expect_error(code, values, [&] {
      return diagnose({&x, &y, positions, std::move(axes)});
    });
  };
  const io::NpyArray good =
      array_of(io::NpyType::f32, {4, 2, 8}, random_values(64, 1, io::NpyType::f32));
  const io::NpyArray other =
      array_of(io::NpyType::f32, {4, 2, 8}, random_values(64, 2, io::NpyType::f32));
  refuse(good, io::make_npy(io::NpyType::f32, {4, 2, 6}), nullptr, {}, ErrorCode::shape_mismatch,
         {"[4, 2, 8]", "[4, 2, 6]"});
  refuse(io::make_npy(io::NpyType::f32, {4, 2, 7}), io::make_npy(io::NpyType::f32, {4, 2, 7}),
         nullptr, {}, ErrorCode::shape_mismatch, {"head_dim", "got 7"});
  refuse(io::make_npy(io::NpyType::f32, {0, 2, 8}), io::make_npy(io::NpyType::f32, {0, 2, 8}),
         nullptr, {}, ErrorCode::shape_mismatch, {"[0, 2, 8]"});
  refuse(io::make_npy(io::NpyType::f32, {8}), io::make_npy(io::NpyType::f32, {8}), nullptr, {},
         ErrorCode::shape_mismatch, {"[tokens, head_dim]", "[8]"});
  refuse(io::make_npy(io::NpyType::i64, {2, 8}), io::make_npy(io::NpyType::i64, {2, 8}), nullptr,
         {}, ErrorCode::unsupported, {"before", "int64"});
  const Sample rotated = [] {
    Recipe recipe;
    recipe.tokens = 4;
    return make(recipe);
  }();
  const io::NpyArray x = array_of(io::NpyType::f32, rotated.shape, rotated.before);
  const io::NpyArray y = array_of(io::NpyType::f32, rotated.shape, rotated.after);
  const io::NpyArray wrong = range(0, 5);
  refuse(x, y, &wrong, {}, ErrorCode::shape_mismatch, {"positions", "got 5"});
  const io::NpyArray rows = array_of(io::NpyType::i64, {2, 4}, std::vector<double>(8, 0.0));
  refuse(x, y, &rows, {}, ErrorCode::shape_mismatch, {"[1, 4]", "[2, 4]"});
  const io::NpyArray three = io::make_npy(io::NpyType::i64, {3, 1, 4});
  refuse(x, y, &three, {}, ErrorCode::shape_mismatch, {"[batch, tokens]", "[3, 1, 4]"});
  refuse(x, y, nullptr, {"tokens", "heads"}, ErrorCode::invalid_argument, {"4", "tokens,heads"});
}

// ---- compared with a config

TEST(DiagnoseConfig, NamesTheFieldThatDiffers) {
  Recipe recipe;
  recipe.layout = "interleaved";
  const Sample sample = make(recipe);
  const io::NpyArray positions = range(0, recipe.tokens);
  EXPECT_TRUE(sample.check(spec_of(recipe), positions).agrees);

  const auto fields = [&](const RopeSpec& spec) {
    std::vector<std::string> names;
    for (const ConfigDifference& difference : sample.check(spec, positions).differences) {
      names.push_back(difference.field);
    }
    return names;
  };
  RopeSpec spec = spec_of(recipe);
  spec.base = 500000.0;
  spec.layout = core::PairLayout::half;
  EXPECT_EQ(fields(spec), (std::vector<std::string>{"layout", "base"}));
  spec = spec_of(recipe);
  spec.scaling = yarn(4.0, 4096);
  const ConfigCheck dropped = sample.check(spec, positions);
  ASSERT_TRUE(dropped.cause);
  EXPECT_EQ(dropped.cause->id, "scaling_ignored");
  EXPECT_EQ(fields(spec), (std::vector<std::string>{"scaling"}));
  spec = spec_of(recipe);
  spec.rotary_dim = 32;
  EXPECT_EQ(fields(spec), (std::vector<std::string>{"rotary_dim"}));
  spec = spec_of(recipe);
  spec.head_dim = spec.rotary_dim = 32;
  EXPECT_EQ(fields(spec), (std::vector<std::string>{"head_dim"}));
}

}  // namespace
}  // namespace phasor::porting
