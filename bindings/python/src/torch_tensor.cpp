#include "torch_tensor.hpp"

#include <nanobind/stl/string.h>

#include "phasor/core/error.hpp"

namespace phasor::python {
namespace {

// torch.Tensor; nullptr if torch has not been imported.
[[nodiscard]] PyTypeObject* tensor_type() {
  static PyTypeObject* known = nullptr;
  if (known != nullptr) return known;
  static PyObject* const name = PyUnicode_InternFromString("torch");
  const nb::object module = nb::steal(PyImport_GetModule(name));
  if (!module.is_valid()) {
    PyErr_Clear();
    return nullptr;
  }
  nb::object tensor = nb::getattr(module, "Tensor", nb::none());
  if (PyType_Check(tensor.ptr()) == 0) return nullptr;
  known = reinterpret_cast<PyTypeObject*>(tensor.release().ptr());
  return known;
}

[[nodiscard]] std::string text_of(nb::handle object) {
  return nb::cast<std::string>(nb::str(object));
}

[[nodiscard]] bool is_true(nb::handle tensor, const char* attribute) {
  return nb::object(nb::getattr(tensor, attribute, nb::none())).is(nb::handle(Py_True));
}

[[nodiscard]] bool is_functorch(nb::handle tensor) {
  try {
    return nb::cast<bool>(
        nb::module_::import_("torch._C._functorch").attr("is_functorch_wrapped_tensor")(tensor));
  } catch (nb::python_error&) {
    return false;  // older versions have no such question
  }
}

[[nodiscard]] std::string what_is_wrong_with(nb::handle tensor) {
  const std::string device = text_of(tensor.attr("device"));
  if (device.rfind("cpu", 0) != 0) return message("on the CPU, got a tensor on ", device);
  const std::string layout = text_of(tensor.attr("layout"));
  if (is_true(tensor, "is_nested")) {
    return message("a dense tensor, got a nested one (", layout,
                   "): call to_padded_tensor() or unbind()");
  }
  if (layout != "torch.strided")
    return message("a dense tensor, got the layout ", layout, ": call to_dense()");
  if (is_true(tensor, "is_quantized")) {
    return message("a tensor of floats or integers, got a quantised one (",
                   text_of(tensor.attr("dtype")), "): call dequantize()");
  }
  if (is_functorch(tensor))
    return "a plain tensor, got one of torch.func (vmap, grad, jvp), which has no memory of its "
           "own";
  return message("a tensor with its numbers in memory, got a ",
                 text_of(tensor.type().attr("__name__")), " without");
}

}  // namespace

TorchType torch_type_of(PyTypeObject* type) {
  PyTypeObject* const tensor = tensor_type();
  if (tensor == nullptr || PyType_IsSubtype(type, tensor) == 0) return TorchType::none;
  constexpr char kDispatch[] = "__torch_dispatch__";
  const nb::object theirs = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(type)), kDispatch);
  const nb::object plain = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(tensor)), kDispatch);
  return theirs.equal(plain) ? TorchType::tensor : TorchType::wrapper;
}

void require_no_gradient(nb::handle tensor, const char* where) {
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  static const nb::handle forward = nb::module_::import_("torch.autograd.forward_ad").release();
  static PyObject* const level = PyUnicode_InternFromString("_current_level");
  const nb::object required = nb::steal(PyObject_GetAttr(tensor.ptr(), requires_grad));
  if (!required.is_valid()) throw nb::python_error();
  if (required.ptr() == Py_True) {
    refuse(ErrorCode::unsupported, message(where,
                                           " is a tensor that requires grad, and this function has "
                                           "no gradient: use phasor.torch"));
  }
  const nb::object current = nb::steal(PyObject_GetAttr(forward.ptr(), level));
  if (!current.is_valid()) PyErr_Clear();
  if (current.is_valid() && nb::cast<int>(current) < 0) return;
  if (!nb::object(forward.attr("unpack_dual")(tensor).attr("tangent")).is_none()) {
    refuse(ErrorCode::unsupported,
           message(where, " is a dual tensor, and this function has no forward gradient"));
  }
}

bool has_negative_bit(nb::handle tensor) {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  const nb::object answer = nb::steal(PyObject_CallMethodObjArgs(tensor.ptr(), name, nullptr));
  if (!answer.is_valid()) throw nb::python_error();
  return answer.ptr() == Py_True;
}

void refuse_tensor(nb::handle tensor, const char* where) {
  refuse(ErrorCode::unsupported, message(where, " must be ", what_is_wrong_with(tensor)));
}

void bump_version(nb::handle tensor) noexcept {
  try {
    static const nb::handle increment =
        nb::object(nb::module_::import_("torch.autograd.graph").attr("increment_version"))
            .release();
    increment(tensor);
  } catch (nb::python_error& error) {
    error.restore();
    PyErr_WriteUnraisable(tensor.ptr());
  }
}

}  // namespace phasor::python
