// phasor.build_info: the version, and what this build was made with and without.
#include "module.hpp"

namespace nb = nanobind;

namespace phasor::python {

void add_build_info(nb::module_& module) {
  module.attr("__version__") = PHASOR_VERSION;
  module.def(
      "build_info",
      [] {
        nb::dict info;
        info["version"] = PHASOR_VERSION;
        info["compiler"] = __VERSION__;
#if defined(Py_LIMITED_API)
        info["limited_api"] = true;
#else
        info["limited_api"] = false;
#endif
        info["command"] = PHASOR_HAS_COMMAND != 0;
        info["mpi"] = PHASOR_HAS_MPI != 0;
        info["onednn"] = PHASOR_HAS_ONEDNN != 0;
        info["sentencepiece"] = PHASOR_HAS_SENTENCEPIECE != 0;
        info["zlib"] = PHASOR_HAS_ZLIB != 0;
        return info;
      },
      "The version, the compiler, and which optional parts this build has: True or False each.");
}

}  // namespace phasor::python
