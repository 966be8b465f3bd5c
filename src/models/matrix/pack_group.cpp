#include "models/matrix/pack_group.hpp"

#include <type_traits>
#include <utility>

namespace phasor::models {
namespace {

using io::TensorType;
using kernels::Format;
using kernels::kGroupRows;
using kernels::Weights;

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
Square<Element> transposed(Square<Element> square) {
  constexpr typename Square<Element>::All all;
  for (std::size_t i = 1; i < Square<Element>::kSide; i *= 2) square = square.zipped(all);
  return square;
}
template <class Element>
void transpose(const std::byte* from, std::size_t from_bytes, std::byte* to, std::size_t to_bytes,
               Element flipped_bits) {
  Square<Element> square;
  constexpr typename Square<Element>::All all;
  square.read(from, from_bytes, all);
  square.flip(flipped_bits, all);
  transposed(square).write(to, to_bytes, all);
}

// The 16 rows of a group at once.
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
    const PackedRow to{weights, group, 0};
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
// The types below have codes of more than a word's bits, or in another order. Four rows at a time:
// `bytes` are those of the first, `to` is that row's place.
using FourRows = Square<std::uint32_t>;
FourRows words_of(const std::byte* bytes, std::size_t row_bytes) {
  FourRows words;
  words.read(bytes, row_bytes, FourRows::All{});
  return transposed(words);
}
void write_words(std::byte* to, std::size_t word, Words words) {
  std::memcpy(to + word * kWordStride, &words, sizeof(words));
}

// Every second bit into the lower half of a word, the others into the upper half: bit number
// (b4 b3 b2 b1 b0) becomes (b0 b4 b3 b2 b1).
Words unshuffled(Words x) {
  const auto swap = [&x](int by, std::uint32_t mask) {
    const Words t = (x ^ (x >> by)) & mask;
    x ^= t ^ (t << by);
  };
  swap(1, 0x22222222U);
  swap(2, 0x0c0c0c0cU);
  swap(4, 0x00f000f0U);
  swap(8, 0x0000ff00U);
  return x;
}

// q5_0 and q5_1: the nibbles are the file's words; bit 4w + j of the word before them goes to 8j + w.
void pack_q5_rows(const std::byte* bytes, std::size_t row_bytes, std::byte* to) {
  words_of(bytes + 4, row_bytes).write(to + kWordStride, kWordStride, FourRows::All{});
  Words fifth;
  for (int r = 0; r < 4; ++r) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes + static_cast<std::size_t>(r) * row_bytes, sizeof(word));
    fifth[r] = word;
  }
  write_words(to, 0, unshuffled(unshuffled(fifth)));
}

// The low or high nibbles of 32 bytes as a block's four words.
void pack_nibble_rows(const std::byte* bytes, std::size_t row_bytes, unsigned high, std::byte* to) {
  constexpr std::uint32_t kLow = 0x0f0f0f0fU, kHigh = 0xf0f0f0f0U;
  const FourRows first = words_of(bytes, row_bytes), second = words_of(bytes + 16, row_bytes);
  for (std::size_t w = 0; w < 4; ++w) {
    const Words a = first.rows[w], b = second.rows[w];
    write_words(to, w, high == 0 ? (a & kLow) | (b & kLow) << 4 : (a >> 4 & kLow) | (b & kHigh));
  }
}
void pack_super_rows(const std::byte* block, std::size_t row_bytes, const std::byte* fifth,
                     const std::byte* nibbles, std::byte* scales, std::byte* codes) {
  for (std::size_t r = 0; r < 4; ++r) {
    for (std::size_t w = 0; w < 3; ++w)
      put_word(scales + 4 * r, w, block + r * row_bytes + 4 + 4 * w);
  }
  const std::size_t block_words = fifth == nullptr ? 4 : 5;
  for (unsigned b = 0; b < 8; ++b)
    pack_nibble_rows(nibbles + b / 2 * kBlockBytes, row_bytes, b % 2,
                     codes + (b * block_words + block_words - 4) * kWordStride);
  if (fifth == nullptr) return;
  const FourRows halves[] = {words_of(fifth, row_bytes), words_of(fifth + 16, row_bytes)};
  for (unsigned b = 0; b < 8; ++b) {
    Words bits{};
    for (unsigned w = 0; w < 8; ++w) bits |= (halves[w / 4].rows[w % 4] >> b & 0x01010101U) << w;
    write_words(codes + b * block_words * kWordStride, 0, bits);
  }
}
void pack_q6_k_rows(const std::byte* block, std::size_t row_bytes, std::byte* scales,
                    std::byte* codes) {
  words_of(block + 192, row_bytes).write(scales, kWordStride, FourRows::All{});
  for (unsigned b = 0; b < 8; ++b) {
    const unsigned quarter = b % 4;
    std::byte* const to = codes + b * 6 * kWordStride;
    pack_nibble_rows(block + b / 4 * 64 + quarter % 2 * kBlockBytes, row_bytes, quarter / 2,
                     to + 2 * kWordStride);
    for (std::size_t half = 0; half < 2; ++half) {
      const FourRows upper = words_of(block + 128 + b / 4 * kBlockBytes + 16 * half, row_bytes);
      Words bits{};
      for (unsigned w = 0; w < 4; ++w)
        bits |= (upper.rows[w] >> (2 * quarter) & 0x03030303U) << (2 * w);
      write_words(to, half, bits);
    }
  }
}
void pack_blocks_group(const Matrix::Packed& packed, std::byte* group, const std::byte* bytes,
                       std::size_t row_bytes) {
  const Weights& weights = packed.weights;
  const Format format = weights.format;
  const bool is_q6 = format == Format::q6_k;
  const std::size_t halves = is_q6 || format == Format::q5_0 ? 1 : 2;
  const std::size_t half_at = is_q6 ? 208 : 0;
  for (std::int64_t unit = 0; unit < weights.units; ++unit, bytes += io::block_bytes(packed.type)) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(kGroupRows); ++r) {
      for (std::size_t h = 0; h < halves; ++h)
        std::memcpy(PackedRow{weights, group, r}.half(unit, h),
                    bytes + r * row_bytes + half_at + 2 * h, 2);
    }
    for (std::size_t r = 0; r < static_cast<std::size_t>(kGroupRows); r += 4) {
      const PackedRow to{weights, group, r};
      const std::byte* const block = bytes + r * row_bytes;
      if (is_q6) {
        pack_q6_k_rows(block, row_bytes, to.scale_words(unit, 1), to.codes(unit));
      } else if (format == Format::q4_k) {
        pack_super_rows(block, row_bytes, nullptr, block + 16, to.scale_words(unit, 2),
                        to.codes(unit));
      } else if (format == Format::q5_k) {
        pack_super_rows(block, row_bytes, block + 16, block + 48, to.scale_words(unit, 2),
                        to.codes(unit));
      } else {
        pack_q5_rows(block + 2 * halves, row_bytes, to.codes(unit));
      }
    }
  }
}

}  // namespace

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
    case TensorType::q5_0:
    case TensorType::q5_1:
    case TensorType::q4_k:
    case TensorType::q5_k:
    case TensorType::q6_k:
      pack_blocks_group(packed, group, bytes, row_bytes);
      return true;
    default:
      return false;
  }
}

}  // namespace phasor::models
