// Rows of float64: what the float64 passes share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/view.hpp"

namespace phasor::attention {

// Four independent sums, so that additions overlap.
[[nodiscard]] inline double wide_dot(const double* x, const double* y, std::int64_t dim) noexcept {
  double sums[4] = {0.0, 0.0, 0.0, 0.0};
  std::int64_t d = 0;
  for (; d + 4 <= dim; d += 4) {
    for (std::int64_t lane = 0; lane < 4; ++lane) sums[lane] += x[d + lane] * y[d + lane];
  }
  for (; d < dim; ++d) sums[0] += x[d] * y[d];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

inline void wide_add(double* sum, double factor, const double* x, std::int64_t dim) noexcept {
  for (std::int64_t d = 0; d < dim; ++d) sum[d] += factor * x[d];
}

// The features of one head of one token of an f64 view.
template <class Void>
[[nodiscard]] auto wide_row(const core::BasicHeadsView<Void>& view, std::int64_t b, std::int64_t t,
                            std::int64_t h) noexcept {
  using Double = std::conditional_t<std::is_const_v<Void>, const double, double>;
  return static_cast<Double*>(view.data) + b * view.batch_stride + t * view.token_stride +
         h * view.head_stride;
}

// [batch, tokens, heads, dim], dense.
class WideHeads {
 public:
  WideHeads() = default;
  // Zeros, shaped like an f64 view.
  explicit WideHeads(const core::ConstHeadsView& like) { reset(like); }
  WideHeads(WideHeads&&) = default;
  WideHeads& operator=(WideHeads&&) = default;

  // Zeros in the shape of `like`; allocates if the present memory is smaller.
  void reset(const core::ConstHeadsView& like) {
    core::throw_if_cancelled();
    values_.assign(static_cast<std::size_t>(like.batch * like.tokens * like.heads * like.head_dim),
                   0.0);
    view_ = core::heads_view(values_.data(), like.batch, like.tokens, like.heads, like.head_dim);
  }
  // shape    as the view that it was made from
  void assign(const core::ConstHeadsView& view) {
    for_each_row([&](std::int64_t b, std::int64_t t, std::int64_t h, double* row) {
      std::copy_n(wide_row(view, b, t, h), view.head_dim, row);
    });
  }
  void clear() noexcept { std::fill(values_.begin(), values_.end(), 0.0); }
  [[nodiscard]] std::size_t bytes() const noexcept { return values_.capacity() * sizeof(double); }
  [[nodiscard]] const core::HeadsView& view() const noexcept { return view_; }

  // Calls act(b, t, h, row) for every row.
  template <class Act>
  void for_each_row(const Act& act) const {
    for (std::int64_t b = 0; b < view_.batch; ++b) {
      for (std::int64_t t = 0; t < view_.tokens; ++t) {
        core::throw_if_cancelled();
        for (std::int64_t h = 0; h < view_.heads; ++h) act(b, t, h, wide_row(view_, b, t, h));
      }
    }
  }

 private:
  std::vector<double> values_;  // a move keeps its memory: view_ stays valid
  core::HeadsView view_;
};

}  // namespace phasor::attention
