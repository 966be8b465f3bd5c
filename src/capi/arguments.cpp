#include "capi/arguments.hpp"

#include <algorithm>
#include <utility>

#include "capi/edge.hpp"

namespace phasor::capi {

core::DType to_dtype(phasor_dtype dtype, std::string_view where) {
  static_assert(static_cast<int>(core::DType::f64) == PHASOR_F64);
  static_assert(static_cast<int>(core::DType::f32) == PHASOR_F32);
  static_assert(static_cast<int>(core::DType::f16) == PHASOR_F16);
  static_assert(static_cast<int>(core::DType::bf16) == PHASOR_BF16);
  return choice(dtype, core::DType::bf16, where, "dtype");
}

core::InstructionSet to_isa(phasor_instruction_set isa, std::string_view where) {
  static_assert(static_cast<int>(core::InstructionSet::best) == PHASOR_ISA_BEST);
  static_assert(static_cast<int>(core::InstructionSet::x86_64_v2) == PHASOR_ISA_X86_64_V2);
  static_assert(static_cast<int>(core::InstructionSet::x86_64_v3) == PHASOR_ISA_X86_64_V3);
  static_assert(static_cast<int>(core::InstructionSet::x86_64_v4) == PHASOR_ISA_X86_64_V4);
  static_assert(static_cast<int>(core::InstructionSet::generic) == PHASOR_ISA_GENERIC);
  return choice(isa, core::InstructionSet::x86_64_v4, where, "isa");
}

int to_threads(std::int32_t threads, std::string_view where) {
  if (threads < 0) {
    throw Error(ErrorCode::invalid_argument,
                message(where, ": threads must not be negative, got ", threads));
  }
  return threads;
}

core::HeadsView to_view(const phasor_heads* heads, std::string_view where, std::string_view what) {
  need(heads, where, what);
  const bool empty =
      heads->batch <= 0 || heads->tokens <= 0 || heads->heads <= 0 || heads->head_dim <= 0;
  if (!empty) need(heads->data, where, what, ".data");
  return {heads->data,         to_dtype(heads->dtype, where),
          heads->batch,        heads->tokens,
          heads->heads,        heads->head_dim,
          heads->batch_stride, heads->token_stride,
          heads->head_stride};
}

core::AngleMode to_angles(phasor_angle_mode angles, std::string_view where) {
  static_assert(static_cast<int>(core::AngleMode::exact) == PHASOR_ANGLES_EXACT);
  static_assert(static_cast<int>(core::AngleMode::float32) == PHASOR_ANGLES_FLOAT32);
  return choice(angles, core::AngleMode::float32, where, "angles");
}

core::Positions positions_of(const phasor_positions* given, std::string_view where,
                             std::string_view what) {
  const phasor_positions from = take_struct(given, phasor_positions_from(0), where, what);
  using Kind = core::Positions::Kind;
  static_assert(static_cast<int>(Kind::offset) == PHASOR_POSITIONS_OFFSET);
  static_assert(static_cast<int>(Kind::integers) == PHASOR_POSITIONS_INTEGERS);
  static_assert(static_cast<int>(Kind::floats) == PHASOR_POSITIONS_FLOATS);
  static_assert(static_cast<int>(Kind::packed) == PHASOR_POSITIONS_PACKED);
  const Kind kind = choice(from.kind, Kind::packed, where, what, ".kind");
  for (const auto& [value, name] : {std::pair<std::int64_t, std::string_view>{from.axes, "axes"},
                                    {from.batch, "batch"},
                                    {from.tokens, "tokens"},
                                    {from.sequences, "sequences"}}) {
    if (value < 0)
      refuse(message(where, ": ", what, ".", name, " must not be negative, got ", value));
  }
  if (from.axes > core::kMaxAxes) {
    refuse(
        message(where, ": ", what, ".axes must be at most ", core::kMaxAxes, ", got ", from.axes));
  }
  const int axes = static_cast<int>(std::max<std::int64_t>(from.axes, 1));
  const auto tokens = static_cast<std::size_t>(from.tokens);
  switch (kind) {
    case Kind::integers:
      need_array(from.integers, tokens, where, what, ".integers");
      return core::positions_per_row(from.integers, axes, from.batch, from.tokens);
    case Kind::floats:
      need_array(from.floats, tokens, where, what, ".floats");
      return core::positions_per_row(from.floats, axes, from.batch, from.tokens);
    case Kind::packed:
      need(from.integers, where, what, ".integers");
      return core::positions_packed({from.integers, static_cast<std::size_t>(from.sequences) + 1},
                                    from.offset);
    case Kind::offset:
      break;
  }
  return core::positions_from(from.offset);
}

std::optional<core::Positions> optional_positions_of(const phasor_positions* given,
                                                     std::string_view where,
                                                     std::string_view what) {
  if (given == nullptr) return std::nullopt;
  return positions_of(given, where, what);
}

core::CosSinRows to_rows(const phasor_cos_sin_rows* rows, std::string_view where,
                         std::string_view what) {
  need(rows, where, what);
  need(rows->cos, where, what, ".cos");
  need(rows->sin, where, what, ".sin");
  return {.cos = rows->cos,
          .sin = rows->sin,
          .dtype = to_dtype(rows->dtype, where),
          .pairs = rows->pairs,
          .batch_stride = rows->batch_stride,
          .token_stride = rows->token_stride,
          .pair_stride = rows->pair_stride};
}

}  // namespace phasor::capi
