#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "phasor/encodings/encoding.hpp"
#include "support/errors.hpp"
#include "support/golden_array.hpp"
#include "support/truth.hpp"

namespace phasor::encodings {
namespace {

using tests::golden_array;
using tests::Real;
using Variant = Sinusoidal::Variant;

std::vector<std::int64_t> counting(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < count; ++i) positions.push_back(first + i);
  return positions;
}

template <class T>
std::vector<T> rows_of(const Sinusoidal& encoding, const std::vector<std::int64_t>& positions) {
  std::vector<T> rows(positions.size() * static_cast<std::size_t>(encoding.dim), T(9));
  sinusoidal_rows(encoding, positions, rows.data());
  return rows;
}

// What column c holds: the sine or cosine of frequency i, or zero.
struct Column {
  enum class Kind { sine, cosine, zero } kind;
  std::int64_t i;
};
Column column_of(const Sinusoidal& encoding, std::int64_t c) {
  if (encoding.variant == Variant::interleaved) {
    return {c % 2 == 0 ? Column::Kind::sine : Column::Kind::cosine, c / 2};
  }
  const std::int64_t half = encoding.dim / 2;
  if (encoding.variant == Variant::fairseq) {
    if (c == 2 * half) return {Column::Kind::zero, 0};
    return c < half ? Column{Column::Kind::sine, c} : Column{Column::Kind::cosine, c - half};
  }
  const std::int64_t sines = encoding.dim - half;
  return c < sines ? Column{Column::Kind::sine, c} : Column{Column::Kind::cosine, c - sines};
}

// The frequency rounded to float64, as the encoding promises it; the rest in 300 bits.
Real truth_of(const Sinusoidal& encoding, std::int64_t position, std::int64_t c) {
  const auto [kind, i] = column_of(encoding, c);
  if (kind == Column::Kind::zero) return Real(0.0);
  const std::int64_t width =
      encoding.variant == Variant::fairseq ? 2 * (encoding.dim / 2 - 1) : encoding.dim;
  const Real frequency(tests::exact_frequency(encoding.base, width, i).rounded());
  const tests::CosSin at = tests::cos_sin_of(Real(static_cast<double>(position)) * frequency);
  return kind == Column::Kind::sine ? at.sin : at.cos;
}

TEST(Sinusoidal, EveryValueIsRoundedOnceInEveryVariant) {
  const std::vector<std::int64_t> positions = {0,    1,     -1,      2,       3,       511,
                                               -511, 65536, 1 << 24, 9999999, 1 << 30, -(1 << 30)};
  for (const Variant variant : {Variant::interleaved, Variant::concat, Variant::fairseq}) {
    for (const std::int64_t dim : {4, 5, 16, 17, 64}) {
      for (const double base : {10000.0, 500000.0, 7.0}) {
        const Sinusoidal encoding{dim, base, variant};
        const std::vector<float> single = rows_of<float>(encoding, positions);
        const std::vector<double> wide = rows_of<double>(encoding, positions);
        for (std::size_t at = 0; at < single.size(); ++at) {
          const std::int64_t position = positions[at / static_cast<std::size_t>(dim)];
          const std::int64_t c = static_cast<std::int64_t>(at) % dim;
          const Real truth = truth_of(encoding, position, c);
          ASSERT_LE(tests::ulps(single[at], truth), core::kCosSinErrorUlp)
              << "dim " << dim << " base " << base << " position " << position << " column " << c;
          ASSERT_LE(tests::ulps(wide[at], truth), core::kCosSinErrorUlp64)
              << "dim " << dim << " base " << base << " position " << position << " column " << c;
        }
      }
    }
  }
}

TEST(Sinusoidal, RowsWiderThanOneRotationAreComplete) {
  const Sinusoidal encoding{5000, 10000.0, Variant::concat};
  const std::vector<double> row = rows_of<double>(encoding, {12345});
  for (const std::int64_t c : {0, 1, 1023, 1024, 2047, 2048, 2499, 2500, 3524, 4999}) {
    EXPECT_LE(tests::ulps(row[static_cast<std::size_t>(c)], truth_of(encoding, 12345, c)),
              core::kCosSinErrorUlp64)
        << c;
  }
}

TEST(Sinusoidal, EqualsTheGoldenTables) {
  struct Case {
    std::string folder;
    Sinusoidal encoding;
    std::int64_t positions;
  };
  const std::vector<Case> cases = {
      {"sinusoidal_fsmt", {32, 10000.0, Variant::fairseq, 1}, 48},
      {"sinusoidal_fsmt_odd_dim", {17, 10000.0, Variant::fairseq, 0}, 20},
      {"sinusoidal_marian", {64, 10000.0, Variant::concat}, 48},
      {"sinusoidal_marian_odd_dim", {15, 10000.0, Variant::concat}, 12},
      {"sinusoidal_roformer", {16, 10000.0, Variant::concat}, 1030},
      {"sinusoidal_interleaved_conformer", {32, 10000.0, Variant::interleaved}, 0}};
  for (const auto& [folder, encoding, count] : cases) {
    const std::string path = "encodings/" + folder + "/";
    const std::vector<std::int64_t> positions =
        count > 0 ? counting(0, count) : golden_array<std::int64_t>(path + "positions.npy");
    const auto truth = golden_array<double>(path + "table_f64.npy");
    const std::vector<double> rows = rows_of<double>(encoding, positions);
    ASSERT_EQ(rows.size(), truth.size()) << folder;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_NEAR(rows[i], truth[i], 1e-13) << folder << " at " << i;
    }
  }
}

