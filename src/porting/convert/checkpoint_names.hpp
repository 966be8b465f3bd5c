// Which tensors of a checkpoint compute queries and keys, and the rows of each head in them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::porting {

// A projection [rows, width], its bias [rows], and the first row of each head. A fused tensor is both
// queries and keys, with different rows.
struct HeadRows {
  const io::Tensor* weight = nullptr;
  const io::Tensor* bias = nullptr;
  std::vector<std::int64_t> first_row;
};
// [head_dim], shared by all heads, or [heads * head_dim]; null: no norm.
struct HeadNorm {
  const io::Tensor* weight = nullptr;
  const io::Tensor* bias = nullptr;
};

// A layer that rotates.
struct AttentionLayer {
  std::int64_t index = 0;
  encodings::RopeSpec rope;
  HeadRows queries;
  HeadRows keys;  // none if the layer reads the keys of another one
  HeadNorm query_norm, key_norm;
  // Only if values rotate too: their rows, and the output projection [width, heads * head_dim].
  HeadRows values;
  const io::Tensor* output = nullptr;
};

struct AttentionTensors {
  std::vector<AttentionLayer> layers;  // ascending
  // Set if the names imply a layout that is not that of the config (Meta's own files).
  std::optional<core::PairLayout> layout_of_names;
};

enum class UnknownModel : std::uint8_t {
  refuse,
  read_as_llama,  // for reading only: try the usual names
};

// Sorts the tensors by the names in the table of families.
//
// refuses  a model_type whose order of heads is not known, or that has no rows to permute (latent
//          attention); an unknown tensor in an attention module (quantised ones among them); shapes that disagree with the config; types other than f64, f32, f16 and bf16
//          with UnknownModel::refuse; a layer that the config does not have, or that lacks its
//          tensors; keys that serve as values
[[nodiscard]] Result<AttentionTensors> find_attention(const config::ModelConfig& config,
                                                      std::span<const io::Tensor* const> tensors,
                                                      UnknownModel unknown);

[[nodiscard]] std::vector<const io::Tensor*> tensors_of(
    const io::SafetensorsCheckpoint& checkpoint);

// The heads [q | k | v] of one tensor whose bias may be null.
struct FusedHeads {
  HeadRows queries, keys;
};
[[nodiscard]] FusedHeads split_fused(const HeadRows& fused, std::int64_t heads,
                                     std::int64_t key_heads, std::int64_t head_dim);
[[nodiscard]] HeadRows consecutive_heads(const io::Tensor* weight, const io::Tensor* bias,
                                         std::int64_t heads, std::int64_t head_dim);

}  // namespace phasor::porting
