// phasor VERB ...: exit 0 = done, 1 = the check found a difference, 2 = the request or the input is
// wrong. Started on several ranks of MPI, it becomes `phasor-mpi`, which alone is linked to MPI.
#include <new>

#include "commands.hpp"
#include "given_command.hpp"
#include "mpi_start.hpp"
#include "signals.hpp"

int main(int argc, char** argv) try {
  using namespace phasor::tools;
  if (const int ranks = ranks_of_mpirun(); ranks > 1) return become_phasor_mpi(ranks, argv);
  handle_signals();
  remember_command(argc, argv);
  CommandLine line;
  add_every_verb(line);
  return run(line, argc, argv);
} catch (const std::bad_alloc&) {
  return phasor::tools::out_of_memory("phasor");
}
