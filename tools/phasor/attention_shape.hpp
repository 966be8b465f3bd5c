#pragma once

#include "phasor/core/view.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::tools {

// The shape that an encoding is resolved for, from queries, keys and values that agree.
[[nodiscard]] inline encodings::AttentionShape attention_shape(const core::ConstHeadsView& q,
                                                               const core::ConstHeadsView& k,
                                                               const core::ConstHeadsView& v) {
  encodings::AttentionShape shape;
  shape.heads = q.heads;
  shape.key_heads = k.heads;
  shape.head_dim = q.head_dim;
  shape.value_dim = v.head_dim;
  shape.query_tokens = q.tokens;
  shape.key_tokens = k.tokens;
  return shape;
}

}  // namespace phasor::tools
