// Signals that end the command.
#pragma once

#include "phasor/core/cancellation.hpp"

namespace phasor::tools {

// Ctrl-C, SIGTERM, SIGHUP and a closed pipe end the command as they usually do, after its temporary files
// were removed; those that the caller ignores stay ignored, except for the closed pipe, which ends
// `phasor run | head` silently. A file that exceeds the limit of its size (ulimit -f) is a write error
// instead of SIGXFSZ.
void handle_signals() noexcept;

// While it lives, the first Ctrl-C, SIGTERM or SIGHUP requests a stop instead of ending the command, so
// that a verb can keep what it has; the second one ends it. Signals that the caller ignores stay ignored.
class StopOnSignal {
 public:
  StopOnSignal() noexcept;
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  // Requested by the signal.
  [[nodiscard]] static const core::Cancellation& cancellation() noexcept;
  // 0: none came.
  [[nodiscard]] static int signal() noexcept;
};

// Called first by the handlers, once a signal ends the command. `notice` makes only calls that a handler may
// make; it returns true if there is nothing left to finish, so that StopOnSignal ends the command at once.
void set_end_notice(bool (*notice)()) noexcept;

// Ends the command by the signal, as handle_signals() does.
void end_by(int signal) noexcept;

}  // namespace phasor::tools
