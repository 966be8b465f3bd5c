// ln(a/e) / ln(b/e) to whole numbers, exactly: buckets that grow by a power must not depend on
// how a logarithm happens to round at their edges.
#pragma once

#include <cstdint>

namespace phasor::encodings {

struct LogRatio {
  std::int64_t floor = 0;  // the largest t with (b/e)^t <= (a/e)^n
  bool whole = false;      // equal at t
};

// n ln(a/e) / ln(b/e)
//
// precondition  e >= 1, a >= e, b > e, n >= 1
// throws   Error(unsupported) where exponents above 2^20 would have to be compared
[[nodiscard]] LogRatio log_ratio(std::uint64_t a, std::uint64_t b, std::uint64_t e, std::int64_t n);

}  // namespace phasor::encodings
