#include "phasor/core/internal/dispatch.hpp"

#include "phasor/core/internal/kernel_levels.hpp"

namespace phasor::core {
namespace kernels {
PHASOR_KERNEL_LEVELS
}  // namespace kernels

const kernels::Kernels& kernels_for(InstructionSet isa) {
  // A decode step takes a quarter of a microsecond: the usual choice must cost one load.
  static const kernels::Kernels& best = kernels::kernel_levels().of(InstructionSet::best);
  return isa == InstructionSet::best ? best : kernels::kernel_levels().of(isa);
}

}  // namespace phasor::core
