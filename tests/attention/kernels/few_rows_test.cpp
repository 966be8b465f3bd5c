// The kernels of decoding against sums in float64: every number of queries, tails of keys and features.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/softmax/call.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::attention {
namespace {

using kernels::kFewRows;
using kernels::Rows;
using kernels::Storage;

// Rows of keys or values in a storage type. What is between two rows is NaN: it must not be read.
struct Stored {
  Stored(Storage storage, std::int64_t rows, std::int64_t dim, std::int64_t stride)
      : storage(storage), stride(stride), wide(static_cast<std::size_t>(rows * dim)) {
    const std::size_t element = storage == Storage::f32 ? 4 : 2;
    bytes.assign(static_cast<std::size_t>(rows * stride) * element, '\xff');
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < dim; ++i) {
        // Few bits: exact in every storage type.
        const auto value = static_cast<float>((r * 37 + i * 11) % 63 - 31) / 16.0F;
        wide[static_cast<std::size_t>(r * dim + i)] = value;
        put(static_cast<std::size_t>(r * stride + i), value);
      }
    }
  }

  [[nodiscard]] Rows rows() const { return {bytes.data(), stride, storage}; }

  Storage storage;
  std::int64_t stride;
  std::vector<double> wide;
  std::vector<char> bytes;

 private:
  void put(std::size_t at, float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    if (storage == Storage::f32) {
      std::memcpy(bytes.data() + at * 4, &value, 4);
      return;
    }
    auto half = static_cast<std::uint16_t>(bits >> 16);
    if (storage == Storage::f16) {
      // Normal numbers and zero alone.
      half = value == 0.0F
                 ? std::uint16_t{0}
                 : static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) |
                                              (((bits & 0x7fffffffU) - (112U << 23)) >> 13));
    }
    std::memcpy(bytes.data() + at * 2, &half, 2);
  }
};

struct FewRowsCase {
  core::InstructionSet isa;
  Storage storage;
  std::int64_t rows, keys, dim;
  kernels::RowWalk walk;
};

template <class Check>
void for_each_case(const Check& check) {
  for (const core::InstructionSet isa : core::available_instruction_sets()) {
    for (const Storage storage : {Storage::f32, Storage::f16, Storage::bf16}) {
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8}) {
        for (const std::int64_t keys : {1, 2, 5, 8, 15, 16, 17, 50, 97}) {
          for (const std::int64_t dim : {1, 4, 6, 16, 19, 40, 64, 72, 100, 128}) {
            SCOPED_TRACE(testing::Message()
                         << core::name_of(isa) << " storage " << static_cast<int>(storage)
                         << " rows " << rows << " keys " << keys << " dim " << dim);
            for (const int places : {1, 2}) {
              if (places == 2 && rows > 1) continue;  // several queries read from one place
              for (const std::int64_t ahead : {0, 16})
                check(FewRowsCase{isa, storage, rows, keys, dim, {ahead, places}});
            }
          }
        }
      }
    }
  }
}

std::vector<float> few_queries_of(std::int64_t dim, std::int64_t stride) {
  std::vector<float> q(static_cast<std::size_t>(kFewRows * stride));
  for (std::int64_t r = 0; r < kFewRows; ++r) {
    for (std::int64_t i = 0; i < dim; ++i)
      q[static_cast<std::size_t>(r * stride + i)] =
          std::sin(static_cast<float>(r * 17 + i)) * 0.25F;
  }
  return q;
}

std::vector<float> scores_of(const FewRowsCase& c, const Stored& keys, std::int64_t count) {
  const std::int64_t q_stride = kernels::rounded_up(c.dim, kernels::kWidest);
  const std::vector<float> q = few_queries_of(c.dim, q_stride);
  // What other calls left there must not count.
  std::vector<float> beside(static_cast<std::size_t>(kFewRows * kernels::beside_floats(c.dim)),
                            std::numeric_limits<float>::quiet_NaN());
  std::vector<float> scores(static_cast<std::size_t>(kFewRows * (c.keys + 1)), 77.0F);
  kernels_for(c.isa).score_rows(q.data(), q_stride, c.rows, keys.rows(), count, c.dim, c.walk,
                                beside.data(), scores.data(), c.keys + 1);
  return scores;
}

std::vector<float> weights_of(const FewRowsCase& c) {
  std::vector<float> p(static_cast<std::size_t>(kFewRows * (c.keys + 1)));
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = std::fabs(std::cos(static_cast<float>(i)));
  return p;
}

std::vector<float> weighed_by(const FewRowsCase& c, const Stored& values) {
  const std::int64_t stride = kernels::rounded_up(c.dim, kernels::kWidest);
  const std::vector<float> p = weights_of(c);
  std::vector<float> out(static_cast<std::size_t>(kFewRows * stride));
  kernels_for(c.isa).weigh_rows(p.data(), c.keys + 1, c.rows, values.rows(), c.keys, c.dim,
                                c.walk.ahead, out.data(), stride);
  return out;
}

