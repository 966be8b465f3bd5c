// Small arguments of numbers: positions, lengths, boundaries, padding.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>

#include "arrays.hpp"

namespace phasor::python {
namespace {

// Calls visit(value) for each element in row-major order, whatever the strides.
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

// Lists and tuples are read by NumPy; arrays stay as they are.
[[nodiscard]] nb::object as_array(nb::handle object, const char* where) {
  if (!PyList_Check(object.ptr()) && !PyTuple_Check(object.ptr()) && !PyRange_Check(object.ptr()))
    return nb::borrow(object);
  try {
    return nb::module_::import_("numpy").attr("asarray")(object);
  } catch (nb::python_error& error) {
    throw Error(ErrorCode::invalid_argument,
                message(where, " must be numbers in rows of one length, got: ",
                        nb::cast<std::string>(nb::str(error.value()))));
  }
}

}  // namespace

PositionsArgument::PositionsArgument(nb::handle object, const char* where) {
  if (object.is_none()) return;
  given_ = true;
  if (PyLong_CheckExact(object.ptr())) {
    int overflow = 0;
    const long long offset = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    if (overflow != 0) {
      throw Error(ErrorCode::out_of_range,
                  message(where, " must be below 2^53, got an integer that fits no 64 bits"));
    }
    positions_ = core::positions_from(offset);
    return;
  }
  keeper_ = as_array(object, where);
  array_.emplace(keeper_, where);
  if (array_->rank() < 1 || array_->rank() > 3) {
    throw Error(ErrorCode::shape_mismatch,
                message(where,
                        " must be None, an int, or an array [tokens], [batch, tokens] or "
                        "[axes, batch, tokens], got ",
                        array_->text()));
  }
  const std::span<const std::int64_t> shape = array_->shape();
  const std::int64_t tokens = shape.back();
  const std::int64_t batch = shape.size() >= 2 ? shape[shape.size() - 2] : 0;
  const std::int64_t axes = shape.size() == 3 ? shape[0] : 1;
  // In core::Positions a batch of 0 is one row for all.
  if (shape.size() >= 2 && batch == 0) {
    throw Error(ErrorCode::shape_mismatch,
                message(where, " must have a row for every batch row, or none for all alike, got ",
                        array_->text()));
  }
  if (axes > std::numeric_limits<int>::max()) {
    throw Error(ErrorCode::shape_mismatch,
                message(where, " must have few axes, got ", array_->text()));
  }
  const auto rows = [&](const auto* data) {
    if (shape.size() == 1)
      return core::positions_per_token({data, static_cast<std::size_t>(tokens)});
    return core::positions_per_row(data, static_cast<int>(axes), batch, tokens);
  };
  if (is_float(array_->element())) {
    if (array_->element() == Element::f64 && array_->dense()) {
      positions_ = rows(static_cast<const double*>(array_->data()));
      return;
    }
    floats_.reserve(static_cast<std::size_t>(array_->size()));
    walk(*array_, [&](auto value) { floats_.push_back(static_cast<double>(value)); });
    positions_ = rows(floats_.data());
    return;
  }
  if (array_->element() == Element::boolean) {
    throw Error(ErrorCode::unsupported,
                message(where, " must hold integers or floats, got ", array_->text()));
  }
  if (array_->element() == Element::i64 && array_->dense()) {
    positions_ = rows(static_cast<const std::int64_t*>(array_->data()));
    return;
  }
  integers_.reserve(static_cast<std::size_t>(array_->size()));
  walk(*array_, [&](auto value) { integers_.push_back(static_cast<std::int64_t>(value)); });
  positions_ = rows(integers_.data());
}

std::optional<double> PositionsArgument::largest(std::int64_t tokens) const {
  if (positions_.kind == core::Positions::Kind::offset) {
    if (tokens == 0) return std::nullopt;
    return static_cast<double>(positions_.offset) + static_cast<double>(tokens - 1);
  }
  const std::int64_t count =
      positions_.axes * std::max<std::int64_t>(positions_.batch, 1) * positions_.tokens;
  if (count == 0) return std::nullopt;
  if (positions_.integers != nullptr)
    return static_cast<double>(*std::max_element(positions_.integers, positions_.integers + count));
  return *std::max_element(positions_.floats, positions_.floats + count);
}

template <class T>
Numbers<T>::Numbers(nb::handle object, const char* where) {
  if (object.is_none()) return;
  keeper_ = as_array(object, where);
  array_.emplace(keeper_, where);
  if constexpr (!std::is_same_v<T, double>) {
    // NumPy takes an empty list for one of floats.
    if (is_float(array_->element()) && array_->size() > 0) {
      throw Error(ErrorCode::unsupported,
                  message(where, " must hold integers, got ", array_->text()));
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
          throw Error(ErrorCode::out_of_range,
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
    if (!numbers_->given())
      throw Error(ErrorCode::invalid_argument, message(where, " must be given, got None"));
    values = numbers_->get();
    shape.assign(numbers_->shape().begin(), numbers_->shape().end());
    return;
  }
  constexpr long long kMost = 1LL << 32;
  int overflow = 0;
  const long long count = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow != 0 || count < 0 || count > kMost) {
    throw Error(ErrorCode::out_of_range, message(where, " must count from 0 to 2^32 numbers, got ",
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
