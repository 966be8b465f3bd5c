// Sixteen-bit floats, one at a time; kernels have their own, a vector at a time.
#include "phasor/core/internal/standard.hpp"
#include "phasor/core/internal/stored.hpp"
#include "phasor/core/view.hpp"

namespace phasor::core {

float to_float(BFloat16 value) noexcept { return bit_cast<float>(std::uint32_t{value.bits} << 16); }

BFloat16 to_bfloat16(float value) noexcept {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return {static_cast<std::uint16_t>((bits >> 16) |
                                       0x0040U)};  // quiet, so that truncation cannot make inf
  }
  // Adding half a unit less one, plus the last kept bit, rounds ties to even; a carry goes up to
  // infinity.
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

float to_float(Half value) noexcept {
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000U} << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffU;
  if (magnitude >= 0x7c00U)
    return bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  if (magnitude >= 0x0400U) return bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24F;
  return sign != 0 ? -subnormal : subnormal;
}

Half to_half(float value) noexcept {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const auto with_sign = [sign](std::uint32_t rest) {
    return Half{static_cast<std::uint16_t>(sign | rest)};
  };
  if (magnitude > 0x7f800000U) return with_sign(0x7e00U | ((magnitude >> 13) & 0x3ffU));
  if (magnitude >= 0x477ff000U) return with_sign(0x7c00U);  // 65520 and above round to infinity
  if (magnitude < 0x38800000U) {
    // Below the smallest normal half: adding 0.5 aligns the last kept bit with float's last bit.
    const float shifted = bit_cast<float>(magnitude) + 0.5F;
    return with_sign(bit_cast<std::uint32_t>(shifted) - 0x3f000000U);
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return with_sign((rounded - (112U << 23)) >> 13);
}

double element_of(const ConstHeadsView& view, std::int64_t index) noexcept {
  return with_element(view.dtype, [&](auto element) {
    const auto* const elements = static_cast<const decltype(element)*>(view.data);
    return static_cast<double>(widened(elements[index]));
  });
}

void set_element(const HeadsView& view, std::int64_t index, double value) noexcept {
  with_element(view.dtype, [&](auto element) {
    using Element = decltype(element);
    static_cast<Element*>(view.data)[index] = stored<Element>(value);
  });
}

}  // namespace phasor::core
