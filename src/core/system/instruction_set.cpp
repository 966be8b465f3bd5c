#include "phasor/core/cpu.hpp"

#if defined(PHASOR_X86_LEVELS)
#include <cpuid.h>
#endif

#include "phasor/core/error.hpp"
#include "phasor/core/internal/enum_names.hpp"

namespace phasor::core {
namespace {

constexpr EnumNames<InstructionSet::x86_64_v4> kLevels("best", "generic", "x86-64-v2", "x86-64-v3",
                                                       "x86-64-v4");

#if defined(PHASOR_X86_LEVELS)
// clang 14 has no name for it in __builtin_cpu_supports.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1U << 29)) != 0;
}
#endif

std::vector<InstructionSet> detect() {
  std::vector<InstructionSet> levels = {InstructionSet::generic};
#if defined(PHASOR_X86_LEVELS)
  __builtin_cpu_init();
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi2") && has_f16c();
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v2) levels.push_back(InstructionSet::x86_64_v2);
  if (v3) levels.push_back(InstructionSet::x86_64_v3);
  if (v4) levels.push_back(InstructionSet::x86_64_v4);
#endif
  return levels;
}

}  // namespace

std::string_view name_of(InstructionSet isa) noexcept { return kLevels[isa]; }

std::optional<InstructionSet> instruction_set_of(std::string_view name) noexcept {
  return kLevels.find(name);
}

const std::vector<InstructionSet>& available_instruction_sets() {
  static const std::vector<InstructionSet> levels = detect();
  return levels;
}

InstructionSet resolve_instruction_set(InstructionSet isa) {
  // Each level includes the ones below it, so the highest one gives them all.
  const InstructionSet highest = available_instruction_sets().back();
  if (isa == InstructionSet::best) return highest;
  if (isa <= highest) return isa;
  refuse(ErrorCode::unsupported,
         message("instruction set: ", name_of(isa), " is not available here, the highest is ",
                 name_of(highest)));
}

}  // namespace phasor::core
