// Products of quantised weights compared with what a core can read and multiply.
#pragma once

#include <functional>

#include "core/rotary_bench.hpp"

namespace phasor::bench {

// The matrices of a model of 135 million parameters (30 layers of Q4_1, a head of Q8_0, 96 MB; made-up
// weights), one thread: one token compared with reading as many bytes, 512 tokens of one layer
// compared with the multiply-adds that they need.
void run_models_bench(const Plan& plan, const std::function<void(const Row&)>& done);

}  // namespace phasor::bench