TEST(FewRows, ScoresAreDotProducts) {
  for_each_case([](const FewRowsCase& c) {
    const Stored keys(c.storage, c.keys, c.dim, c.dim + 3);
    const std::vector<float> q = few_queries_of(c.dim, c.dim);
    const std::vector<float> scores = scores_of(c, keys, c.keys);
    for (std::int64_t r = 0; r < c.rows; ++r) {
      for (std::int64_t j = 0; j < c.keys; ++j) {
        double sum = 0.0, size = 0.0;
        for (std::int64_t i = 0; i < c.dim; ++i) {
          const double product = static_cast<double>(q[static_cast<std::size_t>(r * c.dim + i)]) *
                                 keys.wide[static_cast<std::size_t>(j * c.dim + i)];
          sum += product;
          size += std::fabs(product);
        }
        const float score = scores[static_cast<std::size_t>(r * (c.keys + 1) + j)];
        ASSERT_NEAR(score, sum, 1e-6 * size + 1e-30) << "query " << r << ", key " << j;
      }
      // The room after a row of scores is another's.
      ASSERT_EQ(scores[static_cast<std::size_t>(r * (c.keys + 1) + c.keys)], 77.0F);
    }
  });
}

// A cache that grows gives its old keys the same scores, bit by bit.
TEST(FewRows, ScoresDoNotDependOnTheNumberOfKeys) {
  for_each_case([](const FewRowsCase& c) {
    const Stored keys(c.storage, c.keys, c.dim, c.dim);
    const std::vector<float> all = scores_of(c, keys, c.keys);
    const std::int64_t fewer = c.keys - c.keys / 3;
    const std::vector<float> some = scores_of(c, keys, fewer);
    for (std::int64_t r = 0; r < c.rows; ++r) {
      for (std::int64_t j = 0; j < fewer; ++j) {
        const auto at = static_cast<std::size_t>(r * (c.keys + 1) + j);
        ASSERT_EQ(some[at], all[at]) << "query " << r << ", key " << j;
      }
    }
  });
}

// The way is chosen by a measurement: it must not show in the numbers.
TEST(FewRows, TheWayThroughTheKeysDoesNotChangeANumber) {
  for_each_case([](FewRowsCase c) {
    if (c.walk.ahead == 0 && c.walk.places == 1) return;
    const Stored keys(c.storage, c.keys, c.dim, c.dim);
    const std::vector<float> scores = scores_of(c, keys, c.keys), out = weighed_by(c, keys);
    c.walk = {0, 1};
    ASSERT_EQ(scores, scores_of(c, keys, c.keys));
    ASSERT_EQ(out, weighed_by(c, keys));
  });
}

TEST(FewRows, WeighedValuesAreSums) {
  for_each_case([](const FewRowsCase& c) {
    const Stored values(c.storage, c.keys, c.dim, c.dim + 5);
    const std::int64_t p_row = c.keys + 1, stride = kernels::rounded_up(c.dim, kernels::kWidest);
    const std::vector<float> p = weights_of(c), out = weighed_by(c, values);
    for (std::int64_t r = 0; r < c.rows; ++r) {
      for (std::int64_t i = 0; i < c.dim; ++i) {
        double sum = 0.0, size = 0.0;
        for (std::int64_t j = 0; j < c.keys; ++j) {
          const double product = static_cast<double>(p[static_cast<std::size_t>(r * p_row + j)]) *
                                 values.wide[static_cast<std::size_t>(j * c.dim + i)];
          sum += product;
          size += std::fabs(product);
        }
        ASSERT_NEAR(out[static_cast<std::size_t>(r * stride + i)], sum, 1e-5 * size + 1e-30)
            << "query " << r << ", feature " << i;
      }
    }
  });
}

TEST(FewRows, WeightsOfARow) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  for (const core::InstructionSet isa : core::available_instruction_sets()) {
    for (const std::int64_t count : {0, 1, 3, 16, 17, 63, 64, 65, 200}) {
      SCOPED_TRACE(testing::Message() << core::name_of(isa) << " count " << count);
      for (const std::int64_t largest : {std::int64_t{0}, count / 2, count - 1}) {
        if (count == 0 && largest != 0) continue;
        std::vector<float> scores(static_cast<std::size_t>(count) + 1, 5.0F);
        double expected = 0.0;
        for (std::int64_t j = 0; j < count; ++j) {
          float& score = scores[static_cast<std::size_t>(j)];
          score = j == largest ? 3.0F : j % 7 == 2 ? kHidden : static_cast<float>(j % 13) * -0.5F;
          expected += std::exp2(static_cast<double>(score) - 3.0);
        }
        float maximum = 0.0F, sum = 0.0F;
        kernels_for(isa).exp_row(scores.data(), count, &maximum, &sum);
        EXPECT_EQ(maximum, count == 0 ? kHidden : 3.0F);
        EXPECT_NEAR(sum, expected, 1e-5 * expected);
        EXPECT_EQ(scores.back(), 5.0F);
        if (count > 0) {
          EXPECT_EQ(scores[static_cast<std::size_t>(largest)], 1.0F);
        }
      }
    }
  }
}

}  // namespace
}  // namespace phasor::attention
