#include "arrays.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string>

#include "dlpack.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "without_gil.hpp"

namespace phasor::python {
namespace {

constexpr std::string_view kKinds =
    "float16, bfloat16, float32, float64, int32, int64, uint8 or bool";

// The first line of an exception's text: torch appends the frames of its C++ stack.
[[nodiscard]] std::string line_of(const nb::python_error& error) {
  const auto text = nb::cast<std::string>(nb::str(error.value()));
  return text.substr(0, text.find('\n'));
}

// The same of the pending Python exception, which is cleared: callers get phasor.Error instead.
[[nodiscard]] std::string take_python_error() { return line_of(nb::python_error()); }

struct ElementFacts {
  std::string_view name;    // NumPy's
  std::uint8_t code, bits;  // DLPack's
};
// In the order of Element.
constexpr std::array<ElementFacts, 8> kElements = {{{"float64", kDlFloat, 64},
                                                    {"float32", kDlFloat, 32},
                                                    {"float16", kDlFloat, 16},
                                                    {"bfloat16", kDlBfloat, 16},
                                                    {"int64", kDlInt, 64},
                                                    {"int32", kDlInt, 32},
                                                    {"uint8", kDlUInt, 8},
                                                    {"bool", kDlBool, 8}}};
static_assert(static_cast<std::size_t>(Element::boolean) + 1 == kElements.size());

[[nodiscard]] const ElementFacts& element_facts(Element element) noexcept {
  return kElements[static_cast<std::size_t>(element)];
}

[[nodiscard]] std::optional<Element> element_of(DlType type) noexcept {
  if (type.lanes != 1) return std::nullopt;
  for (std::size_t i = 0; i < kElements.size(); ++i) {
    if (kElements[i].code == type.code && kElements[i].bits == type.bits)
      return static_cast<Element>(i);
  }
  return std::nullopt;
}

// One letter of the struct module, in this machine's byte order.
[[nodiscard]] std::optional<Element> element_of(const char* format, Py_ssize_t size) noexcept {
  if (format == nullptr) return size == 1 ? std::optional(Element::u8) : std::nullopt;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  switch (*format) {
    case 'd':
      return Element::f64;
    case 'f':
      return Element::f32;
    case 'e':
      return Element::f16;
    case 'B':
      return Element::u8;
    case '?':
      return Element::boolean;
    case 'i':
    case 'l':
    case 'q':
      if (size == 8) return Element::i64;
      if (size == 4) return Element::i32;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

[[nodiscard]] PyTypeObject* numpy_array_type() {
  static PyTypeObject* const type = reinterpret_cast<PyTypeObject*>(
      nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr());
  return type;
}

// What an array's type can do.
struct Producer {
  PyTypeObject* type = nullptr;
  // DLPack's function table; DLPack requires that it lives as long as the process.
  const DlExchange* table = nullptr;
  TorchType torch = TorchType::none;
};

// Cached for the last four types.
[[nodiscard]] Producer producer_of(PyTypeObject* type) {
  static std::array<Producer, 4> known;
  static std::size_t next = 0;
  for (const Producer& entry : known) {
    if (entry.type == type) return entry;
  }
  static PyObject* const name = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  PyObject* const capsule = PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name);
  const DlExchange* table = nullptr;
  if (capsule == nullptr) {
    PyErr_Clear();
  } else {
    table = static_cast<const DlExchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    Py_DECREF(capsule);
    if (table == nullptr) PyErr_Clear();
  }
  while (table != nullptr && table->version.major != kDlMajor) table = table->previous;
  if (table != nullptr && table->tensor_of == nullptr) table = nullptr;
  const Producer found{type, table, torch_type_of(type)};
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  Py_XDECREF(reinterpret_cast<PyObject*>(known[next].type));
  known[next] = found;
  next = (next + 1) % known.size();
  return found;
}

}  // namespace

std::string_view name_of(Element element) noexcept { return element_facts(element).name; }

std::size_t size_of(Element element) noexcept { return element_facts(element).bits / 8; }

std::int64_t Array::size() const noexcept {
  std::int64_t size = 1;
  for (const std::int64_t length : shape()) size *= length;
  return size;
}

bool Array::dense() const noexcept {
  std::int64_t stride = 1;
  for (int axis = rank_; axis-- > 0;) {
    const auto i = static_cast<std::size_t>(axis);
    if (shape_[i] != 1 && strides_[i] != stride) return size() == 0;
    stride *= shape_[i];
  }
  return true;
}

bool Array::together() const noexcept {
  const auto last = static_cast<std::size_t>(rank_ - 1);
  return rank_ == 0 || strides_[last] == 1 || shape_[last] <= 1 || size() == 0;
}

std::string Array::text() const {
  return message(core::shape_text(shape()), " ", name_of(element_));
}

Array::Array(nb::handle object, const char* where, Access access)
    : object_(object), where_(where), access_(access), exceptions_(std::uncaught_exceptions()) {
  try {
    PyTypeObject* const type = Py_TYPE(object.ptr());
    const int flags = access == Access::write ? PyBUF_RECORDS : PyBUF_RECORDS_RO;
    if (type == numpy_array_type()) {
      from_buffer(object, flags);
      return;
    }
    const Producer producer = producer_of(type);
    if (producer.torch != TorchType::none) object = from_torch(object, producer.torch);
    if (producer.table != nullptr) {
      from_exchange(object, *producer.table);
    } else if (PyObject_HasAttrString(object.ptr(), "__dlpack__") != 0) {
      from_dlpack(object);
    } else if (PyObject_CheckBuffer(object.ptr()) != 0) {
      from_buffer(object, flags);
    } else {
      refuse(ErrorCode::invalid_argument,
             message(where,
                     " must be an array (NumPy, torch, JAX, DLPack or the buffer protocol), got ",
                     kind_of(object)));
    }
  } catch (...) {
    let_go();
    throw;
  }
}

Array::~Array() {
  if (tells_autograd_) {
    // A call that was refused has written nothing; one that was interrupted may have.
    const bool refused = std::uncaught_exceptions() != exceptions_;
    if (!refused || unfinished_calls() != unfinished_) bump_version(object_);
  }
  let_go();
}

void Array::let_go() noexcept {
  if (holds_buffer_) PyBuffer_Release(&buffer_);
  holds_buffer_ = false;
}

nb::handle Array::from_torch(nb::handle tensor, TorchType type) {
  is_tensor_ = true;
  if (type == TorchType::wrapper) refuse_tensor(tensor, where_);
  require_no_gradient(tensor, where_);
  tells_autograd_ = access_ == Access::write;
  if (tells_autograd_) unfinished_ = unfinished_calls();
  if (!has_negative_bit(tensor)) return tensor;
  if (access_ == Access::write) {
    refuse(ErrorCode::unsupported,
           message(where_, " must not have torch's negative bit: write to a tensor of its own"));
  }
  resolved_ = tensor.attr("resolve_neg")();
  object_ = resolved_;
  return object_;
}

void Array::refuse_object(const std::string& why) const {
  if (is_tensor_) refuse_tensor(object_, where_);
  refuse(ErrorCode::unsupported, message(where_, " cannot be read through DLPack: ", why));
}

void Array::from_exchange(nb::handle object, const DlExchange& table) {
  DlTensor tensor;
  if (table.tensor_of(object.ptr(), &tensor) != 0) refuse_object(take_python_error());
  take(tensor);
}

void Array::take(const DlTensor& tensor) {
  if (tensor.device.type != kDlCpu) {
    if (is_tensor_) refuse_tensor(object_, where_);
    refuse(ErrorCode::unsupported,
           message(where_, " must be on the CPU, got DLPack device type ", tensor.device.type));
  }
  const std::optional<Element> element = element_of(tensor.type);
  if (!element) {
    refuse(ErrorCode::unsupported,
           message(where_, " must hold ", kKinds, ", got DLPack type code ", int{tensor.type.code},
                   " of ", int{tensor.type.bits}, " bits"));
  }
  if (tensor.rank > kMaxRank) {
    refuse(ErrorCode::shape_mismatch,
           message(where_, " must have at most ", kMaxRank, " axes, got ", tensor.rank));
  }
  element_ = *element;
  rank_ = tensor.rank;
  data_ = static_cast<char*>(tensor.data) + tensor.byte_offset;
  std::copy_n(tensor.shape, rank_, shape_.begin());
  if (tensor.data == nullptr && size() > 0) refuse_object("it has no memory");
  if (tensor.strides != nullptr) {
    std::copy_n(tensor.strides, rank_, strides_.begin());
    return;
  }
  std::int64_t stride = 1;
  for (int axis = rank_; axis-- > 0;) {
    strides_[static_cast<std::size_t>(axis)] = stride;
    stride *= shape_[static_cast<std::size_t>(axis)];
  }
}

void Array::from_buffer(nb::handle object, int flags) {
  std::optional<Element> element;
  // The buffer protocol has no name for ml_dtypes' bfloat16: it is read as uint16. The dtype is
  // remembered after the first failure.
  static PyObject* bfloat16 = nullptr;
  static PyObject* const dtype_name = PyUnicode_InternFromString("dtype");
  if (bfloat16 != nullptr && Py_TYPE(object.ptr()) == numpy_array_type()) {
    PyObject* const dtype = PyObject_GetAttr(object.ptr(), dtype_name);
    Py_XDECREF(dtype);
    if (dtype == bfloat16) {
      keeper_ = object.attr("view")("uint16");
      object = keeper_;
      element = Element::bf16;
    }
  }
  if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) {
    const std::string why = take_python_error();
    if (keeper_.is_valid() || Py_TYPE(object.ptr()) != numpy_array_type() ||
        nb::cast<std::string>(nb::str(nb::object(object.attr("dtype")))) != "bfloat16") {
      refuse(ErrorCode::unsupported,
             message(where_,
                     access_ == Access::write ? " must be writable: " : " cannot be read: ", why));
    }
    bfloat16 = nb::object(object.attr("dtype")).release().ptr();
    keeper_ = object.attr("view")("uint16");
    if (PyObject_GetBuffer(keeper_.ptr(), &buffer_, flags) != 0) {
      refuse(ErrorCode::unsupported, message(where_, " must be writable: ", take_python_error()));
    }
    element = Element::bf16;
  }
  holds_buffer_ = true;
  if (!element) element = element_of(buffer_.format, buffer_.itemsize);
  if (!element) {
    refuse(ErrorCode::unsupported, message(where_, " must hold ", kKinds,
                                           " in this machine's byte order, got buffer format '",
                                           buffer_.format == nullptr ? "" : buffer_.format, "'"));
  }
  if (buffer_.ndim > kMaxRank) {
    refuse(ErrorCode::shape_mismatch,
           message(where_, " must have at most ", kMaxRank, " axes, got ", buffer_.ndim));
  }
  element_ = *element;
  rank_ = buffer_.ndim;
  data_ = buffer_.buf;
  const auto bytes = static_cast<std::int64_t>(buffer_.itemsize);
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank_); ++axis) {
    shape_[axis] = buffer_.shape[axis];
    if (buffer_.strides[axis] % bytes != 0) {
      refuse(ErrorCode::unsupported,
             message(where_, " must have strides of whole elements, got ", buffer_.strides[axis],
                     " bytes for elements of ", bytes));
    }
    strides_[axis] = buffer_.strides[axis] / bytes;
  }
}

