#include "io/gguf/dequantise.hpp"

#include <cstdint>
#include <cstring>

#include "phasor/core/view.hpp"

namespace phasor::io {

namespace {

constexpr int kBlock = 32;   // elements of a plain block
constexpr int kSuper = 256;  // elements of a K block: groups that share two half scales
constexpr int kPackedScales = 12;

int byte_at(const std::byte* bytes, int index) noexcept {
  return std::to_integer<int>(bytes[index]);
}
int signed_byte_at(const std::byte* bytes, int index) noexcept {
  return static_cast<std::int8_t>(byte_at(bytes, index));
}
float half_at(const std::byte* bytes) noexcept {
  core::Half half;
  std::memcpy(&half.bits, bytes, sizeof(half.bits));
  return core::to_float(half);
}

// Element j of a block of nibbles: the low halves of 16 bytes come first, the high halves follow.
int nibble(const std::byte* bytes, int j) noexcept {
  return j < kBlock / 2 ? byte_at(bytes, j) & 15 : byte_at(bytes, j - kBlock / 2) >> 4;
}
// The fifth bit of element j: bit j of a 32-bit word.
int fifth_bit(const std::byte* bytes, int j) noexcept {
  return ((byte_at(bytes, j / 8) >> (j % 8)) & 1) << 4;
}

void decode_q4_0(const std::byte* block, float* out) noexcept {
  const float scale = half_at(block);
  for (int j = 0; j < kBlock; ++j) out[j] = static_cast<float>(nibble(block + 2, j) - 8) * scale;
}

// IQ4_NL: a nibble is one of sixteen values that are denser near zero.
void decode_iq4_nl(const std::byte* block, float* out) noexcept {
  constexpr int kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
  const float scale = half_at(block);
  for (int j = 0; j < kBlock; ++j)
    out[j] = static_cast<float>(kValues[nibble(block + 2, j)]) * scale;
}

void decode_q4_1(const std::byte* block, float* out) noexcept {
  const float scale = half_at(block);
  const float offset = half_at(block + 2);
  for (int j = 0; j < kBlock; ++j) {
    const float product = static_cast<float>(nibble(block + 4, j)) * scale;
    out[j] = product + offset;
  }
}

void decode_q5_0(const std::byte* block, float* out) noexcept {
  const float scale = half_at(block);
  for (int j = 0; j < kBlock; ++j) {
    const int level = nibble(block + 6, j) | fifth_bit(block + 2, j);
    out[j] = static_cast<float>(level - 16) * scale;
  }
}

void decode_q5_1(const std::byte* block, float* out) noexcept {
  const float scale = half_at(block);
  const float offset = half_at(block + 2);
  for (int j = 0; j < kBlock; ++j) {
    const int level = nibble(block + 8, j) | fifth_bit(block + 4, j);
    const float product = static_cast<float>(level) * scale;
    out[j] = product + offset;
  }
}

void decode_q8_0(const std::byte* block, float* out) noexcept {
  const float scale = half_at(block);
  for (int j = 0; j < kBlock; ++j)
    out[j] = static_cast<float>(signed_byte_at(block + 2, j)) * scale;
}

struct GroupScale {
  int scale;
  int minimum;
};

// Eight 6-bit scales and eight 6-bit minima in twelve bytes: those of groups 0 to 3 are the low six
// bits of bytes 0-3 and 4-7; those of groups 4 to 7 take their low four bits from bytes 8-11 and
// their high two from the top of bytes 0-3 and 4-7.
GroupScale group_scale(const std::byte* packed, int group) noexcept {
  if (group < 4) return {byte_at(packed, group) & 63, byte_at(packed, group + 4) & 63};
  const int low = byte_at(packed, group + 4);
  return {(low & 15) | ((byte_at(packed, group - 4) >> 6) << 4),
          (low >> 4) | ((byte_at(packed, group) >> 6) << 4)};
}

// Q4_K and Q5_K: eight groups of 32; groups 2g and 2g + 1 are the low and high nibbles of the same
// 32 bytes. `fifth_bits` (Q5_K) holds bit `group` of every element's high bit; null for Q4_K.
void decode_groups(const std::byte* block, const std::byte* fifth_bits, const std::byte* nibbles,
                   float* out) noexcept {
  const float scale = half_at(block);
  const float minimum = half_at(block + 2);
  for (int group = 0; group < kSuper / kBlock; ++group) {
    const GroupScale own = group_scale(block + 4, group);
    const float step = scale * static_cast<float>(own.scale);
    const float lowest = minimum * static_cast<float>(own.minimum);
    const std::byte* bytes = nibbles + (group / 2) * kBlock;
    for (int j = 0; j < kBlock; ++j) {
      int level = group % 2 == 0 ? byte_at(bytes, j) & 15 : byte_at(bytes, j) >> 4;
      if (fifth_bits != nullptr) level |= ((byte_at(fifth_bits, j) >> group) & 1) << 4;
      const float product = step * static_cast<float>(level);
      out[group * kBlock + j] = product - lowest;
    }
  }
}

void decode_q4_k(const std::byte* block, float* out) noexcept {
  decode_groups(block, nullptr, block + 4 + kPackedScales, out);
}

void decode_q5_k(const std::byte* block, float* out) noexcept {
  const std::byte* fifth_bits = block + 4 + kPackedScales;
  decode_groups(block, fifth_bits, fifth_bits + kBlock, out);
}

// Two halves of 128 elements, each four quarters of 32: quarters 0 and 1 are the low nibbles of the
// half's 64 bytes, 2 and 3 the high ones; bits 2q and 2q + 1 of 32 further bytes are the high
// bits of quarter q. Each signed scale serves 16 elements.
void decode_q6_k(const std::byte* block, float* out) noexcept {
  const std::byte* low = block;
  const std::byte* high = low + kSuper / 2;
  const std::byte* scales = high + kSuper / 4;
  const float scale = half_at(scales + kSuper / 16);
  for (int i = 0; i < kSuper; ++i) {
    const int half = i / 128;
    const int quarter = i % 128 / kBlock;
    const int j = i % kBlock;
    const int byte = byte_at(low, half * 64 + (quarter % 2) * kBlock + j);
    const int four = quarter < 2 ? byte & 15 : byte >> 4;
    const int two = (byte_at(high, half * kBlock + j) >> (2 * quarter)) & 3;
    const float step = scale * static_cast<float>(signed_byte_at(scales, i / 16));
    out[i] = step * static_cast<float>((four | (two << 4)) - 32);
  }
}

using Decode = void (*)(const std::byte*, float*) noexcept;

Decode decoder_of(TensorType type) noexcept {
  switch (type) {
    case TensorType::q4_0:
      return decode_q4_0;
    case TensorType::q4_1:
      return decode_q4_1;
    case TensorType::q5_0:
      return decode_q5_0;
    case TensorType::q5_1:
      return decode_q5_1;
    case TensorType::q8_0:
      return decode_q8_0;
    case TensorType::q4_k:
      return decode_q4_k;
    case TensorType::q5_k:
      return decode_q5_k;
    case TensorType::q6_k:
      return decode_q6_k;
    case TensorType::iq4_nl:
      return decode_iq4_nl;
    default:
      return nullptr;
  }
}

}  // namespace

void dequantise(TensorType type, const std::byte* blocks, std::span<float> out) noexcept {
  const Decode decode = decoder_of(type);
  const auto elements = static_cast<std::size_t>(block_elements(type));
  const std::size_t bytes = block_bytes(type);
  for (std::size_t done = 0; done < out.size(); done += elements, blocks += bytes)
    decode(blocks, out.data() + done);
}

}  // namespace phasor::io
