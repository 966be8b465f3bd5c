// Unpacks the blocks of every type: eight words of codes, one or two scales, a minimum.
#pragma once

#include "models/kernels/dot.hpp"
#include "models/kernels/kernels.hpp"

namespace {

using phasor::models::kernels::code_offset;
using phasor::models::kernels::Format;
using phasor::models::kernels::head_offset;
using phasor::models::kernels::kBlock;
using phasor::models::kernels::kGroupRows;
using phasor::models::kernels::layout_of;
using phasor::models::kernels::Weights;

// Vectors of a group of 16 rows.
constexpr int kParts = static_cast<int>(kGroupRows) / kFloats;
constexpr int kWords = static_cast<int>(kBlock) / 4;  // of a block: word w is columns 4w to 4w + 3

// The rows of part p begin here in a vector of 32-bit words, and in one of halves.
constexpr std::int64_t word_offset(int part) { return part * kVectorBytes; }
constexpr std::int64_t half_offset(int part) { return part * kVectorBytes / 2; }

inline Float read_halves(const std::byte* at) {
  return F16::read(reinterpret_cast<const std::uint16_t*>(at));
}
inline Ints read_word(const std::byte* at, int word) {
  return load<Ints>(at + word * kGroupRows * 4);
}
// A negative `by` shifts to the left.
PHASOR_IN_PLACE Ints shifted_right(Ints x, int by) {
  const Bits bits = reinterpret_cast<Bits>(x);
  return reinterpret_cast<Ints>(by < 0 ? bits << static_cast<unsigned>(-by)
                                       : bits >> static_cast<unsigned>(by));
}

// Stored as nibbles that stand for bytes of a table.
constexpr int kTabled = 104;

// Codes of kBits, or kTabled; `at` is the block's first word at the part's lanes.
template <int kBits>
class BlockCodes {
 public:
  explicit BlockCodes(const std::byte* at) : at_(at + kUpper * kGroupRows * 4) {
    PHASOR_UNROLL
    for (int i = 0; i < kUpper; ++i) upper_[i] = in_register(read_word(at, i));
  }
  // Words w and w + 4, w < 4 a constant after unrolling: columns 4w and 16 + 4w, four of each.
  PHASOR_IN_PLACE void read(int w, Ints& low, Ints& high) const {
    if constexpr (kBits == 8) {
      low = in_register(read_word(at_, w));
      high = in_register(read_word(at_, w + 4));
      return;
    }
    const Ints both = in_register(read_word(at_, w));
    low = both & splat_int(0x0f0f0f0f);
    high = shifted_right(both, 4) & splat_int(0x0f0f0f0f);
    if constexpr (kBits == kTabled) {
      low = from_table(low);
      high = from_table(high);
    }
    if constexpr (kBits == 5) {  // bit 8j + w of the upper word is the fifth of column 4w + j
      low |= shifted_right(upper_[0], w - 4) & splat_int(0x10101010);
      high |= shifted_right(upper_[0], w) & splat_int(0x10101010);
    }
    if constexpr (kBits == 6) {  // bits 8j + 2w, 8j + 2w + 1 of the upper words
      low |= shifted_right(upper_[0], 2 * w - 4) & splat_int(0x30303030);
      high |= shifted_right(upper_[1], 2 * w - 4) & splat_int(0x30303030);
    }
  }

 private:
  static constexpr int kUpper =
      kBits == 5 || kBits == 6 ? kBits - 4 : 0;  // words before the nibbles
  const std::byte* at_;
  Ints upper_[2];
};

template <int kBits>
PHASOR_IN_PLACE void read_codes(const std::byte* at, Ints (&codes)[kWords]) {
  const BlockCodes<kBits> block(at);
  PHASOR_UNROLL
  for (int w = 0; w < kWords / 2; ++w) block.read(w, codes[w], codes[w + 4]);
}

// value = scale (code - kZero) + minimum. A type has a zero or minima, not both. kHalves = 2: a
// scale for each 16 columns.
template <int kBits_, int kZero_, bool kMinima_>
struct PlainFormat {  // a unit is a block
  static constexpr int kBits = kBits_, kStored = kBits, kZero = kZero_, kHalves = 1, kBlocks = 1;
  static constexpr bool kMinima = kMinima_;
  static constexpr std::int64_t kCodeBytes = (kBits == 8 ? 8 : kBits) * 64;
  static constexpr std::int64_t kHeadBytes = kMinima ? 64 : 32;
  static_assert(kBits != 6);

  struct Head {
    Float scale;
    Float low;
    [[nodiscard]] Float scale_of(int /*block*/, int /*half*/) const { return scale; }
    [[nodiscard]] Float minimum_of(int /*block*/) const { return low; }
  };
  static Head head(const std::byte* at, int part) {
    Head head{read_halves(at + half_offset(part)), Float{}};
    if constexpr (kMinima) head.low = read_halves(at + 32 + half_offset(part));
    return head;
  }
};

// Eight blocks share two halves; each has six bits of scale and six of minimum.
template <int kBits_>
struct SuperFormat {
  static constexpr int kBits = kBits_, kStored = kBits, kZero = 0, kHalves = 1, kBlocks = 8;
  static constexpr bool kMinima = true;
  static constexpr std::int64_t kCodeBytes = kBits * 64;
  static constexpr std::int64_t kHeadBytes = 64 + 3 * 64;

