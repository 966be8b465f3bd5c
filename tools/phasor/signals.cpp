#include "signals.hpp"

#include <signal.h>

#include "phasor/io/internal/temporary_files.hpp"

namespace phasor::tools {
namespace {

// Only calls that a signal handler may make. The signal is blocked until the handler returns; then its
// default action ends the process, so that the caller sees which signal it was.
extern "C" void on_end(int number) {
  io::remove_temporary_files();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

}  // namespace

void handle_signals() noexcept {
  struct sigaction action = {};
  action.sa_handler = on_end;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction before = {};
    ::sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN || number == SIGPIPE) ::sigaction(number, &action, nullptr);
  }
  ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace phasor::tools
