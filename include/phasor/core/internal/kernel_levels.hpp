// The kernels of a room, one build per instruction set: each room's dispatch.cpp picks from them.
#pragma once

#include "phasor/core/cpu.hpp"

namespace phasor::core {

// The kernels of each level that this build has; null: the build does not have the level.
template <class Kernels>
struct KernelLevels {
  const Kernels* generic;
  const Kernels* x86_64_v2 = nullptr;
  const Kernels* x86_64_v3 = nullptr;
  const Kernels* x86_64_v4 = nullptr;

  // throws   Error(unsupported) for a level that this CPU or this build does not have
  [[nodiscard]] const Kernels& of(InstructionSet isa) const {
    switch (isa == InstructionSet::best ? available_instruction_sets().back()
                                        : resolve_instruction_set(isa)) {
      case InstructionSet::x86_64_v2:
        return *x86_64_v2;
      case InstructionSet::x86_64_v3:
        return *x86_64_v3;
      case InstructionSet::x86_64_v4:
        return *x86_64_v4;
      default:
        return *generic;
    }
  }
};

// Declares the kernels that a room's kernels.cpp defines, in its namespace `kernels`, and collects
// them as kernel_levels().
#if defined(PHASOR_X86_LEVELS)
#define PHASOR_KERNEL_LEVELS                                                                     \
  extern const Kernels kernels_generic, kernels_x86_64_v2, kernels_x86_64_v3, kernels_x86_64_v4; \
  [[nodiscard]] inline core::KernelLevels<Kernels> kernel_levels() noexcept {                    \
    return {&kernels_generic, &kernels_x86_64_v2, &kernels_x86_64_v3, &kernels_x86_64_v4};       \
  }
#else
#define PHASOR_KERNEL_LEVELS                                                  \
  extern const Kernels kernels_generic;                                       \
  [[nodiscard]] inline core::KernelLevels<Kernels> kernel_levels() noexcept { \
    return {&kernels_generic};                                                \
  }
#endif

}  // namespace phasor::core
