// Ways to move a large tensor through the caches. Which is the fastest depends on the CPU, so it is measured.
#pragma once

#include <cstdint>
#include <span>

#include "phasor/core/cpu.hpp"
#include "phasor/core/internal/measured_choice.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::core {

// How a tensor with heads before tokens is read: kFewTokens of a head after the other, kManyTokens of
// kHeadsTogether heads side by side, or kManyTokens of a head after the other.
enum class HeadsFirst : std::uint8_t { few_tokens, heads_together, head_by_head };

// Numbers do not depend on it.
struct Way {
  std::int64_t ahead = 0;  // bytes to prefetch ahead of the element being rotated; 0: none
  HeadsFirst run = HeadsFirst::few_tokens;
};

// What the best way depends on, besides the CPU.
struct Traffic {
  std::int64_t bytes;    // read by the call
  std::int64_t element;  // bytes
  InstructionSet isa;    // as the caller gave it
  bool streams;          // writes past the caches
  bool heads_first;      // heads are further apart than tokens
  PairLayout layout;     // half reads two places of a head
};

struct Ways {
  std::span<const Way> ways;
  // The choice between them, shared by all calls of this kind; null: the first way.
  MeasuredChoice* choice = nullptr;
};

// The ways of such a call. A tensor that fits the L2 cache has one: without prefetching, few tokens.
[[nodiscard]] Ways ways_of(const Traffic& traffic);

}  // namespace phasor::core
