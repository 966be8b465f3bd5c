#include "attention/linear/random_features.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "attention/kernels/kernels.hpp"
#include "attention/wide_arithmetic.hpp"
#include "phasor/attention/linear.hpp"
#include "phasor/core/error.hpp"

namespace phasor::attention {
namespace {

// Standard normal numbers of one stream of a seed: a bijective mix of 64 bits (the finaliser of
// SplitMix64) of a counter, and Marsaglia's polar method.
class Normals {
 public:
  Normals(std::uint64_t seed, std::uint64_t stream) noexcept
      : key_(mix(mix(seed + kStep) + kStep * stream)) {}

  [[nodiscard]] double next() noexcept {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    for (;;) {
      const double a = signed_uniform(), b = signed_uniform();
      const double square = a * a + b * b;
      if (square >= 1.0 || square == 0.0) continue;
      const double factor = std::sqrt(-2.0 * std::log(square) / square);
      spare_ = b * factor;
      has_spare_ = true;
      return a * factor;
    }
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;

  [[nodiscard]] static std::uint64_t mix(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }
  [[nodiscard]] double signed_uniform() noexcept {  // in [-1, 1)
    return static_cast<double>(mix(key_ + kStep * ++counter_) >> 11) * 0x1p-52 - 1.0;
  }

  std::uint64_t key_, counter_ = 0;
  double spare_ = 0.0;
  bool has_spare_ = false;
};

// Rows [first, first + count) of W, a block: unit vectors at right angles, then their lengths.
void make_block(std::uint64_t seed, std::int64_t block, std::int64_t count, std::int64_t dim,
                double* rows) {
  const auto stream = 2 * static_cast<std::uint64_t>(block);
  Normals directions(seed, stream), lengths(seed, stream + 1);
  const auto length_of = [&](const double* row) { return std::sqrt(wide_dot(row, row, dim)); };
  for (std::int64_t i = 0; i < count; ++i) {
    double* const row = rows + i * dim;
    for (std::int64_t e = 0; e < dim; ++e) row[e] = directions.next();
    // Twice is enough: the second pass removes what rounding left in the first.
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t j = 0; j < i; ++j) {
        const double* const other = rows + j * dim;
        wide_add(row, -wide_dot(row, other, dim), other, dim);
      }
      const double inverse = 1.0 / length_of(row);
      for (std::int64_t e = 0; e < dim; ++e) row[e] *= inverse;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    double square = 0.0;
    for (std::int64_t e = 0; e < dim; ++e) {
      const double x = lengths.next();
      square += x * x;
    }
    const double length = std::sqrt(square);
    for (std::int64_t e = 0; e < dim; ++e) rows[i * dim + e] *= length;
  }
}

// Rounded to float32: what another library's log() or another compiler changes in the last bits of a
// double is rounded away.
std::vector<double> make_weights(std::int64_t count, std::int64_t dim, std::uint64_t seed) {
  std::vector<double> rows(static_cast<std::size_t>(count * dim));
  for (std::int64_t first = 0; first < count; first += dim) {
    make_block(seed, first / dim, std::min(dim, count - first), dim, rows.data() + first * dim);
  }
  for (double& x : rows) x = static_cast<double>(static_cast<float>(x));
  return rows;
}

}  // namespace

std::vector<float> favor_weights(std::int64_t feature_count, std::int64_t head_dim,
                                 std::uint64_t seed) {
  if (head_dim < 1) {
    throw Error(ErrorCode::invalid_argument,
                message("favor_weights: head_dim must be at least 1, got ", head_dim));
  }
  if (feature_count < 1 || feature_count > kMaxFeatureCount) {
    throw Error(ErrorCode::out_of_range, message("favor_weights: feature_count must be 1 to ",
                                                 kMaxFeatureCount, ", got ", feature_count));
  }
  const std::vector<double> rows = make_weights(feature_count, head_dim, seed);
  return {rows.begin(), rows.end()};
}

RandomFeatures::RandomFeatures(std::int64_t count_, std::int64_t head_dim_, std::uint64_t seed_)
    : count(count_),
      head_dim(head_dim_),
      seed(seed_),
      width(kernels::rounded_up(count, kernels::kWidest)),
      input_width(kernels::rounded_up(head_dim, kernels::kWidest)),
      scale(1.0 / std::sqrt(static_cast<double>(head_dim))),
      rows(make_weights(count, head_dim, seed)),
      floats_(1, head_dim * width + count * input_width + width) {
  const double root = std::sqrt(scale);
  for (double& x : rows) x *= root;
  Carver carver = floats_.part(0);
  by_input = carver.take(head_dim * width);
  by_feature = carver.take(count * input_width);
  ones = carver.take(width);
  std::fill_n(ones, width, 1.0F);
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t e = 0; e < head_dim; ++e) {
      const auto x = static_cast<float>(row(i)[e]);
      by_input[e * width + i] = x;
      by_feature[i * input_width + e] = x;
    }
  }
}

std::shared_ptr<const RandomFeatures> random_features(std::int64_t count, std::int64_t head_dim,
                                                      std::uint64_t seed) {
  static std::mutex mutex;
  static std::array<std::shared_ptr<const RandomFeatures>, 8> recent;
  static std::size_t next = 0;
  {
    const std::lock_guard lock(mutex);
    for (const auto& kept : recent) {
      if (kept && kept->count == count && kept->head_dim == head_dim && kept->seed == seed) {
        return kept;
      }
    }
  }
  auto made = std::make_shared<const RandomFeatures>(count, head_dim, seed);
  constexpr std::size_t kMostBytes = std::size_t{1} << 24;
  if (made->bytes() > kMostBytes) return made;
  const std::lock_guard lock(mutex);
  recent[next++ % recent.size()] = made;
  return made;
}

}  // namespace phasor::attention
