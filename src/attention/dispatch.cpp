#include "attention/softmax/call.hpp"
#include "phasor/core/internal/kernel_levels.hpp"

namespace phasor::attention {
namespace kernels {
PHASOR_KERNEL_LEVELS
}  // namespace kernels

const kernels::Kernels& kernels_for(core::InstructionSet isa) {
  return kernels::kernel_levels().of(isa);
}

}  // namespace phasor::attention
