#include "support/tensor.hpp"

#include <algorithm>
#include <random>

namespace phasor::core::tests {
namespace {

// A type of this file alone: of functions that tests instantiate too, the linker may keep theirs,
// which are not optimised.
struct Random : std::mt19937_64 {
  using std::mt19937_64::mt19937_64;
};

}  // namespace

Tensor::Tensor(DType dtype, Shape shape, Strides strides, std::uint64_t seed)
    : view_{nullptr, dtype, shape.batch, shape.tokens, shape.heads, shape.head_dim, 0, 0, 0} {
  const std::int64_t gap = strides == Strides::padded ? 3 : 0;
  if (strides == Strides::heads_first) {
    view_.token_stride = shape.head_dim;
    view_.head_stride = shape.tokens * shape.head_dim;
    view_.batch_stride = shape.heads * view_.head_stride;
  } else {
    view_.head_stride = shape.head_dim + gap;
    view_.token_stride = shape.heads * view_.head_stride + gap;
    view_.batch_stride = shape.tokens * view_.token_stride + gap;
  }
  size_ = shape.batch * std::max(view_.batch_stride, std::int64_t{1}) + 1;
  bytes_.resize(static_cast<std::size_t>(size_) * size_of(dtype));
  view_.data = bytes_.data();
  Random random(seed);
  std::normal_distribution<double> normal;
  for (std::int64_t i = 0; i < size_; ++i) set_element(view_, i, normal(random));
}

std::vector<double> Tensor::wide() const {
  std::vector<double> numbers;
  for_each([&](std::int64_t at) { numbers.push_back(element_of(view_, at)); });
  return numbers;
}

}  // namespace phasor::core::tests
