#include "phasor/models/internal/matrix.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "models/matrix/dispatch.hpp"
#include "models/matrix/packed.hpp"
#include "models/matrix/quantised_tensor.hpp"
#include "models/numbers.hpp"
#include "phasor/core/error.hpp"

namespace phasor::models {
namespace kernels {
#if defined(__x86_64__)
extern const Kernels kernels_x86_64_v4;
extern const Kernels kernels_x86_64_v4_vnni;
#endif
}  // namespace kernels

namespace testing {
namespace {

bool is_quantised(TensorType type) { return io::block_elements(type) > 1; }

// The definition: a dot product in double, and what its error is measured against.
struct Reference {
  double value = 0.0;
  double exact_bound = 0.0, fast_bound = 0.0;
};
Reference reference(TensorType type, const float* w, const float* reach, const float* x,
                    std::int64_t columns) {
  Reference result;
  for (std::int64_t first = 0; first < columns; first += 32) {
    const std::int64_t end = std::min<std::int64_t>(columns, first + 32);
    double largest = 0, reached = 0, size = 0, products = 0;
    for (std::int64_t c = first; c < end; ++c) {
      result.value += static_cast<double>(w[c]) * static_cast<double>(x[c]);
      largest = std::max(largest, std::abs(static_cast<double>(x[c])));
      reached += std::abs(static_cast<double>(reach[c]));
      size += std::abs(static_cast<double>(w[c]));
      products += std::abs(static_cast<double>(w[c]) * static_cast<double>(x[c]));
    }
    if (!is_quantised(type)) {
      result.exact_bound += products;
    } else {
      result.exact_bound += largest * reached;
      result.fast_bound += largest * size;
    }
  }
  result.exact_bound *= kExactProductError;
  result.fast_bound = result.fast_bound * kFastProductError + result.exact_bound;
  return result;
}

struct Worst {
  double exact = 0.0, fast = 0.0;          // largest error as a share of its bound
  double squares = 0.0, square_sum = 0.0;  // of the exact errors and of the results
};

// All of a shape: precisions, threads and instruction sets.
void check_shape(TensorType type, std::int64_t rows, std::int64_t columns, std::int64_t tokens,
                 Worst& worst) {
  const QuantisedTensor w(type, rows, columns, static_cast<std::uint32_t>(rows * 1000 + columns));
  const Matrix matrix = Matrix::pack(w.tensor());
  const std::vector<float> values = w.floats(), reach = w.reach();
  const std::int64_t x_stride = columns + 3, out_stride = rows + 5;
  const std::vector<float> x = normal_numbers(static_cast<std::size_t>(tokens * x_stride),
                                              static_cast<std::uint32_t>(tokens));
  const std::vector<float> bias = normal_numbers(static_cast<std::size_t>(rows), 9);
  std::vector<Reference> wanted;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t r = 0; r < rows; ++r) {
      wanted.push_back(reference(type, values.data() + r * columns, reach.data() + r * columns,
                                 x.data() + t * x_stride, columns));
    }
  }
  constexpr float kUntouched = 12345.0F;
  for (const core::InstructionSet isa : core::available_instruction_sets()) {
    for (const Precision precision : {Precision::exact, Precision::fast}) {
      for (const int threads : {1, 2}) {
        std::vector<float> out(static_cast<std::size_t>(tokens * out_stride), kUntouched);
        const Product product{&matrix, out.data(), out_stride,
                              threads == 2 ? bias.data() : nullptr};
        multiply(std::span(&product, 1), x.data(), tokens, x_stride, {precision, threads, isa});
        for (std::int64_t t = 0; t < tokens; ++t) {
          for (std::int64_t r = 0; r < out_stride; ++r) {
            const double got =
                static_cast<double>(out[static_cast<std::size_t>(t * out_stride + r)]);
            if (r >= rows) {
              ASSERT_EQ(got, static_cast<double>(kUntouched)) << "beyond the rows";
              continue;
            }
            const Reference& want = wanted[static_cast<std::size_t>(t * rows + r)];
            const double error =
                got - want.value -
                (threads == 2 ? static_cast<double>(bias[static_cast<std::size_t>(r)]) : 0.0);
            const double slack = threads == 2 ? 3e-7 : 0.0;  // the sum with the bias
            const bool fast = precision == Precision::fast && is_quantised(type);
            const double bound = (fast ? want.fast_bound : want.exact_bound) + slack;
            ASSERT_LE(std::abs(error), bound)
                << io::name_of(type) << " " << rows << "x" << columns << " token " << t << "/"
                << tokens << " row " << r << " " << core::name_of(isa) << " " << name_of(precision)
                << " threads " << threads;
            (fast ? worst.fast : worst.exact) =
                std::max(fast ? worst.fast : worst.exact, std::abs(error) / bound);
            if (!fast && threads == 1) {
              worst.squares += error * error;
              worst.square_sum += want.value * want.value;
            }
          }
        }
      }
    }
  }
}

class MatrixProducts : public ::testing::TestWithParam<TensorType> {};
class BlockProducts : public MatrixProducts {};

std::vector<TensorType> quantised_types() {
  std::vector<TensorType> types;
  for (const TensorType type : kTypes) {
    if (is_quantised(type)) types.push_back(type);
  }
  return types;
}

TEST_P(MatrixProducts, AgreeWithDoubleEverywhere) {
  const TensorType type = GetParam();
  const std::int64_t block = io::block_elements(type);
  const std::vector<std::int64_t> widths = block == 1    ? std::vector<std::int64_t>{1, 31, 77, 320}
                                           : block == 32 ? std::vector<std::int64_t>{32, 96, 576}
                                                         : std::vector<std::int64_t>{256, 768};
  Worst worst;
  for (const std::int64_t rows : {1, 15, 16, 17, 100}) {
    for (const std::int64_t columns : widths) {
      for (const std::int64_t tokens : {1, 2, 3, 7, 8, 33}) {
        check_shape(type, rows, columns, tokens, worst);
        if (HasFatalFailure()) return;
      }
    }
  }
  // Rows that are multiplied in pieces, the last one shorter.
  check_shape(type, 19, block == 1 ? 1603 : block == 32 ? 1632 : 2304, 33, worst);
  // Whole tiles of tokens, and more tokens than are multiplied at once.
  check_shape(type, 48, block == 1 ? 64 : 256, 36, worst);
  check_shape(type, 17, block == 1 ? 33 : block, 797, worst);
  // Bounds are for the worst case; on average an exact product is as exact as float32 allows.
  EXPECT_LT(std::sqrt(worst.squares / worst.square_sum), 4e-7);
  RecordProperty("exact_share_of_bound", std::to_string(worst.exact));
  RecordProperty("fast_share_of_bound", std::to_string(worst.fast));
}

TEST_P(MatrixProducts, RowsHaveTheBitsOfTheFile) {
  const TensorType type = GetParam();
  const std::int64_t columns = io::block_elements(type) == 1 ? 77 : 512;
  const QuantisedTensor w(type, 37, columns, 5);
  const Matrix matrix = Matrix::pack(w.tensor());
  const std::vector<float> want = w.floats();
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (std::int64_t r = 0; r < 37; ++r) {
    matrix.row(r, row);
    for (std::size_t c = 0; c < row.size(); ++c) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(row[c]),
                std::bit_cast<std::uint32_t>(want[static_cast<std::size_t>(r) * row.size() + c]))
          << "row " << r << " column " << c;
    }
  }
}

