// Finds which features are rotated together. A rotation keeps the length of every pair up to one
// common factor, so the pairs are found before positions, heads and angles are known.
#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "porting/diagnose/parts.hpp"

namespace phasor::porting::diagnosis {
namespace {

// Enough vectors to distinguish the pairings.
constexpr std::int64_t kLayoutVectors = 512;

std::vector<std::int64_t> sample(const Vectors& vectors) {
  std::vector<std::int64_t> usable;
  for (std::int64_t v = 0; v < vectors.count; ++v) {
    if (vectors.usable[static_cast<std::size_t>(v)] != 0) usable.push_back(v);
  }
  const auto count = static_cast<std::int64_t>(usable.size());
  if (count <= kLayoutVectors) return usable;
  std::vector<std::int64_t> chosen;
  for (std::int64_t k = 0; k < kLayoutVectors; ++k) {
    chosen.push_back(usable[static_cast<std::size_t>(k * count / kLayoutVectors)]);
  }
  return chosen;
}

class Scorer {
 public:
  explicit Scorer(const Vectors& vectors) : vectors_(vectors), sample_(sample(vectors)) {
    moved_.resize(static_cast<std::size_t>(vectors.dim), 0.0);
    for (const std::int64_t v : sample_) {
      for (std::int64_t j = 0; j < vectors.dim; ++j) {
        const auto at = static_cast<std::size_t>(v * vectors.dim + j);
        const double moved = vectors.after[at] - vectors.before[at];
        moved_[static_cast<std::size_t>(j)] += moved * moved;
        energy_ += vectors.after[at] * vectors.after[at];
      }
    }
  }

  [[nodiscard]] LayoutScore operator()(const Window& window) const {
    // sum (|y| - a |x|)^2 = sum |y|^2 - 2 a sum |x||y| + a^2 sum |x|^2, a^2 = sum |y|^2 / sum |x|^2
    // loses all digits near 0; so the lengths are stored for a second pass.
    core::throw_if_cancelled();
    double before = 0.0, after = 0.0;
    lengths_.clear();
    for (std::int64_t pair = 0; pair < window.pairs(); ++pair) {
      const PairFeatures at = features_of(window, pair);
      for (const std::int64_t v : sample_) {
        const double* const x = vectors_.before.data() + v * vectors_.dim;
        const double* const y = vectors_.after.data() + v * vectors_.dim;
        const double from = x[at.read_a] * x[at.read_a] + x[at.read_b] * x[at.read_b];
        const double to = y[at.write_a] * y[at.write_a] + y[at.write_b] * y[at.write_b];
        before += from;
        after += to;
        lengths_.emplace_back(std::sqrt(from), std::sqrt(to));
      }
    }
    const double amplitude = before > 0.0 ? std::sqrt(after / before) : 0.0;
    double left = 0.0;
    for (const auto& [from, to] : lengths_) {
      left += (to - amplitude * from) * (to - amplitude * from);
    }
    for (std::int64_t j = 0; j < vectors_.dim; ++j) {
      if (j >= window.first && j < window.first + window.width) continue;
      left += moved_[static_cast<std::size_t>(j)];
    }
    return {window, energy_ > 0.0 ? std::sqrt(left / energy_) : 0.0};
  }

 private:
  const Vectors& vectors_;
  std::vector<std::int64_t> sample_;
  std::vector<double> moved_;
  double energy_ = 0.0;
  mutable std::vector<std::pair<double, double>> lengths_;
};

}  // namespace

std::string_view name_of(Pairing pairing) noexcept {
  static constexpr core::EnumNames<Pairing::half_to_interleaved> kNames(
      "half", "interleaved", "interleaved_to_half", "half_to_interleaved");
  return kNames[pairing];
}

PairFeatures features_of(const Window& window, std::int64_t pair) noexcept {
  const std::int64_t near = window.first + pair, far = near + window.width / 2;
  const std::int64_t even = window.first + 2 * pair, odd = even + 1;
  switch (window.pairing) {
    case Pairing::half:
      return {near, far, near, far};
    case Pairing::interleaved:
      return {even, odd, even, odd};
    case Pairing::interleaved_to_half:
      return {even, odd, near, far};
    case Pairing::half_to_interleaved:
      return {near, far, even, odd};
  }
  return {};
}

std::vector<LayoutScore> rank_layouts(const Vectors& vectors,
                                      const std::vector<std::uint8_t>& changed) {
  const auto begin = changed.begin();
  const std::int64_t low = std::find(begin, changed.end(), 1) - begin;
  const std::int64_t high =
      vectors.dim - 1 - (std::find(changed.rbegin(), changed.rend(), 1) - changed.rbegin());
  if (low > high) return {};

  const Scorer score(vectors);
  std::vector<LayoutScore> scores;
  std::vector<std::tuple<Pairing, std::int64_t, std::int64_t>> tried;
  const auto attempt = [&](Pairing pairing, std::int64_t first, std::int64_t width) {
    const bool covers = first >= 0 && first <= low && first + width > high;
    if (!covers || width < 2 || width % 2 != 0 || first + width > vectors.dim) return;
    const std::tuple key{pairing, first, width};
    if (std::find(tried.begin(), tried.end(), key) != tried.end()) return;
    tried.push_back(key);
    scores.push_back(score({pairing, first, width}));
  };
  // The first pair rotates fastest and always changes; slow pairs may change by less than the
  // rounding, so a half window may be wider than the features that changed.
  for (const std::int64_t first : {low, low - 1, std::int64_t{0}}) {
    for (std::int64_t pairs = 1; 2 * pairs <= vectors.dim; ++pairs) {
      attempt(Pairing::half, first, 2 * pairs);
    }
    const std::int64_t narrowest = (high - first + 2) / 2 * 2;
    attempt(Pairing::interleaved, first, narrowest);
    for (const Pairing moving : {Pairing::interleaved_to_half, Pairing::half_to_interleaved}) {
      attempt(moving, first, narrowest);
      attempt(moving, first, narrowest + 2);
      attempt(moving, first, (vectors.dim - first) / 2 * 2);
    }
  }
  std::stable_sort(scores.begin(), scores.end(), [](const LayoutScore& a, const LayoutScore& b) {
    return a.residual < b.residual;
  });
  if (scores.empty()) return scores;
  // Windows that differ by pairs that do not rotate have the same residual: take the narrowest.
  const double tie = 1.25 * scores.front().residual + 0.1 * unit_of(vectors.precision);
  auto best = scores.begin();
  for (auto entry = scores.begin(); entry != scores.end() && entry->residual <= tie; ++entry) {
    if (entry->window.width < best->window.width) best = entry;
  }
  std::rotate(scores.begin(), best, best + 1);
  return scores;
}

}  // namespace phasor::porting::diagnosis
