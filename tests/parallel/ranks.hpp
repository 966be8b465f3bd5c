// The ranks that run the tests of this program.
#pragma once

#include "phasor/parallel/communicator.hpp"

namespace phasor::parallel::tests {

// All ranks, with a patience of 20 s: a failed assertion on one rank ends the others' waits.
[[nodiscard]] Communicator& ranks();

}  // namespace phasor::parallel::tests
