// phasor demo on several ranks.
#pragma once

#include "command_line.hpp"
#include "phasor/parallel/communicator.hpp"

namespace phasor::tools {

// Replaces the action of the verb `demo`. `all` must outlive the verbs.
void add_rank_demo(CommandLine& line, parallel::Communicator& all);

}  // namespace phasor::tools
