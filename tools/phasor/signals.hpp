// Signals that end the command.
#pragma once

namespace phasor::tools {

// Ctrl-C, SIGTERM, SIGHUP and a closed pipe end the command as they usually do, after its temporary files
// were removed; those that the caller ignores stay ignored, except for the closed pipe, which ends
// `phasor run | head` silently. A file that exceeds the limit of its size (ulimit -f) is a write error
// instead of SIGXFSZ.
void handle_signals() noexcept;

}  // namespace phasor::tools
