// Decoding: a few queries over a cache; keys and values are read once, without packing.
#pragma once

#include "attention/softmax/call.hpp"

namespace phasor::attention {

// Whether the call has so few queries that packing the keys would cost more than it saves, and only
// terms that need no packed table.
[[nodiscard]] bool suits_few_queries(const Call& call, const AttentionExtras& extras) noexcept;
// Allocates the memory of attend_few_queries().
//
// throws   std::bad_alloc
void prepare_few_queries(const Call& call);
// precondition  suits_few_queries()
void attend_few_queries(const Call& call, core::HeadsView out, const AttentionExtras& extras);

}  // namespace phasor::attention
