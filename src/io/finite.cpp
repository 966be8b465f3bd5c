#include "phasor/io/internal/finite.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "phasor/core/internal/standard.hpp"
#include "phasor/core/view.hpp"

namespace phasor::io {
namespace {

// How numbers are stored in Bits. A number is not finite if all bits of its exponent are set; adding 1 to
// such an exponent sets the bit of the sign.
template <class Stored, Stored kExponent, Stored kSign>
struct Exponent {
  using Bits = Stored;
  // 0 if all numbers are finite.
  static Bits overflow(Bits bits) noexcept {
    constexpr auto kOne = static_cast<Bits>(kExponent & (~kExponent + 1U));
    return static_cast<Bits>(((bits & kExponent) + kOne) & kSign);
  }
};
struct Float : Exponent<std::uint32_t, 0x7f800000U, 0x80000000U> {
  static float value(Bits bits) noexcept { return core::bit_cast<float>(bits); }
};
struct BFloat16 : Exponent<std::uint16_t, 0x7f80U, 0x8000U> {
  static float value(Bits bits) noexcept { return core::to_float(core::BFloat16{bits}); }
};
struct Half : Exponent<std::uint16_t, 0x7c00U, 0x8000U> {
  static float value(Bits bits) noexcept { return core::to_float(core::Half{bits}); }
};
// The scale and the minimum of a block.
struct TwoHalves {
  using Bits = std::uint32_t;
  static Bits overflow(Bits bits) noexcept {
    return ((bits & 0x7c007c00U) + 0x04000400U) & 0x80008000U;
  }
  static float value(Bits bits) noexcept {
    const auto scale = static_cast<std::uint16_t>(bits);
    return Half::value(Half::overflow(scale) != 0 ? scale : static_cast<std::uint16_t>(bits >> 16));
  }
};

// One number in each kStride bytes. The first pass has no branch; numbers without a gap go through loops
// of a fixed length, which the compiler makes vectors of. The second pass runs only when there is
// something to find.
template <class Stored, std::size_t kStride = sizeof(typename Stored::Bits)>
std::optional<NonFinite> find(std::span<const std::byte> blocks, std::size_t offset = 0) noexcept {
  using Bits = typename Stored::Bits;
  const std::size_t count = blocks.size() / kStride;
  const auto bits_of = [&](std::size_t i) {
    Bits bits = 0;
    std::memcpy(&bits, blocks.data() + i * kStride + offset, sizeof(bits));
    return bits;
  };
  std::uint32_t any = 0;
  std::size_t i = 0;
  if constexpr (kStride == sizeof(Bits)) {
    constexpr std::size_t kLanes = 64 / sizeof(Bits);
    std::array<Bits, kLanes> lanes{};
    for (; i + kLanes <= count; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        lanes[lane] |= Stored::overflow(bits_of(i + lane));
    }
    for (const Bits lane : lanes) any |= lane;
  }
  for (; i < count; ++i) any |= Stored::overflow(bits_of(i));
  if (any == 0) return std::nullopt;
  std::size_t at = 0;
  while (Stored::overflow(bits_of(at)) == 0) ++at;
  return NonFinite{at, Stored::value(bits_of(at))};
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
      return find<Float>(blocks);
    case TensorType::f16:
      return find<Half>(blocks);
    case TensorType::bf16:
      return find<BFloat16>(blocks);
    case TensorType::q4_0:
    case TensorType::iq4_nl:
      return find<Half, 18>(blocks);
    case TensorType::q5_0:
      return find<Half, 22>(blocks);
    case TensorType::q8_0:
      return find<Half, 34>(blocks);
    case TensorType::q6_k:
      return find<Half, 210>(blocks, kScaleOfQ6K);
    case TensorType::q4_1:
      return find<TwoHalves, 20>(blocks);
    case TensorType::q5_1:
      return find<TwoHalves, 24>(blocks);
    case TensorType::q4_k:
      return find<TwoHalves, 144>(blocks);
    case TensorType::q5_k:
      return find<TwoHalves, 176>(blocks);
    default:
      return std::nullopt;
  }
}

}  // namespace phasor::io
