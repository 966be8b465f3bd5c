// Tensors with strides, of every storage type, filled with normal numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "phasor/core/view.hpp"

namespace phasor::core::tests {

struct Shape {
  std::int64_t batch = 1, tokens = 1, heads = 1, head_dim = 2;
};

// Gaps are left between heads, tokens and batch rows, filled with a pattern that must survive.
enum class Strides : std::uint8_t { dense, padded, heads_first };

class Tensor {
 public:
  Tensor(DType dtype, Shape shape, Strides strides, std::uint64_t seed);
  Tensor(const Tensor& other) : view_(other.view_), size_(other.size_), bytes_(other.bytes_) {
    view_.data = bytes_.data();
  }
  Tensor& operator=(const Tensor&) = delete;

  [[nodiscard]] HeadsView view() { return view_; }
  [[nodiscard]] ConstHeadsView view() const { return view_; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  [[nodiscard]] std::int64_t size() const { return size_; }

  // The same numbers as float64, dense: what the reference works on.
  [[nodiscard]] std::vector<double> wide() const;
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::int64_t b = 0; b < view_.batch; ++b) {
      for (std::int64_t t = 0; t < view_.tokens; ++t) {
        for (std::int64_t h = 0; h < view_.heads; ++h) {
          for (std::int64_t d = 0; d < view_.head_dim; ++d) {
            visit(b * view_.batch_stride + t * view_.token_stride + h * view_.head_stride + d);
          }
        }
      }
    }
  }

 private:
  HeadsView view_;
  std::int64_t size_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace phasor::core::tests
