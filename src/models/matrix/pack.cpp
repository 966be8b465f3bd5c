#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

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

constexpr std::size_t kWordStride = 4 * kGroupRows;  // from a row's word to its next
constexpr int kBlockBytes = 32;                      // codes of a block, one a byte
using Codes = std::array<std::uint8_t, kBlockBytes>;

// Word `word` of lane `row`.
void put_word(std::byte* words, std::size_t word, const void* from) {
  std::memcpy(words + word * kWordStride, from, 4);
}

// One row's share of a group: where its halves and words go.
struct Row {
  const Weights& weights;
  std::byte* group;
  std::size_t row;  // inside the group

  [[nodiscard]] std::byte* head(std::int64_t unit) const {
    return group + unit * layout_of(weights.format).head_bytes;
  }
  // The unit's half number `index`, and the first of its words after `halves` of them.
  [[nodiscard]] std::byte* half(std::int64_t unit, std::size_t index) const {
    return head(unit) + (index * kGroupRows + row) * 2;
  }
  [[nodiscard]] std::byte* scale_words(std::int64_t unit, std::size_t halves) const {
    return head(unit) + halves * kGroupRows * 2 + row * 4;
  }
  [[nodiscard]] std::byte* codes(std::int64_t unit, std::int64_t block = 0,
                                 std::int64_t block_words = 0) const {
    return group + weights.head_bytes + unit * layout_of(weights.format).code_bytes +
           block * block_words * static_cast<std::int64_t>(kWordStride) +
           static_cast<std::int64_t>(row) * 4;
  }
};

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
  put_word(words, 4, &bits);
}

// Bits 8j + 2w and 8j + 2w + 1 of two words are the upper bits of column 16 half + 4w + j.
void put_upper_bits(std::byte* words, const Codes& codes) {
  for (unsigned half = 0; half < 2; ++half) {
    std::uint32_t bits = 0;
    for (unsigned c = 0; c < 16; ++c)
      bits |= (codes[16 * half + c] >> 4 & 3U) << (8 * (c % 4) + 2 * (c / 4));
    put_word(words, 4 + half, &bits);
  }
}

std::uint8_t byte_at(const std::byte* bytes, unsigned index) {
  return std::to_integer<std::uint8_t>(bytes[index]);
}

constexpr std::uint32_t kSigns = 0x80808080U;

// q8_0, q4_0, q4_1: the file's words as they are; q8_0 with the sign bits flipped.
void pack_words(const Row& to, std::int64_t unit, const std::byte* block, std::size_t halves,
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

void pack_q5(const Row& to, std::int64_t unit, const std::byte* block, std::size_t halves) {
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
  put_nibbles(to.codes(unit), codes);
  put_fifth_bits(to.codes(unit), codes);
}

// q4_k and q5_k: blocks 2i and 2i + 1 are the low and the high nibbles of 32 bytes; `fifth` holds
// bit `b` of every column's fifth bit in block b, null for q4_k.
void pack_super(const Row& to, std::int64_t unit, const std::byte* block, const std::byte* fifth,
                const std::byte* nibbles) {
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
    put_nibbles(words, codes);
    if (fifth != nullptr) put_fifth_bits(words, codes);
  }
}

// q6_k: src/io/gguf/dequantise.cpp describes the layout of the 256 columns.
void pack_q6_k(const Row& to, std::int64_t unit, const std::byte* block) {
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
    put_nibbles(to.codes(unit, b, 6), codes);
    put_upper_bits(to.codes(unit, b, 6), codes);
  }
}

