// The scope of cancellation in which a thread works.
#pragma once

#include "phasor/core/cancellation.hpp"

namespace phasor::core {

// While it lives, this thread works in the scope of the caller whose part it runs.
class AdoptedScope {
 public:
  explicit AdoptedScope(CancellationScope* scope) noexcept;
  ~AdoptedScope();
  AdoptedScope(const AdoptedScope&) = delete;
  AdoptedScope& operator=(const AdoptedScope&) = delete;

  // That of the calling thread; null: none.
  [[nodiscard]] static CancellationScope* current() noexcept;

 private:
  CancellationScope* before_;
};

}  // namespace phasor::core
