#include "phasor/models/generate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/generate/require_option.hpp"

namespace phasor::models {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
// A million tokens below e^-60 of the largest weight add less than 2^-53 to the sum: the draw is not
// affected.
constexpr double kNegligible = -60.0;

// A NaN is not a candidate, and -inf excludes a token.
[[nodiscard]] bool is_candidate(double logit) { return logit > kMinusInfinity; }

[[noreturn]] void refuse_logits(std::size_t count) {
  refuse(message("sampler: none of the ", count, " logits is a number above -inf"));
}

[[nodiscard]] std::int64_t greedy(std::span<const float> logits) {
  std::size_t best = logits.size();
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!is_candidate(logits[id])) continue;
    if (best == logits.size() || logits[id] > logits[best]) best = id;
  }
  if (best == logits.size()) refuse_logits(logits.size());
  return static_cast<std::int64_t>(best);
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {
  require_option(std::isfinite(options.temperature) && options.temperature >= 0.0,
                 "sampler: temperature must be finite and at least 0", options.temperature);
  require_option(options.top_k >= 0, "sampler: top_k must be at least 0", options.top_k);
  require_option(options.top_p > 0.0 && options.top_p <= 1.0,
                 "sampler: top_p must be above 0 and at most 1", options.top_p);
  require_option(options.min_p >= 0.0 && options.min_p < 1.0,
                 "sampler: min_p must be at least 0 and below 1", options.min_p);
  require_option(std::isfinite(options.repetition_penalty) && options.repetition_penalty > 0.0,
                 "sampler: repetition_penalty must be positive and finite",
                 options.repetition_penalty);
  require_option(options.repetition_window >= 0, "sampler: repetition_window must be at least 0",
                 options.repetition_window);
}

std::int64_t Sampler::next(std::span<const float> logits, std::span<const std::int64_t> seen) {
  if (logits.empty()) refuse_logits(0);
  const bool penalised = options_.repetition_penalty != 1.0 && !seen.empty();
  if (options_.temperature == 0.0 && !penalised) return greedy(logits);
  if (penalised) {
    penalised_.assign(logits.begin(), logits.end());
    penalise(seen);
    logits = penalised_;
    if (options_.temperature == 0.0) return greedy(logits);
  }
  collect(logits);
  keep_top_k();
  return draw(keep_min_p(keep_top_p(weigh())));
}

void Sampler::penalise(std::span<const std::int64_t> seen) {
  const auto window = static_cast<std::size_t>(options_.repetition_window);
  if (window != 0 && seen.size() > window) seen = seen.last(window);
  recent_.assign(seen.begin(), seen.end());
  std::sort(recent_.begin(), recent_.end());
  recent_.erase(std::unique(recent_.begin(), recent_.end()), recent_.end());
  for (const std::int64_t id : recent_) {
    if (id < 0 || id >= static_cast<std::int64_t>(penalised_.size())) continue;
    float& logit = penalised_[static_cast<std::size_t>(id)];
    const double penalty = options_.repetition_penalty;
    logit = static_cast<float>(logit > 0.0F ? logit / penalty : logit * penalty);
  }
}

// Exponents (logit - largest) / temperature, in the order of the ids.
void Sampler::collect(std::span<const float> logits) {
  const double largest = logits[static_cast<std::size_t>(greedy(logits))];
  candidates_.clear();
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!is_candidate(logits[id])) continue;
    // Two infinities are equally large; their difference would be NaN.
    const double below = logits[id] == largest ? 0.0 : logits[id] - largest;
    const double exponent = below / options_.temperature;
    if (exponent < kNegligible) continue;
    candidates_.push_back({static_cast<std::int64_t>(id), exponent, 0.0});
  }
}

// A total order, so that the result is the same with every standard library.
bool Sampler::before(const Candidate& a, const Candidate& b) {
  return a.exponent != b.exponent ? a.exponent > b.exponent : a.id < b.id;
}

void Sampler::keep_top_k() {
  const auto count = static_cast<std::size_t>(options_.top_k);
  if (count == 0 || count >= candidates_.size()) return;
  std::partial_sort(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(),
                    before);
  candidates_.resize(count);
}

double Sampler::weigh() {
  double total = 0.0;
  for (Candidate& candidate : candidates_) {
    candidate.weight = std::exp(candidate.exponent);
    total += candidate.weight;
  }
  return total;
}

// Sorts only as much as is kept.
double Sampler::keep_top_p(double total) {
  if (options_.top_p >= 1.0) return total;
  const double wanted = options_.top_p * total;
  double sum = 0.0;
  std::size_t sorted = 0, kept = 0;
  while (kept < candidates_.size() && (kept == 0 || sum < wanted)) {
    if (kept == sorted) {
      const auto from = candidates_.begin() + static_cast<std::ptrdiff_t>(sorted);
      sorted = std::min(candidates_.size(), std::max<std::size_t>(64, 4 * sorted));
      std::partial_sort(from, candidates_.begin() + static_cast<std::ptrdiff_t>(sorted),
                        candidates_.end(), before);
    }
    sum += candidates_[kept++].weight;
  }
  candidates_.resize(kept);
  return sum;
}

double Sampler::keep_min_p(double total) {
  if (options_.min_p <= 0.0) return total;
  // The largest weight is e^0 = 1.
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < options_.min_p; });
  double sum = 0.0;
  for (const Candidate& candidate : candidates_) sum += candidate.weight;
  return sum;
}

// The inverse of the cumulative distribution at 53 random bits. The numbers of
// std::discrete_distribution depend on the standard library.
std::int64_t Sampler::draw(double total) {
  const double target = static_cast<double>(random_() >> 11U) * 0x1p-53 * total;
  double sum = 0.0;
  for (const Candidate& candidate : candidates_) {
    sum += candidate.weight;
    if (sum > target) return candidate.id;
  }
  return candidates_.back().id;  // target < total, unless the product rounded up
}

}  // namespace phasor::models
