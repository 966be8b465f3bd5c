// Arrays at the edge of Python: NumPy, torch, JAX, DLPack and the buffer protocol, where they lie.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"

namespace phasor::python {

namespace nb = nanobind;

inline constexpr int kMaxRank = 8;

enum class Element : std::uint8_t { f64, f32, f16, bf16, i64, i32, u8, boolean };
[[nodiscard]] std::string_view name_of(Element element) noexcept;  // as NumPy writes it
[[nodiscard]] std::size_t size_of(Element element) noexcept;

enum class Access : std::uint8_t { read, write };

// The name of an object's type, for messages.
[[nodiscard]] std::string kind_of(nb::handle object);
[[nodiscard]] bool is_mapping(nb::handle object);
// "[2, 5, 64]", for messages.
[[nodiscard]] std::string text_of(std::span<const std::int64_t> shape);

// The library that an array's type comes from: "numpy", "torch", "jax", ...
[[nodiscard]] std::string library_of(nb::handle object);

// An array argument, held for the length of one call: nothing is copied.
//
// `where` names the argument in messages, as in "rotate: x", and must outlive the Array. Holding and
// letting go need the GIL; reading the members does not.
//
// throws   Error(invalid_argument | unsupported) for what is no array on the CPU, an element type that
//          Phasor does not have, a torch tensor that requires grad, a read-only array to write to
class Array {
 public:
  Array(nb::handle object, const char* where, Access access = Access::read);
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  [[nodiscard]] const void* data() const noexcept { return data_; }
  // precondition  Access::write
  [[nodiscard]] void* writable() const noexcept { return data_; }
  [[nodiscard]] Element element() const noexcept { return element_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] std::span<const std::int64_t> shape() const noexcept {
    return {shape_.data(), static_cast<std::size_t>(rank_)};
  }
  // Counted in elements.
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept {
    return {strides_.data(), static_cast<std::size_t>(rank_)};
  }
  [[nodiscard]] std::int64_t size() const noexcept;
  // Row-major without gaps.
  [[nodiscard]] bool dense() const noexcept;
  // The elements of the last axis lie next to each other.
  [[nodiscard]] bool together() const noexcept;
  [[nodiscard]] const char* where() const noexcept { return where_; }
  [[nodiscard]] nb::handle object() const noexcept { return object_; }
  // "[2, 5, 4, 64] float32", for messages.
  [[nodiscard]] std::string text() const;

 private:
  friend class NewArray;
  bool from_exchange(nb::handle object);
  void from_buffer(nb::handle object, int flags);
  void from_dlpack(nb::handle object);
  void take(const struct DlTensor& tensor);
  void let_go() noexcept;

  nb::handle object_;
  const char* where_;
  Access access_;
  void* data_ = nullptr;
  Element element_ = Element::f32;
  int rank_ = 0;
  std::array<std::int64_t, kMaxRank> shape_ = {}, strides_ = {};
  Py_buffer buffer_ = {};
  bool holds_buffer_ = false;
  nb::object keeper_;  // the DLPack capsule, or NumPy's view of bfloat16 as integers
};

// A new array of the kind of another: NumPy for NumPy, buffers and unknown kinds, torch for torch,
// JAX for JAX.
class NewArray {
 public:
  // With the shape of `like` its order in memory is kept, if that has the last axis together; else it is
  // row-major.
  NewArray(const Array& like, std::span<const std::int64_t> shape, const char* where);
  [[nodiscard]] const Array& array() const noexcept { return *array_; }
  // The Python object, once it is written.
  [[nodiscard]] nb::object finish();

 private:
  nb::object object_;
  std::optional<Array> array_;
  bool to_jax_ = false;
};

// `out` where the caller gave one, else a new array like `like`.
class Output {
 public:
  // throws   also Error(shape_mismatch | unsupported) when `out` has another shape or element type
  Output(nb::handle out, const Array& like, std::span<const std::int64_t> shape, const char* where);
  [[nodiscard]] const Array& array() const noexcept { return given_ ? *given_ : made_->array(); }
  [[nodiscard]] nb::object finish();

