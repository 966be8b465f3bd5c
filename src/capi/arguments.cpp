#include "capi/arguments.hpp"

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
  if (!empty) need(heads->data, where, message(what, ".data"));
  return {heads->data,         to_dtype(heads->dtype, where),
          heads->batch,        heads->tokens,
          heads->heads,        heads->head_dim,
          heads->batch_stride, heads->token_stride,
          heads->head_stride};
}

}  // namespace phasor::capi
