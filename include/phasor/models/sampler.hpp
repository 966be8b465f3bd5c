// Samples the next token from logits.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "phasor/export.h"

namespace phasor::models {

// The filters apply in this order: repetition penalty, temperature, top-k, top-p, min-p.
struct SamplerOptions {
  double temperature = 0.0;         // 0: greedy, the largest logit, the first of equals
  std::int64_t top_k = 0;           // 0: all
  double top_p = 1.0;               // the smallest set of tokens whose probability reaches top_p
  double min_p = 0.0;               // tokens below min_p times the largest probability are dropped
  double repetition_penalty = 1.0;  // of tokens seen: positive logits divided, negative multiplied
  std::int64_t repetition_window = 64;  // the last tokens that count as seen; 0: all
  std::uint64_t seed = 0;
};

class PHASOR_API Sampler {
 public:
  // throws   Error(invalid_argument): a negative or not finite temperature, top_k
  //          < 0, top_p outside (0, 1], min_p outside [0, 1), penalty not positive, window < 0
  explicit Sampler(const SamplerOptions& options);
  // The same seed, logits and seen tokens give the same token on every machine. A NaN is never
  // chosen, nor is -inf.
  //
  // throws   Error(invalid_argument): no logit above -inf; std::bad_alloc. The random generator is
  //          then unchanged
  [[nodiscard]] std::int64_t next(std::span<const float> logits,
                                  std::span<const std::int64_t> seen);
  [[nodiscard]] const SamplerOptions& options() const noexcept { return options_; }

 private:
  struct Candidate {
    std::int64_t id;
    double exponent, weight;
  };
  static bool before(const Candidate& a, const Candidate& b);
  void penalise(std::span<const std::int64_t> seen);
  void collect(std::span<const float> logits);
  void keep_top_k();
  [[nodiscard]] double weigh();
  [[nodiscard]] double keep_top_p(double total);
  [[nodiscard]] double keep_min_p(double total);
  [[nodiscard]] std::int64_t draw(double total);

  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<Candidate> candidates_;
  std::vector<float> penalised_;
  std::vector<std::int64_t> recent_;
};

}  // namespace phasor::models
