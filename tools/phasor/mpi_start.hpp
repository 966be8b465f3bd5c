// `phasor` started by mpirun.
#pragma once

namespace phasor::tools {

// The number of ranks that mpirun started this program on, by its environment; 1 without mpirun.
[[nodiscard]] int ranks_of_mpirun() noexcept;

// Replaces this process by `phasor-mpi` from its own folder or ../libexec/phasor, with the same arguments.
// Returns only if there is none: then rank 0 has said so, and the exit code is returned.
[[nodiscard]] int become_phasor_mpi(int ranks, char** argv);

}  // namespace phasor::tools
