#include "models/matrix/dispatch.hpp"

#include "phasor/core/internal/kernel_levels.hpp"

namespace phasor::models {
namespace kernels {
PHASOR_KERNEL_LEVELS
#if defined(PHASOR_X86_LEVELS)
extern const Kernels kernels_x86_64_v4_vnni;
#endif
}  // namespace kernels

const kernels::Kernels& kernels_for(core::InstructionSet isa) {
  const kernels::Kernels& kernels = kernels::kernel_levels().of(isa);
#if defined(PHASOR_X86_LEVELS)
  if (&kernels == &kernels::kernels_x86_64_v4 && __builtin_cpu_supports("avx512vnni"))
    return kernels::kernels_x86_64_v4_vnni;
#endif
  return kernels;
}

}  // namespace phasor::models
