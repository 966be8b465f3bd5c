// For wheels only (PHASOR_OLDER_GLIBC): two symbols that GCC 12 and glibc 2.36 bind to versions which are newer than those
// of RHEL 9 and its like (glibc 2.34, libstdc++ of GCC 11). The linker's --wrap sends calls here.
#include <pthread.h>

#include <condition_variable>
#include <exception>
#include <mutex>

extern "C" {

// glibc 2.35 has a second version that does not set errno; both compute the same.
double hypot_of_glibc_2_2_5(double x, double y);
__asm__(".symver hypot_of_glibc_2_2_5, hypot@GLIBC_2.2.5");
double __wrap_hypot(double x, double y) { return hypot_of_glibc_2_2_5(x, y); }

// std::condition_variable::wait, which GCC 12 versioned anew.
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(
    std::condition_variable* condition, std::unique_lock<std::mutex>* lock) {
  if (pthread_cond_wait(condition->native_handle(), lock->mutex()->native_handle()) != 0)
    std::terminate();
}
}
