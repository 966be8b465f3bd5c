// New arrays, JSON and config arguments.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>

#include "arrays.hpp"
#include "phasor/core/internal/large_memory.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::python {
namespace {

// A module's function, looked up once and never freed.
template <const char* kModule, const char* kName>
[[nodiscard]] nb::handle function() {
  static PyObject* const found =
      nb::object(nb::module_::import_(kModule).attr(kName)).release().ptr();
  return found;
}
constexpr char kNumpy[] = "numpy", kEmpty[] = "empty", kEmptyLike[] = "empty_like",
               kTorch[] = "torch", kJson[] = "json", kLoads[] = "loads", kDumps[] = "dumps";

[[nodiscard]] nb::object tuple_of(std::span<const std::int64_t> shape) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(axis), PyLong_FromLongLong(shape[axis]));
  }
  return tuple;
}

[[nodiscard]] nb::object numpy_type(Element element, const char* where) {
  if (element != Element::bf16) return nb::cast(std::string(name_of(element)).c_str());
  try {
    return nb::module_::import_("ml_dtypes").attr("bfloat16");
  } catch (nb::python_error&) {
    refuse(ErrorCode::unsupported,
           message(where,
                   ": a bfloat16 NumPy array needs the package ml_dtypes: pip install ml_dtypes"));
  }
}

}  // namespace

std::string kind_of(nb::handle object) {
  return nb::cast<std::string>(nb::str(nb::object(object.type().attr("__name__"))));
}

bool is_mapping(nb::handle object) {
  return PyDict_Check(object.ptr()) ||
         (PyMapping_Check(object.ptr()) != 0 && PyObject_HasAttrString(object.ptr(), "keys") != 0);
}

std::string library_of(nb::handle object) {
  if (torch_type_of(Py_TYPE(object.ptr())) != TorchType::none) return "torch";
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  const auto module = nb::cast<std::string>(nb::str(nb::object(type.attr("__module__"))));
  const std::string library = module.substr(0, module.find('.'));
  return library == "jaxlib" ? "jax" : library;
}

void prefer_huge_pages(const Array& array) {
  core::prefer_huge_pages(array.writable(),
                          static_cast<std::size_t>(array.size()) * size_of(array.element()));
}

NewArray::NewArray(const Array& like, std::span<const std::int64_t> shape, const char* where) {
  // empty_like() of an axis with stride 0 may choose any order in memory.
  const bool same = std::ranges::equal(shape, like.shape()) &&
                    std::ranges::find(like.strides(), 0) == like.strides().end() && like.together();
  const std::string library = library_of(like.object());
  if (library == "torch") {
    object_ = same ? function<kTorch, kEmptyLike>()(like.object())
                   : like.object().attr("new_empty")(tuple_of(shape));
  } else if (library == "numpy" && PyObject_HasAttrString(like.object().ptr(), "dtype") != 0) {
    object_ = same ? function<kNumpy, kEmptyLike>()(like.object())
                   : function<kNumpy, kEmpty>()(tuple_of(shape), like.object().attr("dtype"));
  } else {
    object_ = function<kNumpy, kEmpty>()(tuple_of(shape), numpy_type(like.element(), where));
    to_jax_ = library == "jax";
  }
  array_.emplace(object_, where, Access::write);
  array_->tells_autograd_ = false;  // new: no graph refers to it
  if (library == "torch") prefer_huge_pages(*array_);
}

NewArray::NewArray(nb::handle like, Element element, std::span<const std::int64_t> shape,
                   const char* where) {
  const std::string library = library_of(like);
  if (library == "torch") {
    const nb::object dtype =
        nb::module_::import_("torch").attr(std::string(name_of(element)).c_str());
    object_ = like.attr("new_empty")(tuple_of(shape), nb::arg("dtype") = dtype);
  } else {
    object_ = numpy_empty(shape, element);
    to_jax_ = library == "jax" && element != Element::f64;  // which JAX rounds to float32
  }
  array_.emplace(object_, where, Access::write);
  array_->tells_autograd_ = false;
  if (library == "torch") prefer_huge_pages(*array_);
}

nb::object NewArray::finish() {
  array_.reset();
  if (to_jax_) return nb::module_::import_("jax.numpy").attr("asarray")(object_);
  return object_;
}

Output::Output(nb::handle out, const Array& like, std::span<const std::int64_t> shape,
               const char* where) {
  if (out.is_none()) {
    made_.emplace(like, shape, where);
    return;
  }
  given_.emplace(out, where, Access::write);
  if (!std::ranges::equal(given_->shape(), shape) || given_->element() != like.element()) {
    refuse(ErrorCode::shape_mismatch, message(where, " must be ", core::shape_text(shape), " ",
                                              name_of(like.element()), ", got ", given_->text()));
  }
}

nb::object Output::finish() { return given_ ? nb::borrow(given_->object()) : made_->finish(); }

namespace {

template <class T>
void copy_axes(const T* from, T* to, std::span<const std::int64_t> shape,
               std::span<const std::int64_t> from_strides,
               std::span<const std::int64_t> to_strides) {
  if (shape.empty()) {
    *to = *from;
    return;
  }
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    const T* source = from + i * from_strides[0];
    T* target = to + i * to_strides[0];
    if (shape.size() == 1) {
      *target = *source;
    } else {
      copy_axes(source, target, shape.subspan(1), from_strides.subspan(1), to_strides.subspan(1));
    }
  }
}

}  // namespace

void copy_elements(const Array& from, const Array& to) {
  const auto copy = [&]<class T>(T /*element*/) {
    copy_axes(static_cast<const T*>(from.data()), static_cast<T*>(to.writable()), from.shape(),
              from.strides(), to.strides());
  };
  switch (size_of(from.element())) {
    case 8:
      return copy(std::uint64_t{});
    case 4:
      return copy(std::uint32_t{});
    case 2:
      return copy(std::uint16_t{});
    default:
      return copy(std::uint8_t{});
  }
}

nb::object numpy_empty(std::span<const std::int64_t> shape, Element element) {
  return function<kNumpy, kEmpty>()(tuple_of(shape), numpy_type(element, "result"));
}

void* numpy_data(const nb::object& array) {
  return Array(array, "result", Access::write).writable();
}

nb::object from_json(const std::string& text) {
  return function<kJson, kLoads>()(nb::str(text.data(), text.size()));
}

std::string to_json(nb::handle object) {
  // Arrays are written as lists; another value without a JSON form, such as a torch dtype in a
  // config, as its str().
  const nb::object otherwise = nb::cpp_function([](nb::handle value) -> nb::object {
    if (nb::hasattr(value, "tolist")) return value.attr("tolist")();
    return nb::str(value);
  });
  return nb::cast<std::string>(function<kJson, kDumps>()(object, nb::arg("default") = otherwise));
}

ConfigArgument config_of(nb::handle object, const char* where) {
  if (nb::isinstance<nb::str>(object)) return {"", nb::cast<std::string>(object)};
  if (PyObject_HasAttrString(object.ptr(), "__fspath__") != 0)
    return {"", nb::cast<std::string>(nb::str(object))};
  if (PyObject_HasAttrString(object.ptr(), "to_dict") != 0)
    return {to_json(object.attr("to_dict")()), ""};
  if (is_mapping(object))
    return {to_json(nb::handle(reinterpret_cast<PyObject*>(&PyDict_Type))(object)), ""};
  refuse(message(where, " must be a dictionary, a path or an object with to_dict(), got ",
                 kind_of(object)));
}

}  // namespace phasor::python
