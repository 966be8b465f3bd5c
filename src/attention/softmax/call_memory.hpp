// What a call of softmax attention keeps while it runs, and finds again where it has a workspace.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/floats.hpp"
#include "phasor/attention/workspace.hpp"

namespace phasor::attention {

// Queries and keys that may meet: a batch row, or one packed sequence of batch row 0.
struct Sequence {
  std::int64_t batch = 0;
  std::int64_t first_query = 0, queries = 0;
  std::int64_t first_key = 0, keys = 0;  // keys that count
  std::int64_t offset = 0;               // position of query 0; the mask is aligned bottom-right
};

struct RotatorMemory {
  std::vector<double> ids;  // [axes][tokens of every batch row]
  Floats rows;              // of cos and sin
};

struct CallMemory {
  std::vector<Sequence> sequences;
  RotatorMemory queries, keys;
  std::vector<double> positions;  // of a cache's queries, where its rows do not lie as they should
  Floats few;                     // few_queries.cpp's, a piece for each thread
  // A cache's capacity: what grows with the keys is made for so many at once.
  std::int64_t room_for_keys = 0;
};

}  // namespace phasor::attention