void Array::from_dlpack(nb::handle object) {
  // JAX's capsules do not set the read-only flag.
  if (access_ == Access::write && library_of(object) == "jax") {
    refuse(ErrorCode::unsupported,
           message(where_, " must be writable, got a JAX array, which is immutable"));
  }
  try {
    keeper_ = object.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& newer) {
    if (!newer.matches(PyExc_TypeError)) refuse_object(line_of(newer));
    try {
      keeper_ = object.attr("__dlpack__")();
    } catch (nb::python_error& error) {
      refuse_object(line_of(error));
    }
  }
  // The capsule is not renamed, so it stays the owner and frees the memory.
  if (PyCapsule_IsValid(keeper_.ptr(), "dltensor_versioned") != 0) {
    const auto* const managed = static_cast<const DlManagedVersioned*>(
        PyCapsule_GetPointer(keeper_.ptr(), "dltensor_versioned"));
    if (managed->version.major != kDlMajor) {
      refuse(ErrorCode::unsupported, message(where_, " must use DLPack version ", kDlMajor,
                                             ", got ", managed->version.major));
    }
    if (access_ == Access::write && (managed->flags & kDlReadOnly) != 0)
      refuse(ErrorCode::unsupported, message(where_, " must be writable, got a read-only array"));
    take(managed->tensor);
  } else if (PyCapsule_IsValid(keeper_.ptr(), "dltensor") != 0) {
    take(static_cast<const DlManaged*>(PyCapsule_GetPointer(keeper_.ptr(), "dltensor"))->tensor);
  } else {
    refuse(ErrorCode::invalid_argument,
           message(where_, ": __dlpack__() must return a DLPack capsule, got ", kind_of(keeper_)));
  }
}

