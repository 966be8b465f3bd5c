// Tensor views. Views own nothing; strides count elements; features are contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "phasor/export.h"

namespace phasor::core {

enum class DType : std::uint8_t { f64, f32, f16, bf16 };

[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : 2;
}
[[nodiscard]] constexpr std::string_view name_of(DType dtype) noexcept {
  return dtype == DType::f64   ? "f64"
         : dtype == DType::f32 ? "f32"
         : dtype == DType::f16 ? "f16"
                               : "bf16";
}

// Sixteen-bit storage types: bit patterns, not arithmetic types.
struct Half {
  std::uint16_t bits = 0;
};
struct BFloat16 {
  std::uint16_t bits = 0;
};

// Round to nearest, ties to even; NaN stays NaN.
[[nodiscard]] PHASOR_API float to_float(Half value) noexcept;
[[nodiscard]] PHASOR_API float to_float(BFloat16 value) noexcept;
[[nodiscard]] PHASOR_API Half to_half(float value) noexcept;
[[nodiscard]] PHASOR_API BFloat16 to_bfloat16(float value) noexcept;

template <class T>
[[nodiscard]] constexpr DType dtype_of() noexcept {
  using Plain = std::remove_const_t<T>;
  static_assert(std::is_same_v<Plain, double> || std::is_same_v<Plain, float> ||
                    std::is_same_v<Plain, Half> || std::is_same_v<Plain, BFloat16>,
                "phasor stores double, float, Half and BFloat16");
  if constexpr (std::is_same_v<Plain, double>) return DType::f64;
  if constexpr (std::is_same_v<Plain, float>) return DType::f32;
  if constexpr (std::is_same_v<Plain, Half>) return DType::f16;
  return DType::bf16;
}

// shape  [batch, tokens, heads, head_dim]; element (b, t, h, d) is at data + b*batch_stride +
//        t*token_stride + h*head_stride + d. Strides may be negative.
template <class Void>
struct BasicHeadsView {
  Void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t batch = 1, tokens = 0, heads = 0, head_dim = 0;
  std::int64_t batch_stride = 0, token_stride = 0, head_stride = 0;

  operator BasicHeadsView<const void>() const noexcept  // NOLINT(google-explicit-constructor)
      requires(!std::is_const_v<Void>) {
    return {data, dtype, batch, tokens, heads, head_dim, batch_stride, token_stride, head_stride};
  }
};
using HeadsView = BasicHeadsView<void>;
using ConstHeadsView = BasicHeadsView<const void>;

// The element at data + index, as a double, for every dtype; writing rounds once. Slow: for checks
// and rare cases.
[[nodiscard]] PHASOR_API double element_of(const ConstHeadsView& view, std::int64_t index) noexcept;
PHASOR_API void set_element(const HeadsView& view, std::int64_t index, double value) noexcept;

// A dense [batch, tokens, heads, head_dim] buffer.
template <class T>
[[nodiscard]] auto heads_view(T* data, std::int64_t batch, std::int64_t tokens, std::int64_t heads,
                              std::int64_t head_dim) noexcept {
  using Void = std::conditional_t<std::is_const_v<T>, const void, void>;
  return BasicHeadsView<Void>{data,
                              dtype_of<T>(),
                              batch,
                              tokens,
                              heads,
                              head_dim,
                              tokens * heads * head_dim,
                              heads * head_dim,
                              head_dim};
}

// A dense [batch, heads, tokens, head_dim] buffer: heads before tokens, as torch modules keep it.
template <class T>
[[nodiscard]] auto heads_first_view(T* data, std::int64_t batch, std::int64_t heads,
                                    std::int64_t tokens, std::int64_t head_dim) noexcept {
  auto view = heads_view(data, batch, tokens, heads, head_dim);
  view.token_stride = head_dim;
  view.head_stride = tokens * head_dim;
  return view;
}

}  // namespace phasor::core