TEST_P(MatrixProducts, KeepTheBytesOfTheFile) {
  const TensorType type = GetParam();
  const QuantisedTensor w(type, 64, 512, 6);
  const std::size_t expected =
      type == TensorType::f64 ? w.tensor().bytes.size() / 2 : w.tensor().bytes.size();
  EXPECT_EQ(Matrix::pack(w.tensor()).bytes(), expected);
}

// Scales that are zero, subnormal or the largest half, and codes at their ends.
TEST_P(BlockProducts, TakeExtremeBlocks) {
  const TensorType type = GetParam();
  const std::int64_t rows = 17, columns = 512;
  const BlockPlan plan = plan_of(type);
  for (const float scale : {0.0F, 0x1p-24F, 6e-8F, -0.5F, 65504.0F}) {
    for (const unsigned code : {0x00U, 0x80U, 0xffU}) {
      QuantisedTensor w(type, rows, columns, 7);
      for (std::size_t at = 0; at < w.bytes().size(); at += io::block_bytes(type)) {
        std::fill(w.bytes().begin() + static_cast<std::ptrdiff_t>(at + plan.codes_begin),
                  w.bytes().begin() + static_cast<std::ptrdiff_t>(at + plan.codes_end),
                  static_cast<std::byte>(code));
        for (const std::size_t half : plan.halves) w.set_half(at + half, scale);
      }
      const Matrix matrix = Matrix::pack(w.tensor());
      const std::vector<float> values = w.floats(), reach = w.reach();
      for (const std::int64_t tokens : {1, 40}) {
        const std::vector<float> x = normal_numbers(static_cast<std::size_t>(tokens * columns), 3);
        for (const core::InstructionSet isa : core::available_instruction_sets()) {
          for (const Precision precision : {Precision::exact, Precision::fast}) {
            std::vector<float> out(static_cast<std::size_t>(tokens * rows));
            const Product product{&matrix, out.data(), rows};
            multiply(std::span(&product, 1), x.data(), tokens, columns, {precision, 1, isa});
            for (std::int64_t r = 0; r < rows; ++r) {
              const Reference want = reference(type, values.data() + r * columns,
                                               reach.data() + r * columns, x.data(), columns);
              ASSERT_LE(
                  std::abs(static_cast<double>(out[static_cast<std::size_t>(r)]) - want.value),
                  precision == Precision::fast ? want.fast_bound : want.exact_bound)
                  << scale << " " << code << " row " << r << " tokens " << tokens << " "
                  << core::name_of(isa) << " " << name_of(precision);
            }
          }
        }
      }
    }
  }
}

