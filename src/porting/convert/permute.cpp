#include "porting/convert/permute.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace phasor::porting {
namespace {

using core::PairLayout;

class Moves {
 public:
  explicit Moves(HeadMap map) : map_(std::make_shared<const HeadMap>(std::move(map))) {}

  // A fused projection holds queries and keys: its tensor is one move.
  void rows(const HeadRows& heads) {
    add(heads.weight, row_bytes(heads.weight), heads.first_row);
    add(heads.bias, heads.bias == nullptr ? 0 : io::block_bytes(heads.bias->type), heads.first_row);
  }
  void norm(const HeadNorm& norm) {
    for (const io::Tensor* tensor : {norm.weight, norm.bias}) {
      if (tensor != nullptr) numbers(*tensor, tensor->size());
    }
  }
  void columns(const io::Tensor* tensor) {
    if (tensor != nullptr) numbers(*tensor, tensor->shape.back());
  }
  [[nodiscard]] std::vector<TensorMove> take() { return std::move(moves_); }

 private:
  [[nodiscard]] static std::size_t row_bytes(const io::Tensor* weight) {
    return weight == nullptr
               ? 0
               : static_cast<std::size_t>(weight->shape[1]) * io::block_bytes(weight->type);
  }
  [[nodiscard]] std::int64_t head_dim() const { return static_cast<std::int64_t>(map_->size()); }

  void add(const io::Tensor* tensor, std::size_t unit_bytes,
           const std::vector<std::int64_t>& first_row) {
    if (tensor == nullptr) return;
    TensorMove& move = of(*tensor, unit_bytes, tensor->shape[0] / head_dim());
    for (const std::int64_t row : first_row) {
      move.permuted.moves[static_cast<std::size_t>(row / head_dim())] = 1;
    }
  }
  void numbers(const io::Tensor& tensor, std::int64_t period) {
    std::vector<std::uint8_t>& moves =
        of(tensor, io::block_bytes(tensor.type), period / head_dim()).permuted.moves;
    std::fill(moves.begin(), moves.end(), std::uint8_t{1});
  }
  [[nodiscard]] TensorMove& of(const io::Tensor& tensor, std::size_t unit_bytes,
                               std::int64_t blocks) {
    for (TensorMove& move : moves_) {
      if (move.tensor == &tensor) return move;
    }
    return moves_.emplace_back(TensorMove{
        &tensor, PermutedTensor{tensor.name, unit_bytes, map_,
                                std::vector<std::uint8_t>(static_cast<std::size_t>(blocks), 0)}});
  }

  std::shared_ptr<const HeadMap> map_;
  std::vector<TensorMove> moves_;
};

}  // namespace

HeadMap head_map(const encodings::RopeSpec& rope, PairLayout from, PairLayout to) {
  HeadMap map(static_cast<std::size_t>(rope.head_dim));
  std::iota(map.begin(), map.end(), 0U);
  if (from == to) return map;
  const auto offset = static_cast<std::uint32_t>(rope.rotary_offset);
  const auto pairs = static_cast<std::uint32_t>(rope.rotary_dim / 2);
  for (std::uint32_t i = 0; i < pairs; ++i) {
    const std::uint32_t half[2] = {offset + i, offset + i + pairs};
    const std::uint32_t interleaved[2] = {offset + 2 * i, offset + 2 * i + 1};
    for (int member = 0; member < 2; ++member) {
      if (to == PairLayout::interleaved) {
        map[interleaved[member]] = half[member];
      } else {
        map[half[member]] = interleaved[member];
      }
    }
  }
  return map;
}

void permute_blocks(const PermutedTensor& tensor, std::uint64_t first_block,
                    std::span<const std::byte> in, std::span<std::byte> out) {
  const HeadMap& map = *tensor.map;
  const std::size_t block = tensor.block_bytes();
  const std::size_t unit = tensor.unit_bytes;
  for (std::size_t at = 0; at < in.size(); at += block, ++first_block) {
    const std::byte* const from = in.data() + at;
    std::byte* const to = out.data() + at;
    if (tensor.moves[first_block % tensor.moves.size()] == 0) {
      std::memcpy(to, from, block);
      continue;
    }
    for (std::size_t i = 0; i < map.size(); ++i) {
      std::memcpy(to + i * unit, from + map[i] * unit, unit);
    }
  }
}

std::vector<TensorMove> moves_of(const AttentionLayer& layer, PairLayout from, PairLayout to) {
  Moves moves(head_map(layer.rope, from, to));
  moves.rows(layer.queries);
  moves.rows(layer.keys);
  moves.rows(layer.values);
  moves.norm(layer.query_norm);
  moves.norm(layer.key_norm);
  moves.columns(layer.output);
  return moves.take();
}

}  // namespace phasor::porting
