#include "phasor/models/internal/gemm.hpp"

#if defined(PHASOR_ONEDNN)
#include <dnnl.h>

#include <atomic>
#include <new>

#include "phasor/core/internal/large_memory.hpp"

// The library's own threads, if it was built with OpenMP: our rows are split over our threads.
// Weak, so that a build of the library with another runtime links too.
extern "C" {
__attribute__((weak)) void omp_set_num_threads(int threads);
__attribute__((weak)) int omp_get_max_threads(void);
}
#endif

namespace phasor::models {

#if defined(PHASOR_ONEDNN)
namespace {

// What the library needs to generate its code, which it does at its first call: 6 MB. It does not
// survive an allocation that fails there; later ones it reports.
constexpr std::size_t kFirstCallBytes = std::size_t{16} << 20;

bool choose_level(core::InstructionSet isa) {
  const core::InstructionSet level = core::resolve_instruction_set(isa);
  // This fails if the library was used before by other code; only the speed changes.
  static_cast<void>(
      dnnl_set_max_cpu_isa(level == core::InstructionSet::x86_64_v4   ? dnnl_cpu_isa_avx512_core
                           : level == core::InstructionSet::x86_64_v3 ? dnnl_cpu_isa_avx2
                                                                      : dnnl_cpu_isa_sse41));
  return true;
}

// Limits the library to one thread for calls from this thread, during its lifetime.
class OneThread {
 public:
  OneThread() {
    if (omp_set_num_threads == nullptr || omp_get_max_threads == nullptr) return;
    before_ = omp_get_max_threads();
    if (before_ == 1) return;
    // At a thread's first call libgomp allocates some hundred bytes, and exits if it cannot.
    thread_local bool allocated = false;
    if (!allocated) core::require_memory(kSmallestGrowth);
    omp_set_num_threads(1);
    allocated = true;
  }
  ~OneThread() {
    if (before_ > 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  // What malloc() asks the system for, at least, when its heap is full.
  static constexpr std::size_t kSmallestGrowth = std::size_t{1} << 20;

  int before_ = 1;
};

}  // namespace

bool has_gemm() noexcept { return true; }

bool gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Operand& a, const Operand& b,
          float* c, std::int64_t c_stride, Into into, core::InstructionSet isa) {
  static const bool chosen = choose_level(isa);
  static_cast<void>(chosen);
  const OneThread one;
  static std::atomic<bool> has_code{false};
  if (!has_code.load(std::memory_order_relaxed)) core::require_memory(kFirstCallBytes);
  const auto order = [](const Operand& operand) {
    return operand.order == Operand::Order::transposed ? 'T' : 'N';
  };
  const dnnl_status_t status =
      dnnl_sgemm(order(a), order(b), m, n, k, 1.0F, a.data, a.stride, b.data, b.stride,
                 into == Into::add ? 1.0F : 0.0F, c, c_stride);
  has_code.store(true, std::memory_order_relaxed);
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  return status == dnnl_success;
}
#else
bool has_gemm() noexcept { return false; }

bool gemm(std::int64_t /*m*/, std::int64_t /*n*/, std::int64_t /*k*/, const Operand& /*a*/,
          const Operand& /*b*/, float* /*c*/, std::int64_t /*c_stride*/, Into /*into*/,
          core::InstructionSet /*isa*/) {
  return false;
}
#endif

}  // namespace phasor::models
