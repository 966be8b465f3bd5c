// Small number arguments: positions, lengths, boundaries, padding.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>

#include "arrays.hpp"

namespace phasor::python {
namespace {

// Calls visit(value) for each element in row-major order, for any strides.
template <class T, class Visit>
void walk(const Array& array, const Visit& visit) {
  if (array.size() == 0) return;
  std::array<std::int64_t, kMaxRank> index = {};
  const auto* const data = static_cast<const T*>(array.data());
  std::int64_t at = 0;
  const auto rank = static_cast<std::size_t>(array.rank());
  for (;;) {
    visit(data[at]);
    std::size_t axis = rank;
    for (;;) {
      if (axis == 0) return;
      --axis;
      at += array.strides()[axis];
      if (++index[axis] < array.shape()[axis]) break;
      at -= index[axis] * array.strides()[axis];
      index[axis] = 0;
    }
  }
}

template <class Visit>
void walk(const Array& array, const Visit& visit) {
  switch (array.element()) {
    case Element::f64:
      return walk<double>(array, visit);
    case Element::f32:
      return walk<float>(array, visit);
    case Element::f16:
      return walk<core::Half>(array, [&](core::Half value) { visit(core::to_float(value)); });
    case Element::bf16:
      return walk<core::BFloat16>(array,
                                  [&](core::BFloat16 value) { visit(core::to_float(value)); });
    case Element::i64:
      return walk<std::int64_t>(array, visit);
    case Element::i32:
      return walk<std::int32_t>(array, visit);
    case Element::u8:
    case Element::boolean:
      return walk<std::uint8_t>(array, visit);
  }
}

template <class T>
constexpr Element kElement = std::is_same_v<T, double>         ? Element::f64
                             : std::is_same_v<T, std::int64_t> ? Element::i64
                             : std::is_same_v<T, std::int32_t> ? Element::i32
                                                               : Element::u8;

[[nodiscard]] bool is_float(Element element) noexcept {
  return element == Element::f64 || element == Element::f32 || element == Element::f16 ||
         element == Element::bf16;
}

template <class T>
[[nodiscard]] std::vector<T> converted(const Array& array) {
  std::vector<T> numbers;
  numbers.reserve(static_cast<std::size_t>(array.size()));
  walk(array, [&](auto value) { numbers.push_back(static_cast<T>(value)); });
  return numbers;
}

// Lists, tuples and ranges are converted by NumPy; other objects are returned unchanged.
[[nodiscard]] nb::object as_array(nb::handle object, const char* where) {
  if (!PyList_Check(object.ptr()) && !PyTuple_Check(object.ptr()) && !PyRange_Check(object.ptr()))
    return nb::borrow(object);
  try {
    return nb::module_::import_("numpy").attr("asarray")(object);
  } catch (nb::python_error& error) {
    refuse(message(where, " must be a list of numbers, rows of equal length: ",
                   nb::cast<std::string>(nb::str(error.value()))));
  }
}

// An array that may be released without the GIL.
struct HeldArray {
  HeldArray(nb::handle given, const char* where) : object(as_array(given, where)) {
    array.emplace(object, where);
  }
  ~HeldArray() {
    const nb::gil_scoped_acquire acquired;  // also if it is held
    array.reset();
    object.reset();
  }
  HeldArray(const HeldArray&) = delete;
  HeldArray& operator=(const HeldArray&) = delete;

  nb::object object;
  std::optional<Array> array;
};

}  // namespace

std::optional<core::Positions> positions_of(nb::handle object, const char* where) {
  if (object.is_none()) return std::nullopt;
  if (PyLong_CheckExact(object.ptr())) {
    int overflow = 0;
    const long long offset = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    if (overflow != 0) {
      refuse(ErrorCode::out_of_range,
             message(where, " must be below 2^53, got ", nb::cast<std::string>(nb::str(object))));
    }
    return core::positions_from(offset);
  }
  const auto held = std::make_shared<const HeldArray>(object, where);
  const Array& array = *held->array;
  if (array.rank() < 1 || array.rank() > 3) {
    refuse(ErrorCode::shape_mismatch,
           message(where,
                   " must be None, an int, or an array [tokens], [batch, tokens] or "
                   "[axes, batch, tokens], got ",
                   array.text()));
  }
  if (array.element() == Element::boolean) {
    refuse(ErrorCode::unsupported,
           message(where, " must hold integers or floats, got ", array.text()));
  }
  const auto view = [&](const auto* numbers) {
    core::Positions positions = core::positions_of_shape(numbers, array.shape());
    positions.keeper = held;
    return positions;
  };
  if (array.dense() && array.element() == Element::f64)
    return view(static_cast<const double*>(array.data()));
  if (array.dense() && array.element() == Element::i64)
    return view(static_cast<const std::int64_t*>(array.data()));
  if (is_float(array.element()))
    return core::positions_of_shape(converted<double>(array), array.shape());
  return core::positions_of_shape(converted<std::int64_t>(array), array.shape());
}

template <class T>
Numbers<T>::Numbers(nb::handle object, const char* where) {
  if (object.is_none()) return;
  keeper_ = as_array(object, where);
  array_.emplace(keeper_, where);
  if constexpr (!std::is_same_v<T, double>) {
    // NumPy converts an empty list to float64.
    if (is_float(array_->element()) && array_->size() > 0) {
      refuse(ErrorCode::unsupported, message(where, " must hold integers, got ", array_->text()));
    }
  }
  const bool fits = array_->element() == kElement<T> ||
                    (std::is_same_v<T, std::uint8_t> && array_->element() == Element::boolean);
  if (fits && array_->dense()) {
    numbers_ = {static_cast<const T*>(array_->data()), static_cast<std::size_t>(array_->size())};
    return;
  }
  copy_.reserve(static_cast<std::size_t>(array_->size()));
  walk(*array_, [&](auto value) {
    if constexpr (std::is_same_v<T, std::uint8_t>) {
      copy_.push_back(value != 0 ? 1 : 0);
    } else {
      copy_.push_back(static_cast<T>(value));
      if constexpr (std::is_integral_v<T> && std::is_integral_v<decltype(value)>) {
        if (static_cast<decltype(value)>(copy_.back()) != value) {
          refuse(ErrorCode::out_of_range,
                 message(where, " must fit ", name_of(kElement<T>), ", got ", value));
        }
      }
    }
  });
  numbers_ = copy_;
}

template class Numbers<std::int64_t>;
template class Numbers<std::int32_t>;
template class Numbers<std::uint8_t>;
template class Numbers<double>;

template <class T>
Counted<T>::Counted(nb::handle object, const char* where) {
  if (!PyLong_CheckExact(object.ptr())) {
    numbers_.emplace(object, where);
    if (!numbers_->given()) refuse(message(where, " must be numbers or an int, got None"));
    values = numbers_->get();
    shape.assign(numbers_->shape().begin(), numbers_->shape().end());
    return;
  }
  constexpr long long kMost = 1LL << 32;
  int overflow = 0;
  const long long count = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow != 0 || count < 0 || count > kMost) {
    refuse(ErrorCode::out_of_range,
           message(where, " must be an int from 0 to 2^32 or an array, got ",
                   nb::cast<std::string>(nb::str(object))));
  }
  counted_.resize(static_cast<std::size_t>(count));
  std::iota(counted_.begin(), counted_.end(), T{0});
  values = counted_;
  shape = {count};
}

template class Counted<std::int64_t>;
template class Counted<double>;

}  // namespace phasor::python
