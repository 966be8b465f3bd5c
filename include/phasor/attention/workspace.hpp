// Memory that calls of attention use again.
#pragma once

#include <memory>

#include "phasor/export.h"

namespace phasor::attention {

struct CallMemory;
class SharedRows;

// Scratch of attend() and KVCache::attend, kept between calls: a call with the sizes of an earlier
// one allocates nothing, and KVCache::attend makes it large enough for the cache's whole capacity at
// once. Holds no results and no reference to an input. Used by one call at a time. A call that
// throws leaves it fit for the next.
class PHASOR_API AttentionWorkspace {
 public:
  AttentionWorkspace() noexcept;
  ~AttentionWorkspace();
  AttentionWorkspace(AttentionWorkspace&&) noexcept;
  AttentionWorkspace& operator=(AttentionWorkspace&&) noexcept;

  // Allocated on first use.
  //
  // throws   std::bad_alloc
  [[nodiscard]] CallMemory& memory();

 private:
  std::unique_ptr<CallMemory> memory_;
};

// Rows of cos and sin that the steps of a model share. Given to KVCache::append and, in
// AttentionOptions, to KVCache::attend: the rows of a step's tokens are computed once for the keys
// and queries of all layers that have the same rotary, since rows are found again by the values of
// rotary and positions. One object per sequence of a batch; used by one call at a time. A call that
// throws leaves it fit for the next.
class PHASOR_API StepRotations {
 public:
  StepRotations() noexcept;
  ~StepRotations();
  StepRotations(StepRotations&&) noexcept;
  StepRotations& operator=(StepRotations&&) noexcept;

  // Allocated on first use.
  //
  // throws   std::bad_alloc
  [[nodiscard]] SharedRows& rows();

 private:
  std::unique_ptr<SharedRows> rows_;
};

}  // namespace phasor::attention
