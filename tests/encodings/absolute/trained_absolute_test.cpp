// Trained rows for absolute positions: learned, and Su's hierarchical extension of them.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "phasor/encodings/encoding.hpp"
#include "support/errors.hpp"
#include "support/golden_array.hpp"

namespace phasor::encodings {
namespace {

using tests::golden_array;

std::vector<float> normals(std::size_t count, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::int64_t> any_positions(std::int64_t first, std::int64_t end) {
  return *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(first, end));
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

TEST(LearnedAbsolute, CopiesTheGoldenRowsToTheBit) {
  struct Case {
    std::string folder;
    std::int64_t rows, dim, offset;
  };
  for (const auto& [folder, rows, dim, offset] :
       {Case{"learned_absolute_plain", 20, 12, 0},
        Case{"learned_absolute_opt_offset2", 24, 16, 2}}) {
    const std::string path = "encodings/" + folder + "/";
    const auto table = golden_array<float>(path + "table.npy");
    const auto positions = golden_array<std::int64_t>(path + "position_ids.npy");
    const auto want = golden_array<float>(path + "embeddings.npy");
    std::vector<float> out(positions.size() * static_cast<std::size_t>(dim));
    learned_rows({shared_rows(table.data(), rows, dim), offset}, positions, out.data());
    ASSERT_EQ(out.size(), want.size());
    EXPECT_EQ(std::memcmp(out.data(), want.data(), out.size() * sizeof(float)), 0) << folder;
  }
}

TEST(LearnedAbsolute, APositionBeyondTheTableIsRefusedBeforeAnythingIsWritten) {
  const std::vector<float> table = normals(24 * 4, 1);
  const LearnedAbsolute encoding{shared_rows(table.data(), 24, 4), 2};
  for (const std::int64_t beyond :
       {std::int64_t{-3}, std::int64_t{22}, std::int64_t{122},
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    const std::vector<std::int64_t> positions = {0, beyond};
    std::vector<float> out(8, 9.0F);
    tests::expect_error(ErrorCode::out_of_range, {"-2", "21", "24", message(beyond)},
                        [&] { learned_rows(encoding, positions, out.data()); });
    EXPECT_EQ(out, std::vector<float>(8, 9.0F));
    std::vector<float> d_rows(24 * 4, 0.0F);
    const std::vector<float> d_out(8, 1.0F);
    tests::expect_error(ErrorCode::out_of_range, {message(beyond)}, [&] {
      learned_rows_backward(encoding, positions, d_out.data(), shared_rows(d_rows.data(), 24, 4));
    });
    EXPECT_EQ(d_rows, std::vector<float>(24 * 4, 0.0F));
  }
}

TEST(LearnedAbsolute, RefusesTablesThatAreNone) {
  const std::vector<float> table(24);
  const std::vector<std::int64_t> positions = {0};
  std::vector<float> out(4), d_rows(24);
  const auto expect_refused = [&](ErrorCode code, std::initializer_list<std::string_view> values,
                                  const LearnedAbsolute& encoding) {
    tests::expect_error(code, values, [&] { learned_rows(encoding, positions, out.data()); });
  };
  expect_refused(ErrorCode::shape_mismatch, {"rows", "missing"}, {});
  expect_refused(ErrorCode::shape_mismatch, {"rows", "heads", "2"},
                 {heads_then_rows(table.data(), 2, 3, 4)});
  expect_refused(ErrorCode::shape_mismatch, {"rows", "0 of dim 4"},
                 {shared_rows(table.data(), 0, 4)});
  expect_refused(ErrorCode::invalid_argument, {"offset", "-1"},
                 {shared_rows(table.data(), 6, 4), -1});
  tests::expect_error(ErrorCode::shape_mismatch, {"d_rows", "[1, 6, 4]", "[1, 5, 4]"}, [&] {
    learned_rows_backward({shared_rows(table.data(), 6, 4)}, positions, out.data(),
                          shared_rows(d_rows.data(), 5, 4));
  });
}

// <forward(rows), g> = <rows, backward(g)> for every rows and g: backward is the transpose.
RC_GTEST_PROP(LearnedAbsoluteLaws, BackwardIsTheTranspose, ()) {
  const std::int64_t rows = 9, dim = 3, offset = *rc::gen::inRange<std::int64_t>(0, 4);
  const std::vector<std::int64_t> positions = any_positions(-offset, rows - offset);
  const std::vector<float> table = normals(27, *rc::gen::arbitrary<std::uint32_t>());
  const std::vector<float> g = normals(positions.size() * 3, *rc::gen::arbitrary<std::uint32_t>());
  const LearnedAbsolute encoding{shared_rows(table.data(), rows, dim), offset};
  std::vector<float> out(g.size()), d_rows(27, 0.0F);
  learned_rows(encoding, positions, out.data());
  learned_rows_backward(encoding, positions, g.data(), shared_rows(d_rows.data(), rows, dim));
  RC_ASSERT(std::fabs(dot(out, g) - dot(table, d_rows)) < 1e-3);
}

TEST(LearnedAbsolute, GradientsAreAddedToWhatIsThere) {
  const std::vector<float> table(6);
  const std::vector<std::int64_t> positions = {1, 1, 2};
  const std::vector<float> d_out = {1, 2, 10, 20, 100, 200};
  std::vector<float> d_rows = {1, 1, 1, 1, 1, 1};
  learned_rows_backward({shared_rows(table.data(), 3, 2)}, positions, d_out.data(),
                        shared_rows(d_rows.data(), 3, 2));
  EXPECT_EQ(d_rows, (std::vector<float>{1, 1, 12, 23, 101, 201}));
}

TEST(HierarchicalAbsolute, EqualsTheGoldenTable) {
  const auto table = golden_array<float>("encodings/hierarchical_absolute_n12/table.npy");
  const auto truth = golden_array<double>("encodings/hierarchical_absolute_n12/extended_f64.npy");
  std::vector<std::int64_t> positions(144);
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int64_t>(i);
  std::vector<float> out(144 * 8);
  hierarchical_rows({shared_rows(table.data(), 12, 8)}, positions, out.data());
  ASSERT_EQ(out.size(), truth.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_NEAR(out[i], truth[i], 1e-7 * std::fmax(1.0, std::fabs(truth[i]))) << i;
  }
  EXPECT_EQ(std::memcmp(out.data(), table.data(), table.size() * sizeof(float)), 0)
      << "the first n positions are the table itself";
}

TEST(HierarchicalAbsolute, TheFirstPositionsKeepTheBitsOfAnyRow) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> table = {infinity, -0.0F, 1.0F, -0.0F};
  const std::vector<std::int64_t> positions = {0, 1};
  std::vector<float> out(4, 9.0F);
  hierarchical_rows({shared_rows(table.data(), 2, 2)}, positions, out.data());
  EXPECT_EQ(std::memcmp(out.data(), table.data(), sizeof(float) * 4), 0);
}

// The other form: u first, then the two levels.
RC_GTEST_PROP(HierarchicalAbsoluteLaws, IsTheBlendOfTwoLevels, ()) {
  const std::int64_t n = *rc::gen::inRange<std::int64_t>(1, 12), dim = 3;
  const double alpha = *rc::gen::element(0.1, 0.4, 0.5, 0.9);
  const std::vector<float> p =
      normals(static_cast<std::size_t>(n * dim), *rc::gen::arbitrary<std::uint32_t>());
  const std::vector<std::int64_t> positions = any_positions(0, n * n);
  std::vector<float> out(positions.size() * 3);
  hierarchical_rows({shared_rows(p.data(), n, dim), alpha}, positions, out.data());
  for (std::size_t at = 0; at < positions.size(); ++at) {
    for (std::size_t c = 0; c < 3; ++c) {
      const auto u = [&](std::int64_t i) {
        return (p[static_cast<std::size_t>(i) * 3 + c] - alpha * p[c]) / (1 - alpha);
      };
      const double want = alpha * u(positions[at] / n) + (1 - alpha) * u(positions[at] % n);
      RC_ASSERT(std::fabs(out[at * 3 + c] - want) < 1e-6 * std::fmax(1.0, std::fabs(want)));
    }
  }
}

RC_GTEST_PROP(HierarchicalAbsoluteLaws, BackwardIsTheTranspose, ()) {
  const std::int64_t n = *rc::gen::inRange<std::int64_t>(1, 7), dim = 3;
  const std::vector<std::int64_t> positions = any_positions(0, n * n);
  const auto size = static_cast<std::size_t>(n * dim);
  const std::vector<float> table = normals(size, *rc::gen::arbitrary<std::uint32_t>());
  const std::vector<float> g = normals(positions.size() * 3, *rc::gen::arbitrary<std::uint32_t>());
  const HierarchicalAbsolute encoding{shared_rows(table.data(), n, dim)};
  std::vector<float> out(g.size()), d_rows(size, 0.0F);
  hierarchical_rows(encoding, positions, out.data());
  hierarchical_rows_backward(encoding, positions, g.data(), shared_rows(d_rows.data(), n, dim));
  RC_ASSERT(std::fabs(dot(out, g) - dot(table, d_rows)) < 1e-3);
}

TEST(HierarchicalAbsolute, RefusesPositionsAndAlphasOutsideBeforeAnythingIsWritten) {
  const std::vector<float> table = normals(12 * 8, 3);
  for (const std::int64_t beyond :
       {std::int64_t{-1}, std::int64_t{144}, std::numeric_limits<std::int64_t>::max()}) {
    const std::vector<std::int64_t> positions = {0, beyond};
    std::vector<float> out(16, 9.0F);
    tests::expect_error(ErrorCode::out_of_range, {"12", message(beyond)}, [&] {
      hierarchical_rows({shared_rows(table.data(), 12, 8)}, positions, out.data());
    });
    EXPECT_EQ(out, std::vector<float>(16, 9.0F));
  }
  for (const double alpha : {0.0, 1.0, -0.4, 1.5, std::nan("")}) {
    const std::vector<std::int64_t> positions = {0};
    std::vector<float> out(8);
    tests::expect_error(ErrorCode::invalid_argument, {"alpha", message(alpha)}, [&] {
      hierarchical_rows({shared_rows(table.data(), 12, 8), alpha}, positions, out.data());
    });
  }
}

}  // namespace
}  // namespace phasor::encodings