void pack_block(const Row& to, std::int64_t unit, const std::byte* block) {
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
void pack_plain(const Row& to, std::int64_t columns, const std::byte* bytes) {
  std::byte* at = to.group + to.row * sizeof(Element);
  for (std::int64_t c = 0; c < columns; ++c, at += kGroupRows * sizeof(Element))
    std::memcpy(at, bytes + static_cast<std::size_t>(c) * sizeof(Element), sizeof(Element));
}
void pack_doubles(const Row& to, std::int64_t columns, const std::byte* bytes) {
  std::byte* at = to.group + to.row * sizeof(float);
  for (std::int64_t c = 0; c < columns; ++c, at += kGroupRows * sizeof(float)) {
    double value = 0;
    std::memcpy(&value, bytes + static_cast<std::size_t>(c) * sizeof(value), sizeof(value));
    const auto rounded = static_cast<float>(value);
    std::memcpy(at, &rounded, sizeof(rounded));
  }
}

// 16 bytes of a row.
using Words = std::uint32_t __attribute__((vector_size(16)));
using Shorts = std::uint16_t __attribute__((vector_size(16)));
template <class Element>
using Lanes = std::conditional_t<sizeof(Element) == 4, Words, Shorts>;

// (a0 b0 a1 b1 ...) of the first halves of a and b, and of the second.
Words zip_first(Words a, Words b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
Words zip_second(Words a, Words b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
Shorts zip_first(Shorts a, Shorts b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
Shorts zip_second(Shorts a, Shorts b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

// As many rows of 16 bytes as a row has elements, transposed: zipping row i with row i + half
// rotates the bits of (row, lane) by one. Index sequences, so that all rows stay in registers.
template <class Element>
struct Square {
  static constexpr std::size_t kSide = 16 / sizeof(Element);
  using All = std::make_index_sequence<kSide>;
  Lanes<Element> rows[kSide];

  template <std::size_t... I>
  void read(const std::byte* from, std::size_t row_bytes, std::index_sequence<I...> /*all*/) {
    (std::memcpy(&rows[I], from + I * row_bytes, 16), ...);
  }
  template <std::size_t... I>
  void write(std::byte* to, std::size_t row_bytes, std::index_sequence<I...> /*all*/) const {
    (std::memcpy(to + I * row_bytes, &rows[I], 16), ...);
  }
  template <std::size_t... I>
  [[nodiscard]] Square zipped(std::index_sequence<I...> /*all*/) const {
    return {{(I % 2 == 0 ? zip_first(rows[I / 2], rows[I / 2 + kSide / 2])
                         : zip_second(rows[I / 2], rows[I / 2 + kSide / 2]))...}};
  }
  template <std::size_t... I>
  void flip(Element bits, std::index_sequence<I...> /*all*/) {
    ((rows[I] ^= bits), ...);
  }
};
template <class Element>
void transpose(const std::byte* from, std::size_t from_bytes, std::byte* to, std::size_t to_bytes,
               Element flipped_bits) {
  Square<Element> square;
  constexpr typename Square<Element>::All all;
  square.read(from, from_bytes, all);
  square.flip(flipped_bits, all);
  for (std::size_t i = 1; i < Square<Element>::kSide; i *= 2) square = square.zipped(all);
  square.write(to, to_bytes, all);
}

// The 16 rows of a group at once, with the result of pack_row() for each.
template <class Element>
void pack_plain_group(std::byte* group, std::int64_t columns, const std::byte* bytes,
                      std::size_t row_bytes) {
  constexpr auto kSide = static_cast<std::int64_t>(Square<Element>::kSide);
  constexpr std::size_t kColumnBytes = kGroupRows * sizeof(Element);
  std::int64_t c = 0;
  for (; c + kSide <= columns; c += kSide) {
    for (std::int64_t r = 0; r < kGroupRows; r += kSide) {
      transpose<Element>(bytes + static_cast<std::size_t>(r) * row_bytes +
                             static_cast<std::size_t>(c) * sizeof(Element),
                         row_bytes,
                         group + static_cast<std::size_t>(c) * kColumnBytes +
                             static_cast<std::size_t>(r) * sizeof(Element),
                         kColumnBytes, 0);
    }
  }
  for (; c < columns; ++c) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(kGroupRows); ++r)
      std::memcpy(group + static_cast<std::size_t>(c) * kColumnBytes + r * sizeof(Element),
                  bytes + r * row_bytes + static_cast<std::size_t>(c) * sizeof(Element),
                  sizeof(Element));
  }
}
void pack_words_group(const Weights& weights, std::byte* group, const std::byte* bytes,
                      std::size_t row_bytes, std::size_t halves, std::size_t words,
                      std::uint32_t flipped_bits) {
  constexpr auto kRows = static_cast<std::size_t>(kGroupRows);
  const std::size_t block_bytes = 2 * halves + 4 * words;
  for (std::int64_t unit = 0; unit < weights.units; ++unit, bytes += block_bytes) {
    const Row to{weights, group, 0};
    for (std::size_t h = 0; h < halves; ++h) {
      for (std::size_t r = 0; r < kRows; ++r)
        std::memcpy(to.half(unit, h) + 2 * r, bytes + r * row_bytes + 2 * h, 2);
    }
    for (std::size_t w = 0; w < words; w += 4) {
      for (std::size_t r = 0; r < kRows; r += 4)
        transpose<std::uint32_t>(bytes + r * row_bytes + 2 * halves + 4 * w, row_bytes,
                                 to.codes(unit) + w * kWordStride + 4 * r, kWordStride,
                                 flipped_bits);
    }
  }
}
// False: this type is packed row by row.
bool pack_group(const Matrix::Packed& packed, std::byte* group, const std::byte* bytes,
                std::size_t row_bytes) {
  const auto words = [&](std::size_t halves, std::size_t count, std::uint32_t flipped_bits) {
    pack_words_group(packed.weights, group, bytes, row_bytes, halves, count, flipped_bits);
    return true;
  };
  switch (packed.type) {
    case TensorType::f32:
      pack_plain_group<std::uint32_t>(group, packed.columns, bytes, row_bytes);
      return true;
    case TensorType::f16:
    case TensorType::bf16:
      pack_plain_group<std::uint16_t>(group, packed.columns, bytes, row_bytes);
      return true;
    case TensorType::q8_0:
      return words(1, 8, kSigns);
    case TensorType::q4_0:
    case TensorType::iq4_nl:
      return words(1, 4, 0);
    case TensorType::q4_1:
      return words(2, 4, 0);
    default:
      return false;
  }
}

void pack_row(TensorType type, const Row& to, std::int64_t columns, const std::byte* bytes) {
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
  weights.head_bytes = rounded_up(weights.units * layout.head_bytes, 64);
  weights.group_bytes = rounded_up(weights.head_bytes + weights.units * layout.code_bytes, 64);
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