// An activation that is not finite gives results that are not finite, in its own token only.
TEST_P(MatrixProducts, PassOnWhatIsNotFinite) {
  const TensorType type = GetParam();
  const std::int64_t rows = 33, columns = 256;
  const QuantisedTensor w(type, rows, columns, 8);
  const Matrix matrix = Matrix::pack(w.tensor());
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t tokens : {1, 3, 20}) {
      std::vector<float> x = normal_numbers(static_cast<std::size_t>(tokens * columns), 4);
      x[static_cast<std::size_t>((tokens - 1) * columns + 100)] = bad;
      for (const core::InstructionSet isa : core::available_instruction_sets()) {
        for (const Precision precision : {Precision::exact, Precision::fast}) {
          std::vector<float> out(static_cast<std::size_t>(tokens * rows));
          const Product product{&matrix, out.data(), rows};
          multiply(std::span(&product, 1), x.data(), tokens, columns, {precision, 1, isa});
          for (std::int64_t t = 0; t < tokens; ++t) {
            for (std::int64_t r = 0; r < rows; ++r) {
              ASSERT_EQ(std::isfinite(out[static_cast<std::size_t>(t * rows + r)]), t + 1 < tokens)
                  << bad << " token " << t << "/" << tokens << " row " << r << " "
                  << core::name_of(isa) << " " << name_of(precision);
            }
          }
        }
      }
    }
  }
}

std::string type_name(const ::testing::TestParamInfo<TensorType>& info) {
  return std::string(io::name_of(info.param));
}
INSTANTIATE_TEST_SUITE_P(Types, MatrixProducts, ::testing::ValuesIn(kTypes), type_name);
INSTANTIATE_TEST_SUITE_P(Types, BlockProducts, ::testing::ValuesIn(quantised_types()), type_name);

TEST(Matrix, LaysPartsBelowEachOther) {
  const QuantisedTensor a(TensorType::q4_1, 40, 64, 1), b(TensorType::q4_1, 20, 64, 2);
  const std::array parts = {TensorRows{&b.tensor(), 3, 10}, TensorRows{&a.tensor(), 0, 40},
                            TensorRows{&b.tensor(), 19, 1}};
  const Matrix matrix = Matrix::pack(parts);
  ASSERT_EQ(matrix.rows(), 51);
  const std::vector<float> of_a = a.floats(), of_b = b.floats();
  std::vector<float> row(64);
  const auto is_row = [&](std::int64_t index, const std::vector<float>& values, std::ptrdiff_t at) {
    matrix.row(index, row);
    return std::equal(row.begin(), row.end(), values.begin() + at * 64);
  };
  EXPECT_TRUE(is_row(0, of_b, 3));
  EXPECT_TRUE(is_row(9, of_b, 12));
  EXPECT_TRUE(is_row(10, of_a, 0));
  EXPECT_TRUE(is_row(49, of_a, 39));
  EXPECT_TRUE(is_row(50, of_b, 19));
}

