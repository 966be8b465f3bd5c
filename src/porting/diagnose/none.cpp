// Describes maps that are not rotations.
#include <algorithm>
#include <cmath>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "porting/diagnose/parts.hpp"

namespace phasor::porting::diagnosis {
namespace {

template <class Visit>
void for_usable(const Vectors& vectors, Visit visit) {
  for (std::int64_t v = 0; v < vectors.count; ++v) {
    core::throw_if_cancelled();
    if (vectors.usable[static_cast<std::size_t>(v)] == 0) continue;
    visit(vectors.before.data() + v * vectors.dim, vectors.after.data() + v * vectors.dim);
  }
}

// after = c before, for one c.
std::optional<double> common_factor(const Vectors& vectors) {
  double product = 0.0, square = 0.0, after = 0.0, left = 0.0;
  for_usable(vectors, [&](const double* x, const double* y) {
    for (std::int64_t j = 0; j < vectors.dim; ++j) {
      product += x[j] * y[j];
      square += x[j] * x[j];
      after += y[j] * y[j];
    }
  });
  if (square <= 0.0 || after <= 0.0) return std::nullopt;
  const double factor = product / square;
  for_usable(vectors, [&](const double* x, const double* y) {
    for (std::int64_t j = 0; j < vectors.dim; ++j) {
      left += (y[j] - factor * x[j]) * (y[j] - factor * x[j]);
    }
  });
  if (std::sqrt(left / after) > 2.0 * unit_of(vectors.precision)) return std::nullopt;
  return factor;
}

// For each feature of `after`, the feature of `before` that it copies; empty when one is not a copy.
std::vector<std::int64_t> permutation(const Vectors& vectors) {
  std::vector<std::int64_t> from;
  const double allowed = 1.01 * unit_of(vectors.precision);
  std::vector<std::uint8_t> used(static_cast<std::size_t>(vectors.dim), 0);
  for (std::int64_t to = 0; to < vectors.dim; ++to) {
    std::int64_t found = -1;
    for (std::int64_t source = 0; source < vectors.dim && found < 0; ++source) {
      if (used[static_cast<std::size_t>(source)] != 0) continue;
      core::throw_if_cancelled();
      bool same = true;
      for (std::int64_t v = 0; v < vectors.count && same; ++v) {
        if (vectors.usable[static_cast<std::size_t>(v)] == 0) continue;
        const double x = vectors.before[static_cast<std::size_t>(v * vectors.dim + source)];
        const double y = vectors.after[static_cast<std::size_t>(v * vectors.dim + to)];
        same = std::abs(y - x) <= allowed * std::abs(x);
      }
      if (same) found = source;
    }
    if (found < 0) return {};
    used[static_cast<std::size_t>(found)] = 1;
    from.push_back(found);
  }
  return from;
}

std::string permutation_text(const std::vector<std::int64_t>& from) {
  const auto dim = static_cast<std::int64_t>(from.size());
  std::int64_t first = 0, last = dim;
  while (first < last && from[static_cast<std::size_t>(first)] == first) ++first;
  while (last > first && from[static_cast<std::size_t>(last - 1)] == last - 1) --last;
  // These permutations do not move the first and the last feature of their window.
  for (std::int64_t low = std::max<std::int64_t>(0, first - 1); low <= first; ++low) {
    for (std::int64_t high = last; high <= std::min(dim, last + 1); ++high) {
      if ((high - low) % 2 != 0) continue;
      for (const Pairing pairing : {Pairing::interleaved_to_half, Pairing::half_to_interleaved}) {
        const Window window{pairing, low, high - low};
        bool same = true;
        for (std::int64_t pair = 0; pair < window.pairs() && same; ++pair) {
          const PairFeatures at = features_of(window, pair);
          same = from[static_cast<std::size_t>(at.write_a)] == at.read_a &&
                 from[static_cast<std::size_t>(at.write_b)] == at.read_b;
        }
        if (!same) continue;
        return message(pairing == Pairing::interleaved_to_half ? "from interleaved to half order"
                                                               : "from half to interleaved order",
                       ", features ", low, " to ", high - 1);
      }
    }
  }
  std::string text = "feature";
  int shown = 0;
  for (std::int64_t to = 0; to < dim && shown < 6; ++to) {
    if (from[static_cast<std::size_t>(to)] == to) continue;
    text += message(shown == 0 ? " " : ", ", to, " from ", from[static_cast<std::size_t>(to)]);
    ++shown;
  }
  return text + (shown == 6 ? ", ..." : "");
}

struct NormRange {
  double least = HUGE_VAL, most = 0.0;
};

NormRange norm_range(const Vectors& vectors) {
  NormRange range;
  for_usable(vectors, [&](const double* x, const double* y) {
    double before = 0.0, after = 0.0;
    for (std::int64_t j = 0; j < vectors.dim; ++j) {
      before += x[j] * x[j];
      after += y[j] * y[j];
    }
    if (before <= 0.0) return;
    const double ratio = std::sqrt(after / before);
    range.least = std::min(range.least, ratio);
    range.most = std::max(range.most, ratio);
  });
  return range;
}

// All pairs of the added vector have the same length, as (sin, cos) does.
bool is_sinusoidal(const Vectors& vectors, Pairing pairing) {
  const Window window{pairing, 0, vectors.dim};
  double sum = 0.0, square = 0.0;
  double count = 0.0;
  for_usable(vectors, [&](const double* x, const double* y) {
    for (std::int64_t pair = 0; pair < window.pairs(); ++pair) {
      const PairFeatures at = features_of(window, pair);
      const double a = y[at.read_a] - x[at.read_a], b = y[at.read_b] - x[at.read_b];
      const double length = a * a + b * b;
      sum += length;
      square += length * length;
      count += 1.0;
    }
  });
  const double mean = sum / count;
  return mean > 0.0 && square / count - mean * mean < 1e-4 * mean * mean;
}

// The difference is the same for every vector along an axis.
std::optional<std::size_t> axis_of_addition(const Vectors& vectors) {
  std::int64_t stride = 1;
  for (std::size_t axis = vectors.shape.size(); axis-- > 0;) {
    const std::int64_t length = vectors.shape[axis];
    double spread = 0.0, whole = 0.0;
    for (std::int64_t v = 0; v < vectors.count && length > 1; ++v) {
      core::throw_if_cancelled();
      if (v / stride % length == 0) continue;
      const auto here = static_cast<std::size_t>(v * vectors.dim);
      const auto first = static_cast<std::size_t>((v - stride) * vectors.dim);
      for (std::size_t j = 0; j < static_cast<std::size_t>(vectors.dim); ++j) {
        const double a = vectors.after[here + j] - vectors.before[here + j];
        const double b = vectors.after[first + j] - vectors.before[first + j];
        spread += std::isfinite(a - b) ? (a - b) * (a - b) : 0.0;
        whole += std::isfinite(a) ? a * a : 0.0;
      }
    }
    if (whole > 0.0 && spread < 1e-4 * whole) return axis;
    stride *= length;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> plain_reason(const Vectors& vectors,
                                        const std::vector<std::uint8_t>& changed) {
  if (std::find(changed.begin(), changed.end(), 1) == changed.end()) {
    return "no rotation: after equals before (as it does when every position is 0)";
  }
  if (const auto factor = common_factor(vectors)) {
    return message("no rotation: after is before times ", digits(*factor, 7));
  }
  const std::vector<std::int64_t> from = permutation(vectors);
  if (!from.empty()) {
    return "no rotation: the features were only permuted, " + permutation_text(from);
  }
  return std::nullopt;
}

std::string other_reason(const Vectors& vectors, double best_layout_residual) {
  const NormRange norms = norm_range(vectors);
  const double spread = norms.most / norms.least - 1.0;
  const std::string pairs = "the lengths of the pairs change in every layout (smallest residual " +
                            digits(best_layout_residual, 3) + ")";
  const bool sinusoidal =
      is_sinusoidal(vectors, Pairing::interleaved) || is_sinusoidal(vectors, Pairing::half);
  const std::string change = "the lengths of the vectors change by factors from " +
                             digits(norms.least) + " to " + digits(norms.most);
  if (sinusoidal) return "a sinusoidal table was added: " + change;
  if (axis_of_addition(vectors)) {
    return "something was added: all vectors of a token change by the same difference, and " +
           change;
  }
  if (spread < 0.02) {
    return message("the lengths of the vectors are unchanged",
                   std::abs(norms.most - 1.0) < 0.02 ? "" : " (times " + digits(norms.most) + ")",
                   " but ", pairs, ": an orthogonal map, not a rotary embedding");
  }
  return change + " and " + pairs;
}

}  // namespace phasor::porting::diagnosis
