// Memory that calls of attention find again.
#pragma once

#include <memory>

#include "phasor/export.h"

namespace phasor::attention {

struct CallMemory;

// Scratch of attend() and KVCache::attend, kept between calls: a call like the last one then
// allocates nothing, and KVCache::attend makes it large enough for its whole capacity at once.
// Holds no results and no reference to an input. One call at a time for a workspace. A call that
// throws leaves it fit for the next.
class PHASOR_API AttentionWorkspace {
 public:
  AttentionWorkspace() noexcept;
  ~AttentionWorkspace();
  AttentionWorkspace(AttentionWorkspace&&) noexcept;
  AttentionWorkspace& operator=(AttentionWorkspace&&) noexcept;

  // Made when a call first asks.
  //
  // throws   std::bad_alloc
  [[nodiscard]] CallMemory& memory();

 private:
  std::unique_ptr<CallMemory> memory_;
};

}  // namespace phasor::attention
