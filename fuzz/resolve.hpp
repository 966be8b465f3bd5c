// Resolves each RoPE of a parsed config at several contexts.
#pragma once

#include <optional>

#include "input.hpp"
#include "phasor/config/config.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::fuzz {

inline void resolve_each(const config::ModelConfig& config) {
  using Context = std::optional<std::int64_t>;
  for (const config::LayerGroup& group : config.groups) {
    if (!group.rope) continue;
    for (const Context context :
         {Context(), Context(1), Context(4096), Context(std::int64_t{1} << 40)}) {
      allow_refusal([&] { (void)encodings::resolve_frequencies(*group.rope, context); });
      allow_refusal([&] { (void)encodings::resolve(*group.rope, context); });
    }
  }
}

}  // namespace phasor::fuzz
