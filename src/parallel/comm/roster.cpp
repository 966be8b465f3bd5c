#include "phasor/parallel/internal/roster.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <vector>

namespace phasor::parallel {
namespace {

// Written once, before the handler may run; never destroyed.
struct Roster {
  std::vector<pid_t> processes;  // by rank; 0: on another machine
  int rank = 0;
};
const Roster* roster = nullptr;

[[nodiscard]] bool is_gone(pid_t process) noexcept {
  return process != 0 && ::kill(process, 0) != 0 && errno == ESRCH;
}

void write_line(std::size_t rank) noexcept {
  char line[64] = "phasor: rank ";
  char* const number = line + std::strlen(line);
  char* end = std::to_chars(number, line + sizeof line, rank).ptr;
  constexpr char kRest[] = " has ended\n";
  std::memcpy(end, kRest, sizeof kRest - 1);
  end += sizeof kRest - 1;
  static_cast<void>(!::write(STDERR_FILENO, line, static_cast<std::size_t>(end - line)));
}

}  // namespace

void remember_processes(Communicator& ranks) {
  char machine[HOST_NAME_MAX + 1] = {};
  ::gethostname(machine, HOST_NAME_MAX);
  const std::vector<std::string> machines = ranks.gather(std::string_view(machine));
  const pid_t mine = ::getpid();
  auto* const made = new Roster;
  made->rank = ranks.rank();
  made->processes.resize(machines.size());
  ranks.gather(std::as_bytes(std::span(&mine, 1)),
               std::as_writable_bytes(std::span(made->processes)));
  for (std::size_t r = 0; r < machines.size(); ++r) {
    if (machines[r] != machine) made->processes[r] = 0;
  }
  roster = made;
}

void report_ended_rank() noexcept {
  if (roster == nullptr || roster->processes.size() < 2) return;
  const int error = errno;
  bool is_lowest = true;
  std::size_t ended = roster->processes.size();
  for (std::size_t r = 0; r < roster->processes.size(); ++r) {
    const pid_t process = roster->processes[r];
    if (is_gone(process)) {
      if (ended == roster->processes.size()) ended = r;
    } else if (process != 0 && r < static_cast<std::size_t>(roster->rank)) {
      is_lowest = false;
    }
  }
  if (is_lowest && ended < roster->processes.size()) write_line(ended);
  const timespec half_a_second{0, 500'000'000};
  ::nanosleep(&half_a_second, nullptr);
  errno = error;
}

}  // namespace phasor::parallel
