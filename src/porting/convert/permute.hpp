// The order of a head's features in either layout, and tensors whose heads are put into the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "phasor/core/rotary.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/tensor.hpp"
#include "porting/convert/checkpoint_names.hpp"

namespace phasor::porting {

// For each feature of a head in layout `to`, the feature in layout `from` that it takes:
//
//   half i        <->  interleaved 2i        i < R/2, counted from rotary_offset
//   half i + R/2  <->  interleaved 2i + 1
//
// Features that do not turn stay.
using HeadMap = std::vector<std::uint32_t>;
[[nodiscard]] HeadMap head_map(const encodings::RopeSpec& rope, core::PairLayout from,
                               core::PairLayout to);

// A tensor cut into blocks of one head each; a head is head_dim units (rows, or single numbers),
// and in the blocks that move the units are put into the order of the map. The bytes stay as many
// and in the same place of the file.
struct PermutedTensor {
  std::string name;
  std::size_t unit_bytes = 0;
  std::shared_ptr<const HeadMap> map;
  // Whether block b moves: moves[b % moves.size()].
  std::vector<std::uint8_t> moves;

  [[nodiscard]] std::size_t block_bytes() const noexcept { return map->size() * unit_bytes; }
};

// Whole blocks, the first of them block `first_block` of the tensor.
void permute_blocks(const PermutedTensor& tensor, std::uint64_t first_block,
                    std::span<const std::byte> in, std::span<std::byte> out);

// Every tensor of a layer that must move, with its source.
struct TensorMove {
  const io::Tensor* tensor = nullptr;
  PermutedTensor permuted;
};
[[nodiscard]] std::vector<TensorMove> moves_of(const AttentionLayer& layer, core::PairLayout from,
                                               core::PairLayout to);

}  // namespace phasor::porting
