// Scratch memory of linear attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/kernels/kernels.hpp"

namespace phasor::attention {

// Rows of scratch for a matrix of n: products work on whole panels, transposes on whole vectors.
[[nodiscard]] constexpr std::int64_t room_for(std::int64_t n) noexcept {
  const std::int64_t panels = kernels::rounded_up(n, kernels::kPanelRows);
  const std::int64_t vectors = kernels::rounded_up(n, kernels::kWidest);
  return panels > vectors ? panels : vectors;
}

// Cuts one allocation into aligned pieces; without memory it only counts.
class Carver {
 public:
  explicit Carver(float* memory = nullptr) noexcept : memory_(memory) {}
  [[nodiscard]] float* take(std::int64_t floats) noexcept {
    const std::int64_t at = used_;
    used_ += kernels::rounded_up(floats, kernels::kWidest);
    return memory_ == nullptr ? nullptr : memory_ + at;
  }
  [[nodiscard]] std::int64_t used() const noexcept { return used_; }

 private:
  float* memory_;
  std::int64_t used_ = 0;
};

// `parts` pieces of zeros, each aligned to a cache line.
class Scratch {
 public:
  Scratch() = default;
  Scratch(std::int64_t parts, std::int64_t floats);
  [[nodiscard]] Carver part(std::int64_t index) noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size() * sizeof(float); }

 private:
  std::int64_t floats_ = 0;
  std::vector<float> memory_;
};

}  // namespace phasor::attention
