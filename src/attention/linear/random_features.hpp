// The random features of FeatureMap::favor as the passes read them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/linear/scratch.hpp"

namespace phasor::attention {

// W head_dim^(-1/4), which takes x where W takes x'. Immutable.
struct RandomFeatures {
  // throws   std::bad_alloc
  RandomFeatures(std::int64_t count, std::int64_t head_dim, std::uint64_t seed);
  RandomFeatures(const RandomFeatures&) = delete;  // the pointers are to its own memory
  RandomFeatures& operator=(const RandomFeatures&) = delete;

  std::int64_t count, head_dim;
  std::uint64_t seed;
  std::int64_t width, input_width;  // floats of a row of features, and of inputs
  double scale;                     // head_dim^(-1/2): |x'|^2 = scale |x|^2
  std::vector<double> rows;         // [count, head_dim]
  float* by_input = nullptr;        // [head_dim, width]
  float* by_feature = nullptr;      // [count, input_width]
  float* ones = nullptr;            // [width]

  [[nodiscard]] const double* row(std::int64_t i) const noexcept {
    return rows.data() + i * head_dim;
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return rows.size() * sizeof(double) + floats_.bytes();
  }

 private:
  Scratch floats_;
};

// The features of these sizes and seed: those of the last calls, or new ones.
//
// throws   std::bad_alloc
[[nodiscard]] std::shared_ptr<const RandomFeatures> random_features(std::int64_t count,
                                                                    std::int64_t head_dim,
                                                                    std::uint64_t seed);

}  // namespace phasor::attention
