#include "models/matrix/dispatch.hpp"

namespace phasor::models {
namespace kernels {
// One per build of kernels.cpp.
extern const Kernels kernels_generic;
#if defined(PHASOR_X86_LEVELS)
extern const Kernels kernels_x86_64_v2;
extern const Kernels kernels_x86_64_v3;
extern const Kernels kernels_x86_64_v4;
extern const Kernels kernels_x86_64_v4_vnni;
#endif
}  // namespace kernels

const kernels::Kernels& kernels_for(core::InstructionSet isa) {
  const core::InstructionSet level = isa == core::InstructionSet::best
                                         ? core::available_instruction_sets().back()
                                         : core::resolve_instruction_set(isa);
  switch (level) {
#if defined(PHASOR_X86_LEVELS)
    case core::InstructionSet::x86_64_v2:
      return kernels::kernels_x86_64_v2;
    case core::InstructionSet::x86_64_v3:
      return kernels::kernels_x86_64_v3;
    case core::InstructionSet::x86_64_v4:
      return __builtin_cpu_supports("avx512vnni") ? kernels::kernels_x86_64_v4_vnni
                                                  : kernels::kernels_x86_64_v4;
#endif
    default:
      return kernels::kernels_generic;
  }
}

}  // namespace phasor::models
