// Conversions of C arguments to the types of the C++ API. `where` names the function in messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "phasor/core/cpu.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "phasor/phasor.h"

namespace phasor::capi {

// throws   Error(invalid_argument): a number outside its list, negative threads, NULL for an
//          array that has elements
[[nodiscard]] core::DType to_dtype(phasor_dtype dtype, std::string_view where);
[[nodiscard]] core::InstructionSet to_isa(phasor_instruction_set isa, std::string_view where);
[[nodiscard]] int to_threads(std::int32_t threads, std::string_view where);
[[nodiscard]] core::HeadsView to_view(const phasor_heads* heads, std::string_view where,
                                      std::string_view what);

[[nodiscard]] core::AngleMode to_angles(phasor_angle_mode angles, std::string_view where);
// Views of the caller's memory.
[[nodiscard]] core::Positions positions_of(const phasor_positions* given, std::string_view where,
                                           std::string_view what);
[[nodiscard]] std::optional<core::Positions> optional_positions_of(const phasor_positions* given,
                                                                   std::string_view where,
                                                                   std::string_view what);
[[nodiscard]] core::CosSinRows to_rows(const phasor_cos_sin_rows* rows, std::string_view where,
                                       std::string_view what);

}  // namespace phasor::capi
