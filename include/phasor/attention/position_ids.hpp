// Position algebra: ids for packed batches, padded batches, and the splits of context-parallel
// attention.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "phasor/export.h"

namespace phasor::attention {

// Boundaries [0, l0, l0 + l1, ...] of packed sequences of these lengths.
//
// throws   Error(invalid_argument): a negative length; Error(out_of_range): a sum of 2^63 or more
[[nodiscard]] PHASOR_API std::vector<std::int64_t> boundaries_of(
    std::span<const std::int64_t> lengths);
// 0 .. l0-1, 0 .. l1-1, ...: each token's position inside its sequence, as in
// core::positions_packed.
//
// throws   Error(invalid_argument) unless boundaries begin with 0 and do not decrease
[[nodiscard]] PHASOR_API std::vector<std::int64_t> packed_ids(
    std::span<const std::int64_t> boundaries);
// Which sequence each token belongs to.
//
// throws   as packed_ids
[[nodiscard]] PHASOR_API std::vector<std::int64_t> sequence_of_tokens(
    std::span<const std::int64_t> boundaries);

enum class PaddingPolicy : std::uint8_t {
  count_tokens,  // decoders: padding gets 0, the first real token 0, then 1, 2, ... (Hugging Face)
  mark_padding,  // OPT: as count_tokens, but padding gets -1, the row before the first of a table
  count_slots,   // RoFormer: slots are numbered, padding included
};
// shape    mask, result [batch, tokens]; 0 is padding. `past` tokens, none of them padding, come
//          before the first column
// throws   Error(invalid_argument): batch < 1, past < 0; Error(shape_mismatch): a mask that is not
//          `batch` rows
[[nodiscard]] PHASOR_API std::vector<std::int64_t> padded_ids(std::span<const std::uint8_t> mask,
                                                              std::int64_t batch,
                                                              PaddingPolicy policy,
                                                              std::int64_t past = 0);

// How a sequence is cut between ranks.
enum class Split : std::uint8_t {
  contiguous,  // rank r has the r-th chunk of `ranks`: with a causal mask the last has the most work
  zigzag,      // of 2 ranks chunks, rank r has r and 2 ranks - 1 - r: causal work is equal
  striped,     // token t is on rank t mod ranks: causal work differs by `rank` keys a query
};
[[nodiscard]] PHASOR_API std::string_view name_of(Split split) noexcept;
// The tokens of one rank, ascending.
//
// throws   Error(invalid_argument): ranks outside [1, 2^31], rank outside [0, ranks), tokens
//          negative or not a multiple of ranks (zigzag: of 2 ranks)
[[nodiscard]] PHASOR_API std::vector<std::int64_t> split_ids(Split split, std::int64_t tokens,
                                                             std::int64_t rank, std::int64_t ranks);
// order[t] = the index of token t in the concatenated shards of all ranks: the inverse of split_ids.
//
// throws   as split_ids
[[nodiscard]] PHASOR_API std::vector<std::int64_t> gather_order(Split split, std::int64_t tokens,
                                                                std::int64_t ranks);

}  // namespace phasor::attention
