// The rotary core compared with the limits of the machine.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/timing.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::bench {

struct Row {
  std::string name;      // op/layout/dtype/shape[/how]
  std::string against;   // the limit
  double at_most = 0.0;  // the largest ratio allowed; 0: none
  Contest contest;
  bool correct = true;  // the output agreed with the reference before anything was timed
};

struct Plan {
  std::vector<core::InstructionSet> levels;
  int rounds = 21;
  bool beyond_caches = true;  // the 512 MiB rows
  std::string only;           // measure the rows whose name contains this text
  // Set: rows are counted here, and none is measured.
  std::size_t* count = nullptr;
};

// Whether a row is to be measured; counts it if that is all that is wanted. `plan` has `only` and
// `count`.
template <class AnyPlan>
[[nodiscard]] bool wants_row(const AnyPlan& plan, const std::string& name) {
  if (name.find(plan.only) == std::string::npos) return false;
  if (plan.count == nullptr) return true;
  ++*plan.count;
  return false;
}

// Measures the rows one after another and passes each to `done`.
void run_rotary_bench(const Plan& plan, const std::function<void(const Row&)>& done);

}  // namespace phasor::bench
