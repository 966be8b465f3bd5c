#include "phasor/core/internal/dispatch.hpp"

namespace phasor::core {
namespace kernels {
// One per build of kernels.cpp.
extern const Kernels kernels_generic;
#if defined(PHASOR_X86_LEVELS)
extern const Kernels kernels_x86_64_v2;
extern const Kernels kernels_x86_64_v3;
extern const Kernels kernels_x86_64_v4;
#endif
}  // namespace kernels

namespace {

const kernels::Kernels& kernels_of(InstructionSet level) noexcept {
  switch (level) {
#if defined(PHASOR_X86_LEVELS)
    case InstructionSet::x86_64_v2:
      return kernels::kernels_x86_64_v2;
    case InstructionSet::x86_64_v3:
      return kernels::kernels_x86_64_v3;
    case InstructionSet::x86_64_v4:
      return kernels::kernels_x86_64_v4;
#endif
    default:
      return kernels::kernels_generic;
  }
}

}  // namespace

const kernels::Kernels& kernels_for(InstructionSet isa) {
  // A decode step takes a quarter of a microsecond: the usual choice must cost one load.
  static const kernels::Kernels& best = kernels_of(available_instruction_sets().back());
  if (isa == InstructionSet::best) return best;
  return kernels_of(resolve_instruction_set(isa));
}

}  // namespace phasor::core
