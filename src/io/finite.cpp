#include "phasor/io/internal/finite.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "phasor/core/view.hpp"

namespace phasor::io {
namespace {

// How a number is stored: as Bits, and not finite if all bits of kExponent are set.
struct AsFloat {
  using Bits = std::uint32_t;
  static constexpr Bits kExponent = 0x7f800000U;
  static float value(Bits bits) noexcept {
    float value = 0.0F;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
};
struct AsHalf {
  using Bits = std::uint16_t;
  static constexpr Bits kExponent = 0x7c00U;
  static float value(Bits bits) noexcept { return core::to_float(core::Half{bits}); }
};
struct AsBFloat16 {
  using Bits = std::uint16_t;
  static constexpr Bits kExponent = 0x7f80U;
  static float value(Bits bits) noexcept { return core::to_float(core::BFloat16{bits}); }
};

// One number in each kStride bytes. The first pass has no branch, so that the compiler makes vectors of
// it; the second runs only when there is something to find.
template <class Stored, std::size_t kStride = sizeof(typename Stored::Bits)>
std::optional<NonFinite> find(std::span<const std::byte> blocks, std::size_t offset = 0) noexcept {
  using Bits = typename Stored::Bits;
  const std::size_t count = blocks.size() / kStride;
  const auto bits_of = [&](std::size_t i) {
    Bits bits = 0;
    std::memcpy(&bits, blocks.data() + i * kStride + offset, sizeof(bits));
    return bits;
  };
  const auto is_found = [](Bits bits) {
    return static_cast<Bits>(bits & Stored::kExponent) == Stored::kExponent;
  };
  Bits found = 0;
  for (std::size_t i = 0; i < count; ++i) found |= static_cast<Bits>(is_found(bits_of(i)) ? 1 : 0);
  if (found == 0) return std::nullopt;
  std::size_t at = 0;
  while (!is_found(bits_of(at))) ++at;
  return NonFinite{at, Stored::value(bits_of(at))};
}

// The scale and the minimum of each block.
template <std::size_t kStride>
std::optional<NonFinite> find_pair(std::span<const std::byte> blocks) noexcept {
  const std::optional<NonFinite> scale = find<AsHalf, kStride>(blocks);
  const std::optional<NonFinite> minimum = find<AsHalf, kStride>(blocks, 2);
  if (!scale || (minimum && minimum->block < scale->block)) return minimum;
  return scale;
}

// As float32: a double beyond its range is infinite.
std::optional<NonFinite> find_double(std::span<const std::byte> numbers) noexcept {
  for (std::size_t i = 0; i < numbers.size() / sizeof(double); ++i) {
    double number = 0.0;
    std::memcpy(&number, numbers.data() + i * sizeof(number), sizeof(number));
    const auto rounded = static_cast<float>(number);
    if (!std::isfinite(rounded)) return NonFinite{i, rounded};
  }
  return std::nullopt;
}

}  // namespace

std::optional<NonFinite> find_non_finite(TensorType type,
                                         std::span<const std::byte> blocks) noexcept {
  constexpr std::size_t kScaleOfQ6K = 208;  // after the codes and the small scales
  switch (type) {
    case TensorType::f64:
      return find_double(blocks);
    case TensorType::f32:
      return find<AsFloat>(blocks);
    case TensorType::f16:
      return find<AsHalf>(blocks);
    case TensorType::bf16:
      return find<AsBFloat16>(blocks);
    case TensorType::q4_0:
      return find<AsHalf, 18>(blocks);
    case TensorType::q5_0:
      return find<AsHalf, 22>(blocks);
    case TensorType::q8_0:
      return find<AsHalf, 34>(blocks);
    case TensorType::q6_k:
      return find<AsHalf, 210>(blocks, kScaleOfQ6K);
    case TensorType::q4_1:
      return find_pair<20>(blocks);
    case TensorType::q5_1:
      return find_pair<24>(blocks);
    case TensorType::q4_k:
      return find_pair<144>(blocks);
    case TensorType::q5_k:
      return find_pair<176>(blocks);
    default:
      return std::nullopt;
  }
}

}  // namespace phasor::io
