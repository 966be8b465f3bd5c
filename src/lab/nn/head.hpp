// From the last hidden states to a loss: the head of a network, forward and backward together, a group
// of rows at a time, so that the logits of a whole batch are never kept.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lab/nn/ops.hpp"
#include "lab/nn/parameters.hpp"
#include "phasor/lab/internal/network.hpp"

namespace phasor::lab {

// A place of the hidden states [places, hidden] and the class to predict there.
struct Target {
  std::int32_t place = 0, label = 0;
};

template <class T>
class HeadOf {
 public:
  // words    offset of the embedding [vocabulary, hidden], the output's weights if they are tied
  HeadOf(const ModelSpec& spec, std::size_t words, ParameterList& parameters);

  // d_hidden [places, hidden] is zero before and becomes the gradient; null: no gradients. `each`, if
  // it is not empty, gets the plain loss of each target.
  Loss loss(const Workers& workers, const Numbers<T>& numbers, const T* hidden,
            std::span<const Target> targets, const TrainOptions& options, T* d_hidden,
            std::span<float> each);
  // out [places.size(), classes]
  void logits(const Workers& workers, const Numbers<T>& numbers, const T* hidden,
              std::span<const std::int32_t> places, T* out);
  [[nodiscard]] std::int64_t classes() const noexcept { return output_.out; }

 private:
  void forward(const Workers& workers, const Numbers<T>& numbers, const T* hidden,
               std::span<const std::int32_t> places, T* logits, std::int64_t stride);
  void backward(const Workers& workers, const Numbers<T>& numbers,
                std::span<const std::int32_t> places, T* d_hidden);

  ModelSpec spec_;
  std::optional<LinearAt> transform_;  // roformer: dense, GELU, and for a language model a norm
  std::optional<NormAt> norm_;
  LinearAt output_;
  std::vector<T> rows_, dense_, active_, normed_, logits_, d_rows_, d_more_;
};

}  // namespace phasor::lab
