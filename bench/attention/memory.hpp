// How much scratch memory a call takes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace phasor::bench {

// The most that the process held at any time during `work`, less what it held before, in bytes: the
// peak that Linux keeps (VmHWM), set back just before. None if the system does not report it.
//
// Free memory of the heap is given back first, or `work` could use it uncounted; pages that `work` is
// given must have been touched, or they would be counted as its own.
[[nodiscard]] std::optional<std::int64_t> peak_growth(const std::function<void()>& work);

}  // namespace phasor::bench
