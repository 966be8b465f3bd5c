// Where the numbers of a row go inside its group; groups of 16 whole rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "models/matrix/packed.hpp"

namespace phasor::models {

inline constexpr std::size_t kWordStride =
    4 * kernels::kGroupRows;            // from a row's word to its next
inline constexpr int kBlockBytes = 32;  // codes of a block, one a byte

// Word `word` of lane `row`.
inline void put_word(std::byte* words, std::size_t word, const void* from) {
  std::memcpy(words + word * kWordStride, from, 4);
}

// One row's share of a group: where its halves and words go.
struct PackedRow {
  const kernels::Weights& weights;
  std::byte* group;
  std::size_t row;  // inside the group

  [[nodiscard]] std::byte* head(std::int64_t unit) const {
    return group + head_offset(layout_of(weights.format), unit);
  }
  // The unit's half number `index`, and the first of its words after `halves` of them.
  [[nodiscard]] std::byte* half(std::int64_t unit, std::size_t index) const {
    return head(unit) + (index * kernels::kGroupRows + row) * 2;
  }
  [[nodiscard]] std::byte* scale_words(std::int64_t unit, std::size_t halves) const {
    return head(unit) + halves * kernels::kGroupRows * 2 + row * 4;
  }
  [[nodiscard]] std::byte* codes(std::int64_t unit, std::int64_t block = 0,
                                 std::int64_t block_words = 0) const {
    return group + code_offset(layout_of(weights.format), unit) +
           block * block_words * static_cast<std::int64_t>(kWordStride) +
           static_cast<std::int64_t>(row) * 4;
  }
};

// Flipped in the codes of q8_0.
inline constexpr std::uint32_t kSigns = 0x80808080U;

// The 16 rows of a group at once, as pack_rows() writes them one by one. False: this type is packed row
// by row.
[[nodiscard]] bool pack_group(const Matrix::Packed& packed, std::byte* group,
                              const std::byte* bytes, std::size_t row_bytes);

}  // namespace phasor::models
