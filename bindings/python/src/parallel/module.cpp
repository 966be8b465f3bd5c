// The module phasor._phasor_parallel: the part of the package that links MPI.
#include "parallel/communicator.hpp"
#include "without_gil.hpp"

NB_MODULE(_phasor_parallel, module) {
  using namespace phasor::python;
  // Its errors and the types of its arguments are those of _core.
  nb::module_::import_("phasor._core");
  module.doc() = "The compiled part of phasor.parallel.";
  nb::set_leak_warnings(false);
  watch_main_thread();
  add_communicator(module);
  add_shards(module);
  add_attention_plan(module);
  add_linear_plan(module);
}