// Several matrices of several types share their activations.
TEST(Matrix, MultipliesSeveralAtOnceAsOneByOne) {
  const std::int64_t columns = 256;
  std::vector<std::unique_ptr<QuantisedTensor>> tensors;
  std::vector<Matrix> matrices;
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    tensors.push_back(std::make_unique<QuantisedTensor>(
        kTypes[i], 16 + 13 * static_cast<std::int64_t>(i), columns, static_cast<std::uint32_t>(i)));
    matrices.push_back(Matrix::pack(tensors.back()->tensor()));
  }
  for (const std::int64_t tokens : {1, 5, 50}) {
    const std::vector<float> x = normal_numbers(static_cast<std::size_t>(tokens * columns), 2);
    for (const Precision precision : {Precision::exact, Precision::fast}) {
      std::vector<std::vector<float>> out, alone;
      std::vector<Product> products;
      for (const Matrix& matrix : matrices) {
        out.emplace_back(static_cast<std::size_t>(tokens * matrix.rows()));
        alone.emplace_back(out.back().size());
        products.push_back({&matrix, out.back().data(), matrix.rows()});
        const Product one{&matrix, alone.back().data(), matrix.rows()};
        multiply(std::span(&one, 1), x.data(), tokens, columns, {precision, 1});
      }
      multiply(products, x.data(), tokens, columns, {precision, 3});
      for (std::size_t i = 0; i < out.size(); ++i) {
        // Another split of the rows may use another algorithm of the GEMM library (AVX-512).
        if (tokens < 50) {
          EXPECT_EQ(out[i], alone[i]) << tokens << " " << name_of(precision);
        }
        for (std::size_t j = 0; j < out[i].size(); ++j)
          ASSERT_NEAR(out[i][j], alone[i][j], 1e-4) << io::name_of(kTypes[i]) << " " << j;
      }
    }
  }
}

