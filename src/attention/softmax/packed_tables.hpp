// Tables with a row per distance, packed into columns as the kernels read them.
#pragma once

#include <cstdint>

#include "attention/softmax/call.hpp"
#include "attention/softmax/call_memory.hpp"

namespace phasor::attention {

enum class Pass : std::uint8_t { forward, backward };

// Sizes of rows and columns, padded for the kernels.
struct Strides {
  std::int64_t depth, content;  // of a row of content
  std::int64_t relative;        // of a row of head_dim
  std::int64_t value;
};
[[nodiscard]] Strides strides_of(const Call& call) noexcept;

// Floats of the bias of one head, or of its gradient.
[[nodiscard]] std::int64_t bias_floats(const Call& call) noexcept;

// Memory for the tables that all sequences and runs of a call share.
//
// throws   std::bad_alloc
void cut_tables(const Call& call, Pass pass, PackedTables& tables);
// Packs them, by up to `parts` threads. Forward: the workbenches of this many threads must exist.
void pack_tables(const Call& call, Pass pass, PackedTables& tables, std::int64_t parts);

// Memory for the tables of one query side that are not shared.
void cut_side_tables(const Call& call, Pass pass, const PackedTables& tables, SliceCutter& cutter,
                     QuerySide& side);
// Gives a query side the tables of a head: shared ones, or packed here. `chunk` has room for
// kTileKeys rows of content; it is not read in the backward pass.
void fill_tables(const Call& call, const PackedTables& tables, QuerySide& side, std::int64_t head,
                 float* chunk);

}  // namespace phasor::attention
