// Ways to move a large tensor through the caches. Which is the fastest depends on the CPU, so it is measured.
#pragma once

#include <cstdint>
#include <span>

#include "phasor/core/cpu.hpp"
#include "phasor/core/internal/measured_choice.hpp"

namespace phasor::core {

// Numbers do not depend on it.
struct Way {
  std::int64_t ahead = 0;    // bytes to prefetch ahead of the element being rotated; 0: none
  bool many_tokens = false;  // heads first: kManyTokens at once, not kFewTokens
};

// What the best way depends on, besides the CPU.
struct Traffic {
  std::int64_t bytes;    // read by the call
  std::int64_t element;  // bytes
  InstructionSet isa;    // as the caller gave it
  bool streams;          // writes past the caches
  bool heads_first;      // heads are further apart than tokens
};

struct Ways {
  std::span<const Way> ways;
  // The choice between them, shared by all calls of this kind; null: the first way.
  MeasuredChoice* choice = nullptr;
};

// The ways of such a call. A tensor that fits the L2 cache has one: without prefetching, few tokens.
[[nodiscard]] Ways ways_of(const Traffic& traffic);

}  // namespace phasor::core