 private:
  std::optional<Array> given_;
  std::optional<NewArray> made_;
};

// Every element of `from` to its place in `to`, whatever their strides; needs no GIL.
//
// precondition  one shape and element type, and no memory in common
void copy_elements(const Array& from, const Array& to);

// throws   Error(unsupported) for elements that are no floats; `what` names the array where it is not
//          the argument itself
[[nodiscard]] core::DType float_type_of(const Array& array, std::string_view what = {});

enum class Order : std::uint8_t { tokens_first, heads_first };
[[nodiscard]] Order order_of(std::string_view name);
[[nodiscard]] core::AngleMode angles_of(std::string_view name, const char* where);

// The array as [batch, tokens, heads, dim]; without a batch axis, or with heads before tokens.
//
// throws   Error(shape_mismatch) for another rank, Error(unsupported) for features that are not next to
//          each other in memory or elements that are no floats
[[nodiscard]] core::ConstHeadsView heads_of(const Array& array, Order order);
[[nodiscard]] core::HeadsView writable_heads_of(const Array& array, Order order);

// Positions as Python gives them: None (0, 1, ...), an int (that offset), or integers or floats [tokens],
// [batch, tokens] or [axes, batch, tokens]. int64 and float64 without gaps are read in place; others are
// widened into a small copy.
class PositionsArgument {
 public:
  PositionsArgument(nb::handle object, const char* where);
  [[nodiscard]] const core::Positions& get() const noexcept { return positions_; }
  [[nodiscard]] bool given() const noexcept { return given_; }
  // The largest position of a call with so many tokens; none when there is no position.
  [[nodiscard]] std::optional<double> largest(std::int64_t tokens) const;

 private:
  core::Positions positions_ = core::positions_from(0);
  bool given_ = false;
  nb::object keeper_;
  std::optional<Array> array_;
  std::vector<std::int64_t> integers_;
  std::vector<double> floats_;
};

// Numbers of an argument, row-major: in place where the type and the layout fit, else copied. For small
// arguments (lengths, boundaries, masks of padding); lists will do. None gives an empty span.
template <class T>  // std::int64_t, std::int32_t, std::uint8_t (also from bool), double
class Numbers {
 public:
  Numbers(nb::handle object, const char* where);
  [[nodiscard]] std::span<const T> get() const noexcept { return numbers_; }
  [[nodiscard]] bool given() const noexcept { return array_.has_value(); }
  [[nodiscard]] std::span<const std::int64_t> shape() const noexcept { return array_->shape(); }
  [[nodiscard]] std::string text() const { return array_->text(); }

 private:
  nb::object keeper_;
  std::optional<Array> array_;
  std::vector<T> copy_;
  std::span<const T> numbers_;
};

// Numbers of any shape, or an int n for 0 .. n-1.
template <class T>  // std::int64_t, double
class Counted {
 public:
  // throws   as Numbers; Error(invalid_argument) for None, Error(out_of_range) for an n below 0 or
  //          above 2^32
  Counted(nb::handle object, const char* where);

  std::span<const T> values;
  std::vector<std::int64_t> shape;

 private:
  std::optional<Numbers<T>> numbers_;
  std::vector<T> counted_;
};

// A new NumPy array to fill: dense, `element` f32, f64, i64 or i32.
[[nodiscard]] nb::object numpy_empty(std::span<const std::int64_t> shape, Element element);
// The address of a dense NumPy array made by numpy_empty.
[[nodiscard]] void* numpy_data(const nb::object& array);

// A dictionary (or an object with to_dict()) as JSON text, a str or path as it is: what config
// functions of C++ read.
struct ConfigArgument {
  std::string json;  // empty: a path
  std::string path;
};
[[nodiscard]] ConfigArgument config_of(nb::handle object, const char* where);
// json.loads
[[nodiscard]] nb::object from_json(const std::string& text);
[[nodiscard]] std::string to_json(nb::handle object);

}  // namespace phasor::python
