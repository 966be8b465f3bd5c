#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "models/matrix/pack_group.hpp"
#include "models/matrix/packed.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/internal/large_memory.hpp"

namespace phasor::models {
namespace {

using io::TensorType;
using kernels::Format;
using kernels::kBlock;
using kernels::kGroupRows;
using kernels::Weights;

using Codes = std::array<std::uint8_t, kBlockBytes>;

void put_nibbles(std::byte* words, const Codes& codes) {
  std::array<std::uint8_t, kBlockBytes / 2> packed;
  for (std::size_t i = 0; i < packed.size(); ++i)
    packed[i] = static_cast<std::uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
  for (std::size_t w = 0; w < 4; ++w) put_word(words, w, packed.data() + 4 * w);
}

// Bit 8j + w is the fifth bit of column 4w + j.
void put_fifth_bits(std::byte* words, const Codes& codes) {
  std::uint32_t bits = 0;
  for (unsigned c = 0; c < kBlock; ++c) bits |= (codes[c] >> 4 & 1U) << (8 * (c % 4) + c / 4);
  put_word(words, 0, &bits);
}

// Bits 8j + 2w and 8j + 2w + 1 of two words are the upper bits of column 16 half + 4w + j.
void put_upper_bits(std::byte* words, const Codes& codes) {
  for (unsigned half = 0; half < 2; ++half) {
    std::uint32_t bits = 0;
    for (unsigned c = 0; c < 16; ++c)
      bits |= (codes[16 * half + c] >> 4 & 3U) << (8 * (c % 4) + 2 * (c / 4));
    put_word(words, half, &bits);
  }
}

std::uint8_t byte_at(const std::byte* bytes, unsigned index) {
  return std::to_integer<std::uint8_t>(bytes[index]);
}

// q8_0, q4_0, q4_1: the file's words as they are; q8_0 with the sign bits flipped.
void pack_words(const PackedRow& to, std::int64_t unit, const std::byte* block, std::size_t halves,
                std::size_t words, std::uint32_t flipped_bits) {
  for (std::size_t h = 0; h < halves; ++h) std::memcpy(to.half(unit, h), block + 2 * h, 2);
  std::byte* const codes = to.codes(unit);
  for (std::size_t w = 0; w < words; ++w) {
    std::uint32_t word = 0;
    std::memcpy(&word, block + 2 * halves + 4 * w, 4);
    word ^= flipped_bits;
    put_word(codes, w, &word);
  }
}

void pack_q5(const PackedRow& to, std::int64_t unit, const std::byte* block, std::size_t halves) {
  for (std::size_t h = 0; h < halves; ++h) std::memcpy(to.half(unit, h), block + 2 * h, 2);
  std::uint32_t fifth = 0;
  std::memcpy(&fifth, block + 2 * halves, 4);
  const std::byte* const nibbles = block + 2 * halves + 4;
  Codes codes;
  for (unsigned j = 0; j < 16; ++j) {
    codes[j] = static_cast<std::uint8_t>((byte_at(nibbles, j) & 15) | (fifth >> j & 1) << 4);
    codes[j + 16] =
        static_cast<std::uint8_t>(byte_at(nibbles, j) >> 4 | (fifth >> (j + 16) & 1) << 4);
  }
  put_fifth_bits(to.codes(unit), codes);
  put_nibbles(to.codes(unit) + kWordStride, codes);
}

// q4_k and q5_k: blocks 2i and 2i + 1 are the low and the high nibbles of 32 bytes; `fifth` holds
// bit `b` of every column's fifth bit in block b, null for q4_k.
void pack_super(const PackedRow& to, std::int64_t unit, const std::byte* block,
                const std::byte* fifth, const std::byte* nibbles) {
  std::memcpy(to.half(unit, 0), block, 2);
  std::memcpy(to.half(unit, 1), block + 2, 2);
  for (std::size_t w = 0; w < 3; ++w) put_word(to.scale_words(unit, 2), w, block + 4 + 4 * w);
  const std::int64_t block_words = fifth == nullptr ? 4 : 5;
  for (unsigned b = 0; b < 8; ++b) {
    const std::byte* const bytes = nibbles + b / 2 * kBlockBytes;
    Codes codes;
    for (unsigned j = 0; j < kBlockBytes; ++j) {
      codes[j] = static_cast<std::uint8_t>(byte_at(bytes, j) >> (b % 2 * 4) & 15);
      if (fifth != nullptr)
        codes[j] = static_cast<std::uint8_t>(codes[j] | (byte_at(fifth, j) >> b & 1) << 4);
    }
    std::byte* const words = to.codes(unit, b, block_words);
    if (fifth != nullptr) put_fifth_bits(words, codes);
    put_nibbles(words + (block_words - 4) * kWordStride, codes);
  }
}

// q6_k: src/io/gguf/dequantise.cpp describes the layout of the 256 columns.
void pack_q6_k(const PackedRow& to, std::int64_t unit, const std::byte* block) {
  const std::byte* const high = block + 128;
  const std::byte* const scales = high + 64;
  std::memcpy(to.half(unit, 0), scales + 16, 2);
  for (std::size_t w = 0; w < 4; ++w) put_word(to.scale_words(unit, 1), w, scales + 4 * w);
  for (unsigned b = 0; b < 8; ++b) {
    const unsigned quarter = b % 4;
    const std::byte* const low = block + b / 4 * 64 + quarter % 2 * kBlockBytes;
    const std::byte* const two = high + b / 4 * kBlockBytes;
    Codes codes;
    for (unsigned j = 0; j < kBlockBytes; ++j)
      codes[j] = static_cast<std::uint8_t>((byte_at(low, j) >> (quarter / 2 * 4) & 15) |
                                           (byte_at(two, j) >> (2 * quarter) & 3) << 4);
    put_upper_bits(to.codes(unit, b, 6), codes);
    put_nibbles(to.codes(unit, b, 6) + 2 * kWordStride, codes);
  }
}

void pack_block(const PackedRow& to, std::int64_t unit, const std::byte* block) {
  switch (to.weights.format) {
    case Format::q8_0:
      return pack_words(to, unit, block, 1, 8, kSigns);
    case Format::q4_0:
    case Format::iq4_nl:
      return pack_words(to, unit, block, 1, 4, 0);
    case Format::q4_1:
      return pack_words(to, unit, block, 2, 4, 0);
    case Format::q5_0:
      return pack_q5(to, unit, block, 1);
    case Format::q5_1:
      return pack_q5(to, unit, block, 2);
    case Format::q4_k:
      return pack_super(to, unit, block, nullptr, block + 16);
    case Format::q5_k:
      return pack_super(to, unit, block, block + 16, block + 48);
    case Format::q6_k:
      return pack_q6_k(to, unit, block);
    default:
      return;
  }
}

// Plain values: column c of 16 rows interleaved.
template <class Element>
void pack_plain(const PackedRow& to, std::int64_t columns, const std::byte* bytes) {
  std::byte* at = to.group + to.row * sizeof(Element);
  for (std::int64_t c = 0; c < columns; ++c, at += kGroupRows * sizeof(Element))
    std::memcpy(at, bytes + static_cast<std::size_t>(c) * sizeof(Element), sizeof(Element));
}
void pack_doubles(const PackedRow& to, std::int64_t columns, const std::byte* bytes) {
  std::byte* at = to.group + to.row * sizeof(float);
  for (std::int64_t c = 0; c < columns; ++c, at += kGroupRows * sizeof(float)) {
    double value = 0;
    std::memcpy(&value, bytes + static_cast<std::size_t>(c) * sizeof(value), sizeof(value));
    const auto rounded = static_cast<float>(value);
    std::memcpy(at, &rounded, sizeof(rounded));
  }
}

void pack_row(TensorType type, const PackedRow& to, std::int64_t columns, const std::byte* bytes) {
  switch (type) {
    case TensorType::f64:
      return pack_doubles(to, columns, bytes);
    case TensorType::f32:
      return pack_plain<float>(to, columns, bytes);
    case TensorType::f16:
    case TensorType::bf16:
      return pack_plain<std::uint16_t>(to, columns, bytes);
    default:
      for (std::int64_t u = 0; u < to.weights.units; ++u, bytes += io::block_bytes(type))
        pack_block(to, u, bytes);
  }
}

}  // namespace

std::optional<Format> format_of(TensorType type) noexcept {
  static constexpr std::pair<TensorType, Format> kFormats[] = {
      {TensorType::f64, Format::f32},      {TensorType::f32, Format::f32},
      {TensorType::f16, Format::f16},      {TensorType::bf16, Format::bf16},
      {TensorType::q8_0, Format::q8_0},    {TensorType::q4_0, Format::q4_0},
      {TensorType::q4_1, Format::q4_1},    {TensorType::q5_0, Format::q5_0},
      {TensorType::q5_1, Format::q5_1},    {TensorType::q4_k, Format::q4_k},
      {TensorType::q5_k, Format::q5_k},    {TensorType::q6_k, Format::q6_k},
      {TensorType::iq4_nl, Format::iq4_nl}};
  for (const auto& [stored, format] : kFormats) {
    if (stored == type) return format;
  }
  return std::nullopt;
}

std::shared_ptr<Matrix::Packed> make_packed(TensorType type, std::int64_t rows,
                                            std::int64_t columns) {
  auto packed = std::make_shared<Matrix::Packed>();
  packed->type = type;
  packed->rows = rows;
  packed->columns = columns;
  Weights& weights = packed->weights;
  weights.format = format_of(type).value();
  const kernels::Layout layout = layout_of(weights.format);
  weights.groups = rounded_up(rows, kGroupRows) / kGroupRows;
  weights.units = columns / layout.columns;
  weights.group_bytes = rounded_up(code_offset(layout, weights.units - 1) + layout.code_bytes, 64);
  packed->memory =
      core::allocate_beside(static_cast<std::size_t>(weights.groups * weights.group_bytes), 1);
  weights.data = packed->memory.get();
  if (rows % kGroupRows != 0) {
    std::memset(packed->memory.get() + (weights.groups - 1) * weights.group_bytes, 0,
                static_cast<std::size_t>(weights.group_bytes));
  }
  return packed;
}

void pack_rows(Matrix::Packed& packed, std::int64_t first_row, std::int64_t count,
               const std::byte* bytes) {
  const Weights& weights = packed.weights;
  const std::size_t row_bytes =
      static_cast<std::size_t>(packed.columns / io::block_elements(packed.type)) *
      io::block_bytes(packed.type);
  const std::int64_t end = first_row + count;
  for (std::int64_t r = first_row; r < end;) {
    std::byte* const group = packed.memory.get() + r / kGroupRows * weights.group_bytes;
    std::int64_t done = 1;
    if (r % kGroupRows == 0) core::throw_if_cancelled();
    if (r % kGroupRows == 0 && end - r >= kGroupRows &&
        pack_group(packed, group, bytes, row_bytes)) {
      done = kGroupRows;
    } else {
      pack_row(packed.type, {weights, group, static_cast<std::size_t>(r % kGroupRows)},
               packed.columns, bytes);
    }
    r += done;
    bytes += static_cast<std::size_t>(done) * row_bytes;
  }
}

}  // namespace phasor::models