TEST(Sinusoidal, FairseqPositionsCountTokensThatAreNotPadding) {
  const std::string path = "encodings/sinusoidal_speech2text_positions/";
  const auto ids = golden_array<std::int64_t>(path + "input_ids.npy");
  const auto want = golden_array<std::int64_t>(path + "position_ids.npy");
  EXPECT_EQ(fairseq_positions(ids, 3, 1), want);
  EXPECT_EQ(fairseq_positions(std::vector<std::int64_t>{1, 7, 1, 8, 9, 9}, 2, 1, 10),
            (std::vector<std::int64_t>{1, 12, 1, 12, 13, 14}));
  EXPECT_TRUE(fairseq_positions({}, 2, 1).empty());
}

Sinusoidal any_encoding() {
  const std::int64_t half = *rc::gen::inRange<std::int64_t>(2, 40);
  const Variant variant =
      *rc::gen::element(Variant::interleaved, Variant::concat, Variant::fairseq);
  return {2 * half, *rc::gen::element(100.0, 10000.0, 500000.0), variant};
}

RC_GTEST_PROP(SinusoidalLaws, AShiftIsAMatrixWhateverThePosition, ()) {
  const Sinusoidal encoding = any_encoding();
  const std::int64_t k = *rc::gen::inRange<std::int64_t>(-5000, 5000);
  const std::int64_t delta = *rc::gen::inRange<std::int64_t>(-5000, 5000);
  const std::vector<double> shift = sinusoidal_shift(encoding, delta);
  const std::vector<double> from = rows_of<double>(encoding, {k});
  const std::vector<double> to = rows_of<double>(encoding, {k + delta});
  const auto dim = static_cast<std::size_t>(encoding.dim);
  RC_ASSERT(shift.size() == dim * dim);
  for (std::size_t row = 0; row < dim; ++row) {
    double sum = 0.0;
    for (std::size_t c = 0; c < dim; ++c) sum += shift[row * dim + c] * from[c];
    RC_ASSERT(std::fabs(sum - to[row]) < 1e-11);
  }
}

RC_GTEST_PROP(SinusoidalLaws, ProductsDependOnTheDistanceAlone, ()) {
  const Sinusoidal encoding = any_encoding();
  const std::int64_t k = *rc::gen::inRange<std::int64_t>(-5000, 5000);
  const std::int64_t delta = *rc::gen::inRange<std::int64_t>(-5000, 5000);
  const std::vector<double> a = rows_of<double>(encoding, {k});
  const std::vector<double> b = rows_of<double>(encoding, {k + delta});
  double product = 0.0;
  for (std::size_t c = 0; c < a.size(); ++c) product += a[c] * b[c];
  const std::vector<std::int64_t> deltas = {delta};
  RC_ASSERT(std::fabs(product - sinusoidal_products(encoding, deltas)[0]) < 1e-10);
}

