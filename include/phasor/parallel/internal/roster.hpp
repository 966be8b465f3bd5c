// The processes behind the ranks of this machine, for the signal handler of a program: when a rank has died, Open
// MPI ends the others by SIGTERM, and its own message is not shown with --quiet.
#pragma once

#include "phasor/parallel/communicator.hpp"

namespace phasor::parallel {

// Collective. Remembers the processes for report_ended_rank().
//
// throws   as Communicator::gather
void remember_processes(Communicator& ranks);

// Makes only calls that a signal handler may make. If the process of a rank on this machine is gone, the lowest of
// the ranks that are left writes `phasor: rank 2 has ended` to stderr. Every rank then stays for half a second, so
// that none takes another one that was just ended by SIGTERM for the first. Does nothing if there is one rank.
void report_ended_rank() noexcept;

}  // namespace phasor::parallel
