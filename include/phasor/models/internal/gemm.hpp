// The interface to the GEMM library.
#pragma once

#include <cstdint>

#include "phasor/core/cpu.hpp"

namespace phasor::models {

// True when this build has a GEMM library.
[[nodiscard]] bool has_gemm() noexcept;

// A row-major matrix in a product, rows `stride` apart.
struct Operand {
  enum class Order : std::uint8_t { as_stored, transposed };
  const float* data = nullptr;
  std::int64_t stride = 0;
  Order order = Order::as_stored;
};
enum class Into : std::uint8_t { overwrite, add };

// c[m, n] = a[m, k] b[k, n], or c += a b, on the calling thread; a and b are those of the product, after
// their transposition. Rows of c are `c_stride` apart.
//
// The library uses one instruction set for the life of the process, that of the first call, and never
// AMX, which some virtual machines report but cannot run. A later call for a lower level uses the
// first one's.
//
// True when c is written, false when the library fails.
//
// throws   std::bad_alloc, also before the first call of the process and of a thread if there is
//          less memory than oneDNN and libgomp need for it: they would not survive that. c is then
//          unspecified, the next call works; on arm64 the library leaks its copy buffer of about 64 k
//          bytes
[[nodiscard]] bool gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Operand& a,
                        const Operand& b, float* c, std::int64_t c_stride, Into into,
                        core::InstructionSet isa);

}  // namespace phasor::models
