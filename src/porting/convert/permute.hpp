// Permutes the heads of tensors from one pair layout to the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/tensors.hpp"
#include "porting/convert/checkpoint_names.hpp"

namespace phasor::porting {

// For each feature of a head in layout `to`, the feature in layout `from` that it takes:
//
//   half i        <->  interleaved 2i        i < R/2, counted from rotary_offset
//   half i + R/2  <->  interleaved 2i + 1
//
// Features that are not rotated do not move.
using HeadMap = std::vector<std::uint32_t>;
[[nodiscard]] constexpr core::PairLayout other_layout(core::PairLayout layout) noexcept {
  return layout == core::PairLayout::half ? core::PairLayout::interleaved : core::PairLayout::half;
}
[[nodiscard]] HeadMap head_map(const encodings::RopeSpec& rope, core::PairLayout from,
                               core::PairLayout to);

// A tensor as blocks of one head each; a head is head_dim units (rows, or single numbers). In the
// blocks that move, the units are reordered by the map. Size and offset in the file do not change.
struct PermutedTensor {
  std::string name;
  std::size_t unit_bytes = 0;
  std::shared_ptr<const HeadMap> map;
  // Whether block b moves: moves[b % moves.size()].
  std::vector<std::uint8_t> moves;

  [[nodiscard]] std::size_t block_bytes() const noexcept { return map->size() * unit_bytes; }
};

// Permutes whole blocks; the first is block `first_block` of the tensor.
void permute_blocks(const PermutedTensor& tensor, std::uint64_t first_block,
                    std::span<const std::byte> in, std::span<std::byte> out);

// A tensor of a layer that must be permuted.
struct TensorMove {
  const io::Tensor* tensor = nullptr;
  PermutedTensor permuted;
};
[[nodiscard]] std::vector<TensorMove> moves_of(const AttentionLayer& layer, core::PairLayout from,
                                               core::PairLayout to);

}  // namespace phasor::porting