TEST(Matrix, RefusesWhatItCannotPackOrMultiply) {
  const auto code_of = [](const auto& act) {
    try {
      act();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::internal;
  };
  const QuantisedTensor a(TensorType::q4_1, 40, 64, 1), b(TensorType::q4_0, 20, 64, 2),
      wide(TensorType::q4_1, 4, 96, 3), bytes(TensorType::i8, 4, 64, 3);
  const auto pack = [](std::vector<TensorRows> parts) {
    return [parts] { static_cast<void>(Matrix::pack(parts)); };
  };
  EXPECT_EQ(code_of(pack({})), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of(pack({{&a.tensor(), 0, 0}})), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of(pack({{&a.tensor(), -1, 2}})), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of(pack({{&a.tensor(), 30, 11}})), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of(pack({{&a.tensor(), 0, 4}, {&wide.tensor(), 0, 4}})),
            ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of(pack({{&a.tensor(), 0, 4}, {&b.tensor(), 0, 4}})), ErrorCode::unsupported);
  EXPECT_EQ(code_of(pack({{&bytes.tensor(), 0, 4}})), ErrorCode::unsupported);
  EXPECT_EQ(code_of(pack({{nullptr, 0, 4}})), ErrorCode::invalid_argument);

  const Matrix first = Matrix::pack(a.tensor()), second = Matrix::pack(wide.tensor()), none;
  std::vector<float> row(64), out(400, 1.0F), x(400, 1.0F);
  EXPECT_EQ(code_of([&] { first.row(40, row); }), ErrorCode::out_of_range);
  EXPECT_EQ(code_of([&] { first.row(-1, row); }), ErrorCode::out_of_range);
  EXPECT_EQ(code_of([&] { second.row(0, row); }), ErrorCode::shape_mismatch);
  const auto times = [&](std::vector<Product> products, std::int64_t tokens, std::int64_t stride) {
    return [&x, products, tokens, stride] { multiply(products, x.data(), tokens, stride); };
  };
  const Product good{&first, out.data(), 40}, other{&second, out.data(), 4},
      empty{&none, out.data(), 4}, narrow{&first, out.data(), 39};
  EXPECT_EQ(code_of(times({good, other}, 1, 96)), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of(times({good}, 2, 63)), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of(times({narrow}, 2, 64)), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of(times({good}, -1, 64)), ErrorCode::shape_mismatch);
  EXPECT_EQ(code_of(times({empty}, 1, 64)), ErrorCode::invalid_argument);
  EXPECT_EQ(out, std::vector<float>(400, 1.0F));
  multiply(std::span(&good, 1), nullptr, 0, 64);
  multiply({}, nullptr, 3, 64);
  EXPECT_EQ(out, std::vector<float>(400, 1.0F));
}

// The exact activations of `tokens` rows of x, as the streaming products read them.
using ExactBlock = kernels::ActivationBlock<kernels::kExactSteps>;
std::vector<ExactBlock> exact_blocks(const kernels::Kernels& kernels, const std::vector<float>& x,
                                     std::int64_t tokens) {
  const std::int64_t columns = static_cast<std::int64_t>(x.size()) / tokens,
                     blocks = columns / kernels::kBlock;
  std::vector<ExactBlock> codes(static_cast<std::size_t>(blocks * tokens));
  for (std::int64_t t = 0; t < tokens; ++t)
    kernels.write_exact(x.data() + t * columns, blocks, tokens, codes.data() + t);
  return codes;
}

std::shared_ptr<Matrix::Packed> packed_tensor(TensorType type, std::int64_t rows,
                                              std::int64_t columns) {
  const QuantisedTensor w(type, rows, columns, 3);
  auto packed = make_packed(type, rows, columns);
  pack_rows(*packed, 0, rows, w.tensor().bytes.data());
  return packed;
}

// Which way is the fastest is measured, so it must not show.
TEST(Matrix, GivesTheSameBitsWhateverIsPrefetched) {
  constexpr std::int64_t kRows = 40,
                         kColumns = 768;  // a group that is not full; an odd number of units
  for (const core::InstructionSet isa : core::available_instruction_sets()) {
    const kernels::Kernels& kernels = kernels_for(isa);
    for (const std::int64_t tokens : {1, 3}) {
      const std::vector<float> x = normal_numbers(static_cast<std::size_t>(tokens * kColumns), 2);
      const std::vector<ExactBlock> codes = exact_blocks(kernels, x, tokens);
      for (const TensorType type : kTypes) {
        const auto packed = packed_tensor(type, kRows, kColumns);
        std::vector<float> first;
        for (const kernels::StreamWalk& walk : kernels::kWalks) {
          std::vector<float> out(static_cast<std::size_t>(tokens * kRows));
          const kernels::Results to{out.data(), kRows, kRows, nullptr};
          is_quantised(type)
              ? kernels.stream_exact(packed->weights, codes.data(), tokens, walk, to)
              : kernels.stream_floats(packed->weights, x.data(), tokens, kColumns, walk, to);
          if (first.empty()) first = out;
          EXPECT_EQ(out, first) << core::name_of(isa) << " " << io::name_of(type) << " "
                                << walk.fetch.ahead << " " << walk.places;
        }
      }
    }
  }
}

#if defined(__x86_64__)
// CPUs with AVX-512 but without VNNI compute the same integers in another way.
TEST(Matrix, GivesTheSameBitsWithAndWithoutVnni) {
  if (!__builtin_cpu_supports("avx512vnni")) GTEST_SKIP() << "this CPU has no VNNI";
  const kernels::Kernels &with = kernels::kernels_x86_64_v4_vnni,
                         &without = kernels::kernels_x86_64_v4;
  const std::int64_t columns = 512, rows = 32, tokens = 3;
  const std::vector<float> x = normal_numbers(static_cast<std::size_t>(tokens * columns), 2);
  const std::vector<ExactBlock> codes = exact_blocks(with, x, tokens);
  for (const TensorType type : kTypes) {
    if (!is_quantised(type)) continue;
    const auto packed = packed_tensor(type, rows, columns);
    std::vector<float> a(static_cast<std::size_t>(tokens * rows)), b(a.size());
    with.stream_exact(packed->weights, codes.data(), tokens, kernels::kWalks[0],
                      {a.data(), rows, rows, nullptr});
    without.stream_exact(packed->weights, codes.data(), tokens, kernels::kWalks[0],
                         {b.data(), rows, rows, nullptr});
    EXPECT_EQ(a, b) << io::name_of(type);
  }
}
#endif

}  // namespace
}  // namespace testing
}  // namespace phasor::models
