// The rotary core compared with the limits of the machine.
#pragma once

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
};

// Measures the rows one after another and passes each to `done`.
void run_rotary_bench(const Plan& plan, const std::function<void(const Row&)>& done);

}  // namespace phasor::bench