TEST(Sinusoidal, ShiftsEqualTheGoldenMatrices) {
  const std::string path = "encodings/sinusoidal_shift_matrix/";
  const std::vector<std::int64_t> shifts = {0, 1, -1, 7, 100, 4095};
  for (const auto& [variant, file] : {std::pair{Variant::interleaved, "shift_interleaved_f64.npy"},
                                      std::pair{Variant::concat, "shift_concat_f64.npy"}}) {
    const auto truth = golden_array<double>(path + file);
    ASSERT_EQ(truth.size(), shifts.size() * 256);
    for (std::size_t s = 0; s < shifts.size(); ++s) {
      const std::vector<double> shift = sinusoidal_shift({16, 10000.0, variant}, shifts[s]);
      for (std::size_t i = 0; i < 256; ++i) {
        ASSERT_NEAR(shift[i], truth[s * 256 + i], 1e-12) << file << " " << shifts[s] << " " << i;
      }
    }
  }
}

TEST(Sinusoidal, ProductsFallWithTheDistance) {
  const Sinusoidal encoding{128, 10000.0, Variant::interleaved};
  const std::vector<std::int64_t> deltas = {0, 1, 4, 16, 64, 256, 1024, -64};
  const std::vector<double> products = sinusoidal_products(encoding, deltas);
  EXPECT_EQ(products[0], 64.0);
  for (std::size_t i = 0; i + 2 < products.size(); ++i) EXPECT_GT(products[i], products[i + 1]);
  EXPECT_EQ(products[7], products[4]) << "both directions alike";
}

TEST(Sinusoidal, AnOddFairseqColumnIsZeroAndStays) {
  const Sinusoidal encoding{7, 10000.0, Variant::fairseq};
  const std::vector<double> row = rows_of<double>(encoding, {5});
  EXPECT_EQ(row[6], 0.0);
  const std::vector<double> shift = sinusoidal_shift(encoding, 3);
  for (std::size_t c = 0; c < 7; ++c) EXPECT_EQ(shift[6 * 7 + c], c == 6 ? 1.0 : 0.0);
  const std::vector<std::int64_t> zero = {0};
  EXPECT_EQ(sinusoidal_products(encoding, zero)[0], 3.0);
}

TEST(Sinusoidal, RefusesWhatMakesNoRows) {
  const auto expect_refused = [](std::initializer_list<std::string_view> values,
                                 const Sinusoidal& encoding) {
    tests::expect_error(ErrorCode::invalid_argument, values,
                        [&] { return rows_of<float>(encoding, {0}); });
  };
  expect_refused({"dim", "1", "0"}, {0, 10000.0});
  expect_refused({"dim", "4", "fairseq", "3"}, {3, 10000.0, Variant::fairseq});
  expect_refused({"base", "0"}, {8, 0.0});
  expect_refused({"base", "nan"}, {8, std::nan("")});
  expect_refused({"padding_row", "fairseq", "1"}, {8, 10000.0, Variant::concat, 1});
}

TEST(Sinusoidal, RefusesShiftsAndProductsOfALoneSine) {
  for (const Variant variant : {Variant::interleaved, Variant::concat}) {
    const Sinusoidal odd{7, 10000.0, variant};
    const std::vector<std::int64_t> deltas = {1};
    tests::expect_error(ErrorCode::unsupported, {"dim", "7"},
                        [&] { return sinusoidal_shift(odd, 1); });
    tests::expect_error(ErrorCode::unsupported, {"dim", "7"},
                        [&] { return sinusoidal_products(odd, deltas); });
  }
}

TEST(Sinusoidal, APositionOutOfReachIsRefusedBeforeAnythingIsWritten) {
  const std::vector<std::int64_t> positions = {1, std::int64_t{1} << 53};
  std::vector<float> rows(16, 9.0F);
  tests::expect_error(ErrorCode::out_of_range, {}, [&] {
    sinusoidal_rows({8, 10000.0}, positions, rows.data());
  });
  EXPECT_EQ(rows, std::vector<float>(16, 9.0F));
}

TEST(Sinusoidal, RefusesIdsThatAreNoBatch) {
  const std::vector<std::int64_t> ids(7, 5);
  tests::expect_error(ErrorCode::shape_mismatch, {"ids", "7", "2"},
                      [&] { return fairseq_positions(ids, 2, 1); });
  tests::expect_error(ErrorCode::shape_mismatch, {"ids", "0"},
                      [&] { return fairseq_positions(ids, 0, 1); });
  tests::expect_error(ErrorCode::invalid_argument, {"past", "-1"},
                      [&] { return fairseq_positions(ids, 1, 1, -1); });
}

}  // namespace
}  // namespace phasor::encodings
