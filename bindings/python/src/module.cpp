// The module phasor._core.
#include "module.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "without_gil.hpp"

namespace nb = nanobind;

namespace phasor::python {
namespace {

constexpr core::EnumNames<ErrorCode::cancelled> kErrorCodes("invalid_argument", "shape_mismatch",
                                                            "out_of_range", "unsupported", "io",
                                                            "internal", "cancelled");

// phasor.Error: a ValueError with the C++ message and its ErrorCode as `code`.
void add_error(nb::module_& module) {
  static PyObject* type = nullptr;
  type = PyErr_NewExceptionWithDoc(
      "phasor.Error",
      "An invalid argument, file or config: a one-line message, and the kind of error in `code`.",
      PyExc_ValueError, nullptr);
  if (type == nullptr) throw nb::python_error();
  nb::setattr(type, "code", nb::str("invalid_argument"));
  module.attr("Error") = nb::handle(type);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      const nb::object value = nb::handle(type)(error.what());
      nb::setattr(value, "code", nb::str(kErrorCodes[error.code()].data()));
      PyErr_SetObject(type, value.ptr());
    }
  });
}

}  // namespace
}  // namespace phasor::python

NB_MODULE(_core, module) {
  using namespace phasor::python;
  module.doc() = "The compiled part of Phasor.";
  // Objects that live until the interpreter exits are not leaks.
  nb::set_leak_warnings(false);
  add_build_info(module);
  add_error(module);
  watch_main_thread();
  add_spec(module);
  add_rotate(module);
  add_encoding(module);
  add_attention(module);
  add_linear(module);
  add_cache(module);
  add_layout(module);
  add_porting(module);
  add_model(module);
  module.def(
      "instruction_sets",
      [] {
        std::vector<std::string> names;
        for (const phasor::core::InstructionSet isa : phasor::core::available_instruction_sets())
          names.emplace_back(phasor::core::name_of(isa));
        return names;
      },
      "The instruction sets of this build that this CPU supports, lowest first.");
}
