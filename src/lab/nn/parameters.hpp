// The list of a network's parameters, and where each begins in the one array of numbers.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "phasor/lab/internal/network.hpp"

namespace phasor::lab {

inline constexpr std::size_t kAbsent = std::numeric_limits<std::size_t>::max();

// What a parameter is before training.
struct Initial {
  double value = 0.0, deviation = 0.0;
};
inline constexpr Initial kZeros{}, kOnes{1.0, 0.0};
// Of embeddings and other tables of rows.
inline constexpr Initial kEmbedding{0.0, 0.02};
// Of the matrices of layers of a width: small enough that a stream of many layers keeps its size.
[[nodiscard]] inline Initial matrix_initial(std::int64_t hidden) noexcept {
  return {0.0, std::sqrt(2.0 / (5.0 * static_cast<double>(hidden)))};
}

enum class Bias : std::uint8_t { none, own };

// y = W x + b; offsets of W [out, in] and b [out].
struct LinearAt {
  std::size_t weight = kAbsent, bias = kAbsent;
  std::int64_t out = 0, in = 0;
};
struct NormAt {
  std::size_t weight = kAbsent, bias = kAbsent;
};

class ParameterList {
 public:
  // The offset of the new parameter, which follows the last one.
  std::size_t add(std::string name, std::vector<std::int64_t> shape, const Initial& initial) {
    std::size_t size = 1;
    for (const std::int64_t axis : shape) size *= static_cast<std::size_t>(axis);
    const auto decay = shape.size() >= 2 && initial.deviation > 0.0 ? Parameter::Decay::decays
                                                                    : Parameter::Decay::exempt;
    layout_.push_back({std::move(name), std::move(shape), count_, size, decay});
    initial_.push_back(initial);
    count_ += size;
    return layout_.back().first;
  }
  // Several matrices of one input, which one product computes: their rows follow each other.
  LinearAt linear(const std::string& prefix, const std::vector<std::string>& names,
                  std::int64_t out, std::int64_t in, Bias bias, const Initial& initial) {
    LinearAt at{.out = out * static_cast<std::int64_t>(names.size()), .in = in};
    for (const std::string& name : names) {
      const std::size_t first = add(prefix + name + ".weight", {out, in}, initial);
      if (at.weight == kAbsent) at.weight = first;
    }
    for (const std::string& name : names) {
      if (bias == Bias::none) break;
      const std::size_t first = add(prefix + name + ".bias", {out}, kZeros);
      if (at.bias == kAbsent) at.bias = first;
    }
    return at;
  }
  NormAt norm(const std::string& name, std::int64_t width, Bias bias) {
    NormAt at{.weight = add(name + ".weight", {width}, kOnes)};
    if (bias == Bias::own) at.bias = add(name + ".bias", {width}, kZeros);
    return at;
  }

  [[nodiscard]] const std::vector<Parameter>& layout() const noexcept { return layout_; }
  [[nodiscard]] const std::vector<Initial>& initial() const noexcept { return initial_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  std::vector<Parameter> layout_;
  std::vector<Initial> initial_;
  std::size_t count_ = 0;
};

// Where a pass reads parameters and adds gradients.
template <class T>
struct Numbers {
  const T* values = nullptr;
  T* gradients = nullptr;  // null: not wanted

  [[nodiscard]] const T* at(std::size_t offset) const noexcept {
    return offset == kAbsent ? nullptr : values + offset;
  }
  [[nodiscard]] T* gradient(std::size_t offset) const noexcept {
    return offset == kAbsent ? nullptr : gradients + offset;
  }
};

}  // namespace phasor::lab
