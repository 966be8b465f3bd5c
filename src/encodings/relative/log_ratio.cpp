#include "encodings/relative/log_ratio.hpp"

#include <cmath>
#include <compare>
#include <numeric>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::encodings {
namespace {

using Natural = std::vector<std::uint32_t>;  // least digit first, no leading zero

[[nodiscard]] Natural natural(std::uint64_t value) {
  Natural digits;
  for (; value != 0; value >>= 32) digits.push_back(static_cast<std::uint32_t>(value));
  return digits;
}

[[nodiscard]] Natural operator*(const Natural& a, const Natural& b) {
  Natural product(a.size() + b.size(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      carry += product[i + j] + std::uint64_t{a[i]} * b[j];
      product[i + j] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    product[i + b.size()] = static_cast<std::uint32_t>(carry);
  }
  while (!product.empty() && product.back() == 0) product.pop_back();
  return product;
}

[[nodiscard]] Natural whole_power(Natural base, std::int64_t exponent) {
  Natural result = natural(1);
  while (true) {
    if (exponent % 2 != 0) result = result * base;
    exponent /= 2;
    if (exponent == 0) return result;
    base = base * base;
  }
}

[[nodiscard]] std::strong_ordering compare(const Natural& a, const Natural& b) {
  if (a.size() != b.size()) return a.size() <=> b.size();
  for (std::size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] <=> b[i];
  }
  return std::strong_ordering::equal;
}

// (a/e)^n against (b/e)^t, as a^n e^t against b^t e^n with the common power of e taken out.
[[nodiscard]] std::strong_ordering compare_powers(std::uint64_t a, std::uint64_t b, std::uint64_t e,
                                                  std::int64_t n, std::int64_t t) {
  const std::int64_t common = std::gcd(n, t);
  n /= common;
  t /= common;
  constexpr std::int64_t kMaxExponent = std::int64_t{1} << 20;  // of numbers below 2^64: 8 MiB
  if (n > kMaxExponent || t > kMaxExponent) {
    refuse(ErrorCode::unsupported,
           message("buckets: powers to be compared must have exponents up to 2^20, got ", n,
                   " and ", t));
  }
  Natural left = whole_power(natural(a), n), right = whole_power(natural(b), t);
  Natural& smaller = t > n ? left : right;
  smaller = smaller * whole_power(natural(e), t > n ? t - n : n - t);
  return compare(left, right);
}

// ln(a/e) to a few units in the last place: a - e is exact, so nothing cancels where a is near e.
[[nodiscard]] double log_of_ratio(std::uint64_t a, std::uint64_t e) {
  return std::log1p(static_cast<double>(a - e) / static_cast<double>(e));
}

}  // namespace

LogRatio log_ratio(std::uint64_t a, std::uint64_t b, std::uint64_t e, std::int64_t n) {
  if (a == e) return {0, true};
  const double estimate = static_cast<double>(n) * log_of_ratio(a, e) / log_of_ratio(b, e);
  // The estimate is good to about 1e-15 of itself: far from every whole number its floor is the
  // answer.
  constexpr double kDoubt = 1e-12;
  const double nearest = std::nearbyint(estimate);
  if (std::fabs(estimate - nearest) > kDoubt * (1.0 + estimate)) {
    return {static_cast<std::int64_t>(std::floor(estimate)), false};
  }
  const auto t = static_cast<std::int64_t>(nearest);
  const std::strong_ordering order = compare_powers(a, b, e, n, t);
  if (order == std::strong_ordering::less) return {t - 1, false};
  return {t, order == std::strong_ordering::equal};
}

}  // namespace phasor::encodings
