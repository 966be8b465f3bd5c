// The allocations of a test program, counted and, when asked, refused. allocations.cpp replaces
// operator new for the whole program, the library included.
#pragma once

#include <cstdint>

namespace phasor::test {

// Allocations by every thread since the program began.
[[nodiscard]] std::int64_t allocation_count() noexcept;

// Bytes that they asked for.
[[nodiscard]] std::int64_t allocated_bytes() noexcept;

// While it lives, allocation number `index` from now on (0: the next one), whichever thread asks,
// throws std::bad_alloc. The others succeed.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::int64_t index) noexcept;
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  [[nodiscard]] static bool has_failed() noexcept;
};

// Calls attempt() again and again, refusing its first allocation, then its second, and so on, until
// a call finds no allocation left to refuse; after each refusal calls check(). Returns how many
// calls met a refusal. attempt() must let std::bad_alloc out or handle it.
template <class Attempt, class Check>
std::int64_t fail_each_allocation(Attempt attempt, Check check) {
  for (std::int64_t index = 0;; ++index) {
    bool failed = false;
    {
      const FailingAllocation failing(index);
      attempt();
      failed = FailingAllocation::has_failed();
    }
    if (!failed) return index;
    check(index);
  }
}

}  // namespace phasor::test
