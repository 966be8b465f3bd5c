#include "phasor/attention/workspace.hpp"

#include "attention/softmax/call_memory.hpp"

namespace phasor::attention {

AttentionWorkspace::AttentionWorkspace() noexcept = default;
AttentionWorkspace::~AttentionWorkspace() = default;
AttentionWorkspace::AttentionWorkspace(AttentionWorkspace&&) noexcept = default;
AttentionWorkspace& AttentionWorkspace::operator=(AttentionWorkspace&&) noexcept = default;

CallMemory& AttentionWorkspace::memory() {
  if (memory_ == nullptr) memory_ = std::make_unique<CallMemory>();
  return *memory_;
}

}  // namespace phasor::attention
