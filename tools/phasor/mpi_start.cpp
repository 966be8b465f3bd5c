#include "mpi_start.hpp"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "command_line.hpp"
#include "output.hpp"

namespace phasor::tools {
namespace {

// The first of the variables that is a whole number.
int number_in(std::initializer_list<const char*> variables, int otherwise) noexcept {
  for (const char* const name : variables) {
    const char* const text = std::getenv(name);
    if (text == nullptr) continue;
    const std::string_view digits(text);
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc() && end == digits.data() + digits.size()) return value;
  }
  return otherwise;
}

}  // namespace

// Open MPI's, then that of MPICH and its relatives.
int ranks_of_mpirun() noexcept { return number_in({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1); }

int become_phasor_mpi(int ranks, char** argv) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    for (const char* const place : {"phasor-mpi", "../libexec/phasor/phasor-mpi"})
      ::execv((self.parent_path() / place).c_str(), argv);
  }
  if (number_in({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0) == 0)
    print_err(
        "phasor: started on {} ranks, but this phasor was built without MPI: cmake "
        "-DPHASOR_MPI=ON\n",
        ranks);
  return exit_code::wrong;
}

}  // namespace phasor::tools
