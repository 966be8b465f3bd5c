// Which tensors of a checkpoint make queries and keys, and where each head's rows lie in them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/io/safetensors.hpp"
#include "phasor/io/tensor.hpp"

namespace phasor::porting {

// A projection [rows, width], its bias [rows], and the first row of each head. A fused tensor
// serves as queries and as keys, with other rows.
struct HeadRows {
  const io::Tensor* weight = nullptr;
  const io::Tensor* bias = nullptr;
  std::vector<std::int64_t> first_row;
};
// [head_dim] for every head alike, or head_dim numbers for each head; null when there is none.
struct HeadNorm {
  const io::Tensor* weight = nullptr;
  const io::Tensor* bias = nullptr;
};

// A layer that rotates.
struct AttentionLayer {
  std::int64_t index = 0;
  encodings::RopeSpec rope;
  HeadRows queries;
  HeadRows keys;  // none where a layer reads another one's keys
  HeadNorm query_norm, key_norm;
  // Only where values turn too: their rows, and the projection [width, heads * head_dim] that reads
  // them.
  HeadRows values;
  const io::Tensor* output = nullptr;
};

struct AttentionTensors {
  std::vector<AttentionLayer> layers;  // ascending
  // The layout that the names themselves stand for, where the config speaks of other weights.
  std::optional<core::PairLayout> layout_of_names;
};

enum class UnknownModel : std::uint8_t {
  refuse,
  read_as_llama,  // for a look that writes nothing: the names may still be the usual ones
};

// Sorts the tensors by the one table of names.
//
// refuses  a model_type whose order of heads is not known, or that has no rows to permute (latent
//          attention); a tensor beside the projections that is not known (quantised ones among
//          them); shapes that disagree with the config; types other than f64, f32, f16 and bf16
//          with UnknownModel::refuse; a layer that the config does not have, or that lacks its
//          tensors; keys that serve as values
[[nodiscard]] Result<AttentionTensors> find_attention(const config::ModelConfig& config,
                                                      std::span<const io::Tensor* const> tensors,
                                                      UnknownModel unknown);

[[nodiscard]] std::vector<const io::Tensor*> tensors_of(
    const io::SafetensorsCheckpoint& checkpoint);
// Gives back the pages of the maps, so that a look at many layers stays small.
void release_pages(const io::SafetensorsCheckpoint& checkpoint);

// The heads [q | k | v] of one tensor whose bias may be null.
struct FusedHeads {
  HeadRows queries, keys;
};
[[nodiscard]] FusedHeads split_fused(const HeadRows& fused, std::int64_t heads,
                                     std::int64_t key_heads, std::int64_t head_dim);
[[nodiscard]] HeadRows consecutive_heads(const io::Tensor* weight, const io::Tensor* bias,
                                         std::int64_t heads, std::int64_t head_dim);

}  // namespace phasor::porting