  struct Head {
    Float scale;
    Float low;
    Ints scales[2];  // a byte for each block
    Ints lows[2];
    [[nodiscard]] Float scale_of(int block, int /*half*/) const {
      return scale * to_float(shifted_right(scales[block / 4], block % 4 * 8) & splat_int(255));
    }
    [[nodiscard]] Float minimum_of(int block) const {
      return -(low * to_float(shifted_right(lows[block / 4], block % 4 * 8) & splat_int(255)));
    }
  };
  // The twelve bytes of a block, as the file has them: the scales of blocks 0 to 3 are the low six
  // bits of the first word's bytes, their minima those of the second's; blocks 4 to 7 have four
  // bits each in the third word and the upper two on top of the first and the second.
  static Head head(const std::byte* at, int part) {
    const std::byte* const words = at + 64 + word_offset(part);
    const Ints first = read_word(words, 0), second = read_word(words, 1),
               third = read_word(words, 2);
    const Ints six = splat_int(0x3f3f3f3f), four = splat_int(0x0f0f0f0f),
               upper = splat_int(0x30303030);
    return {read_halves(at + half_offset(part)),
            read_halves(at + 32 + half_offset(part)),
            {first & six, (third & four) | (shifted_right(first, 2) & upper)},
            {second & six, (shifted_right(third, 4) & four) | (shifted_right(second, 2) & upper)}};
  }
};

struct SixBits {
  static constexpr int kBits = 6, kStored = kBits, kZero = 32, kHalves = 2, kBlocks = 8;
  static constexpr bool kMinima = false;
  static constexpr std::int64_t kCodeBytes = 6 * 64;
  static constexpr std::int64_t kHeadBytes = 32 + 4 * 64;

  struct Head {
    Float scale;
    Ints scales[4];  // a signed byte for each 16 columns
    [[nodiscard]] Float scale_of(int block, int half) const {
      const int at = 2 * block + half;
      return scale * to_float((scales[at / 4] << (24 - at % 4 * 8)) >> 24);
    }
    [[nodiscard]] Float minimum_of(int /*block*/) const { return Float{}; }
  };
  static Head head(const std::byte* at, int part) {
    const std::byte* const words = at + 32 + word_offset(part);
    return {read_halves(at + half_offset(part)),
            {read_word(words, 0), read_word(words, 1), read_word(words, 2), read_word(words, 3)}};
  }
};

using Q8_0 = PlainFormat<8, 128, false>;  // stored with the sign bit flipped
using Q4_0 = PlainFormat<4, 8, false>;
struct IQ4_NL : PlainFormat<8, 128, false> {  // values plus 128, from the table of dot.hpp
  static constexpr int kStored = kTabled;
  static constexpr std::int64_t kCodeBytes = 256;
};
using Q4_1 = PlainFormat<4, 0, true>;
using Q5_0 = PlainFormat<5, 16, false>;
using Q5_1 = PlainFormat<5, 0, true>;
using Q4_K = SuperFormat<4>;
using Q5_K = SuperFormat<5>;
using Q6_K = SixBits;
static_assert(layout_of(Format::q6_k).code_bytes == 8 * Q6_K::kCodeBytes &&
              layout_of(Format::q6_k).head_bytes == Q6_K::kHeadBytes &&
              layout_of(Format::q5_k).code_bytes == 8 * Q5_K::kCodeBytes &&
              layout_of(Format::q5_1).code_bytes == Q5_1::kCodeBytes &&
              layout_of(Format::q8_0).code_bytes == Q8_0::kCodeBytes);

template <class Type>
constexpr phasor::models::kernels::Layout kLayout = {Type::kBlocks* kBlock, Type::kHeadBytes,
                                                     Type::kBlocks* Type::kCodeBytes};

// Calls `call` with an object of the weights' type.
template <class Call>
PHASOR_IN_PLACE void with_format(Format format, const Call& call) {
  switch (format) {
    case Format::q8_0:
      return call(Q8_0{});
    case Format::q4_0:
      return call(Q4_0{});
    case Format::q4_1:
      return call(Q4_1{});
    case Format::q5_0:
      return call(Q5_0{});
    case Format::q5_1:
      return call(Q5_1{});
    case Format::q4_k:
      return call(Q4_K{});
    case Format::q5_k:
      return call(Q5_K{});
    case Format::q6_k:
      return call(Q6_K{});
    case Format::iq4_nl:
      return call(IQ4_NL{});
    default:
      return;
  }
}
template <class Call>
PHASOR_IN_PLACE void with_storage(Format format, const Call& call) {
  if (format == Format::f32) call(F32{});
  if (format == Format::f16) call(F16{});
  if (format == Format::bf16) call(Bf16{});
}

}  // namespace
