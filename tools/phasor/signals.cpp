#include "signals.hpp"

#include <signal.h>

#include <csignal>
#include <iterator>

#include "phasor/io/internal/temporary_files.hpp"

namespace phasor::tools {
namespace {

bool (*end_notice)() = nullptr;

// Only calls that a signal handler may make. The signal is blocked until the handler returns; then its
// default action ends the process, so that the caller sees which signal it was.
extern "C" void on_end(int number) {
  if (end_notice != nullptr) static_cast<void>(end_notice());
  io::remove_temporary_files();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

constexpr int kStops[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction before_stops[std::size(kStops)];
core::Cancellation stop_requested;
volatile std::sig_atomic_t stop_signal = 0;

extern "C" void on_stop(int number) {
  if (stop_signal != 0 || (end_notice != nullptr && end_notice())) on_end(number);
  stop_signal = number;
  stop_requested.request();
}

}  // namespace

StopOnSignal::StopOnSignal() noexcept {
  stop_signal = 0;
  stop_requested.reset();
  struct sigaction action = {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < std::size(kStops); ++i) {
    ::sigaction(kStops[i], nullptr, &before_stops[i]);
    if (before_stops[i].sa_handler != SIG_IGN) ::sigaction(kStops[i], &action, nullptr);
  }
}

StopOnSignal::~StopOnSignal() {
  for (std::size_t i = 0; i < std::size(kStops); ++i)
    ::sigaction(kStops[i], &before_stops[i], nullptr);
}

const core::Cancellation& StopOnSignal::cancellation() noexcept { return stop_requested; }
int StopOnSignal::signal() noexcept { return stop_signal; }

void set_end_notice(bool (*notice)()) noexcept { end_notice = notice; }

void end_by(int signal) noexcept { on_end(signal); }

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
