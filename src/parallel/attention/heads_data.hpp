// Copies and sums of [batch, tokens, heads, dim] views, row by row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "phasor/core/internal/stored.hpp"
#include "phasor/core/view.hpp"

namespace phasor::parallel {

// Rows [first, first + count) of a view.
template <class Void>
[[nodiscard]] core::BasicHeadsView<Void> rows_of_view(core::BasicHeadsView<Void> view,
                                                      std::int64_t first, std::int64_t count) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  const auto size = static_cast<std::int64_t>(core::size_of(view.dtype));
  if (view.data != nullptr)
    view.data = static_cast<Byte*>(view.data) + first * view.token_stride * size;
  view.tokens = count;
  return view;
}

// visit(from_row, to_row) for each head of each token, as pointers to elements.
template <class From, class To, class Visit>
void for_each_row(const core::ConstHeadsView& from, const core::HeadsView& to, const Visit& visit) {
  for (std::int64_t b = 0; b < from.batch; ++b) {
    for (std::int64_t t = 0; t < from.tokens; ++t) {
      for (std::int64_t h = 0; h < from.heads; ++h) {
        visit(static_cast<const From*>(from.data) + b * from.batch_stride + t * from.token_stride +
                  h * from.head_stride,
              static_cast<To*>(to.data) + b * to.batch_stride + t * to.token_stride +
                  h * to.head_stride);
      }
    }
  }
}

template <class Number>
void clear_heads(const core::HeadsView& view) {
  for_each_row<Number, Number>(
      view, view, [&](const Number*, Number* row) { std::fill_n(row, view.head_dim, Number{0}); });
}

// to = from, rounded to the type of `to`. Same shape.
inline void copy_heads(const core::ConstHeadsView& from, const core::HeadsView& to) {
  core::with_element(from.dtype, [&](auto from_element) {
    core::with_element(to.dtype, [&](auto to_element) {
      using From = decltype(from_element);
      using To = decltype(to_element);
      for_each_row<From, To>(from, to, [&](const From* in, To* out) {
        if constexpr (std::is_same_v<From, To>) {
          std::memcpy(out, in, static_cast<std::size_t>(from.head_dim) * sizeof(To));
        } else {
          for (std::int64_t e = 0; e < from.head_dim; ++e)
            out[e] = core::stored<To>(static_cast<double>(core::widened(in[e])));
        }
      });
    });
  });
}

// to += from; `to` is f32 or f64.
inline void add_heads(const core::ConstHeadsView& from, const core::HeadsView& to) {
  core::with_element(from.dtype, [&](auto element) {
    using From = decltype(element);
    const auto add = [&](auto sum) {
      using Sum = decltype(sum);
      for_each_row<From, Sum>(from, to, [&](const From* in, Sum* out) {
        for (std::int64_t e = 0; e < from.head_dim; ++e)
          out[e] += static_cast<Sum>(core::widened(in[e]));
      });
    };
    if (to.dtype == core::DType::f64) {
      add(double{});
    } else {
      add(float{});
    }
  });
}

}  // namespace phasor::parallel
