// Linear attention over few tokens: runs of a plan against calls that make one each time.
#pragma once

#include <functional>

#include "attention/attention_bench.hpp"

namespace phasor::bench {

void run_linear_plan_bench(const AttentionPlan& plan, core::InstructionSet isa,
                           const std::function<void(const Row&)>& done);

}  // namespace phasor::bench
