#include "without_gil.hpp"

#include <pthread.h>

#include <atomic>
#include <utility>

namespace nb = nanobind;

namespace phasor::python {
namespace {

std::atomic<unsigned long> g_main_thread{0};
thread_local int t_unfinished = 0;

}  // namespace

void watch_main_thread() {
  g_main_thread = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  // The thread that forks is the main thread of the child.
  pthread_atfork(nullptr, nullptr, [] { g_main_thread = PyThread_get_thread_ident(); });
}

int unfinished_calls() noexcept { return t_unfinished; }
void count_unfinished_call() noexcept { ++t_unfinished; }

Interruption::~Interruption() {
  Py_XDECREF(type_);
  Py_XDECREF(value_);
  Py_XDECREF(trace_);
}

core::CancellationPoll Interruption::poll() noexcept {
  if (PyThread_get_thread_ident() != g_main_thread.load(std::memory_order_relaxed)) return {};
  return {&ask, this};
}

bool Interruption::ask(void* self) noexcept {
  const nb::gil_scoped_acquire acquired;
  // No other Python code may run here: it would run the handler too, and its exception would be lost.
  if (PyErr_CheckSignals() == 0) return false;
  auto& own = *static_cast<Interruption*>(self);
  PyErr_Fetch(&own.type_, &own.value_, &own.trace_);
  return true;
}

void Interruption::rethrow() {
  count_unfinished_call();
  PyErr_Restore(std::exchange(type_, nullptr), std::exchange(value_, nullptr),
                std::exchange(trace_, nullptr));
  throw nb::python_error();
}

}  // namespace phasor::python
