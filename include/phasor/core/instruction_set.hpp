// The instruction set levels that kernels are compiled for, and the one used on this CPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "phasor/export.h"

namespace phasor::core {

enum class InstructionSet : std::uint8_t {
  best,       // the highest level this CPU has
  generic,    // the compiler's baseline for the target
  x86_64_v2,  // SSE4.2
  x86_64_v3,  // AVX2, FMA, F16C
  x86_64_v4,  // AVX-512 F, BW, CD, DQ, VL
};

[[nodiscard]] PHASOR_API std::string_view name_of(InstructionSet isa) noexcept;
// The level of a name as name_of writes it ("x86-64-v3"); none for another.
[[nodiscard]] PHASOR_API std::optional<InstructionSet> instruction_set_of(
    std::string_view name) noexcept;
// The levels that this build has and this CPU can run, lowest first; never empty, never `best`.
[[nodiscard]] PHASOR_API const std::vector<InstructionSet>& available_instruction_sets();
// throws   Error(unsupported) for a level that this CPU or this build does not have
[[nodiscard]] PHASOR_API InstructionSet resolve_instruction_set(InstructionSet isa);

}  // namespace phasor::core