core::DType float_type_of(const Array& array, std::string_view what) {
  switch (array.element()) {
    case Element::f64:
      return core::DType::f64;
    case Element::f32:
      return core::DType::f32;
    case Element::f16:
      return core::DType::f16;
    case Element::bf16:
      return core::DType::bf16;
    default:
      refuse(ErrorCode::unsupported,
             message(what.empty() ? std::string_view(array.where()) : what,
                     " must hold float16, bfloat16, float32 or float64, got ", array.text()));
  }
}

Order order_of(std::string_view name) {
  if (name == "tokens_first") return Order::tokens_first;
  if (name == "heads_first") return Order::heads_first;
  refuse(message("order must be tokens_first or heads_first, got ", name));
}

core::AngleMode angles_of(std::string_view name, const char* where) {
  if (name == "exact") return core::AngleMode::exact;
  if (name == "float32") return core::AngleMode::float32;
  refuse(message(where, ": angles must be exact or float32, got ", name));
}

namespace {

template <class View>
[[nodiscard]] View view_of(const Array& array, Order order, decltype(View::data) data) {
  const std::span<const std::int64_t> shape = array.shape(), strides = array.strides();
  if (array.rank() != 3 && array.rank() != 4) {
    refuse(ErrorCode::shape_mismatch,
           message(array.where(), " must be ",
                   order == Order::tokens_first
                       ? "[batch, tokens, heads, dim] or [tokens, heads, dim]"
                       : "[batch, heads, tokens, dim] or [heads, tokens, dim]",
                   ", got ", array.text()));
  }
  View view;
  view.dtype = float_type_of(array);
  const std::size_t first = array.rank() == 4 ? 1 : 0;
  const std::size_t tokens = first + (order == Order::tokens_first ? 0 : 1);
  const std::size_t heads = first + (order == Order::tokens_first ? 1 : 0);
  view.data = data;
  view.batch = first == 1 ? shape[0] : 1;
  view.batch_stride = first == 1 ? strides[0] : 0;
  view.tokens = shape[tokens];
  view.token_stride = strides[tokens];
  view.heads = shape[heads];
  view.head_stride = strides[heads];
  view.head_dim = shape[first + 2];
  if (!array.together()) {
    refuse(ErrorCode::unsupported,
           message(array.where(), " must be contiguous along the last axis, got a stride of ",
                   strides[first + 2], " elements: make a contiguous copy first"));
  }
  return view;
}

}  // namespace

core::ConstHeadsView heads_of(const Array& array, Order order) {
  return view_of<core::ConstHeadsView>(array, order, array.data());
}

core::HeadsView writable_heads_of(const Array& array, Order order) {
  return view_of<core::HeadsView>(array, order, array.writable());
}

}  // namespace phasor::python
