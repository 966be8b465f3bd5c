// Array arguments: NumPy, torch, JAX, DLPack and the buffer protocol, read in place.
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
#include "phasor/core/positions.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "torch_tensor.hpp"

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

// The library that an array's type comes from: "numpy", "torch", "jax", ...
[[nodiscard]] std::string library_of(nb::handle object);

// An array argument, held for one call: nothing is copied, except a torch tensor with the negative bit
// (its numbers are its memory negated), which is resolved first.
//
// `where` names the argument in messages, as in "rotate: x", and must outlive the Array. The
// constructor and the destructor need the GIL; reading the members does not. When a call that had
// Access::write to a torch tensor ends without an exception, autograd is told that it was written.
//
// throws   Error(invalid_argument | unsupported) for an object that is not an array on the CPU, an
//          unsupported element type, a torch tensor that requires grad or has no plain memory (sparse,
//          quantised, nested, fake, inside torch.func), Access::write to a read-only array or to one
//          with the negative bit
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
  // The last axis is contiguous.
  [[nodiscard]] bool together() const noexcept;
  [[nodiscard]] const char* where() const noexcept { return where_; }
  [[nodiscard]] nb::handle object() const noexcept { return object_; }
  // "[2, 5, 4, 64] float32", for messages.
  [[nodiscard]] std::string text() const;

 private:
  friend class NewArray;
  [[nodiscard]] nb::handle from_torch(nb::handle tensor, TorchType type);
  void from_exchange(nb::handle object, const struct DlExchange& table);
  void from_buffer(nb::handle object, int flags);
  void from_dlpack(nb::handle object);
  // Throws Error(unsupported): the object cannot be read, because of `why`.
  [[noreturn]] void refuse_object(const std::string& why) const;
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
  nb::object keeper_;    // the DLPack capsule, or NumPy's view of bfloat16 as integers
  nb::object resolved_;  // the copy of a torch tensor without its negative bit
  bool is_tensor_ = false;
  bool tells_autograd_ = false;
  int exceptions_;      // in flight when the call began
  int unfinished_ = 0;  // calls of this thread by then, for a tensor that is written
};

// Asks for huge pages for an array that nothing has been written to yet. NumPy does so for its own
// arrays, torch does not: glibc gives a tensor of 64 MiB new pages in every call, and touching them as
// small ones takes ten times as long as a rotation.
//
// precondition  no gaps between its elements
void prefer_huge_pages(const Array& array);

// A new array of the same library as `like`: torch for torch, JAX for JAX, else NumPy.
class NewArray {
 public:
  // Row-major; `like` need not be an array.
  NewArray(nb::handle like, Element element, std::span<const std::int64_t> shape,
           const char* where);
  // Keeps the memory order of `like` if the shape is the same and its last axis is contiguous; else
  // row-major.
  NewArray(const Array& like, std::span<const std::int64_t> shape, const char* where);
  [[nodiscard]] const Array& array() const noexcept { return *array_; }
  // The Python object; call it after the data has been written.
  [[nodiscard]] nb::object finish();

 private:
  nb::object object_;
  std::optional<Array> array_;
  bool to_jax_ = false;
};

// `out` if it is not None, else a new array like `like`.
class Output {
 public:
  // throws   also Error(shape_mismatch | unsupported) if `out` has another shape or element type
  Output(nb::handle out, const Array& like, std::span<const std::int64_t> shape, const char* where);
  [[nodiscard]] const Array& array() const noexcept { return given_ ? *given_ : made_->array(); }
  [[nodiscard]] nb::object finish();

 private:
  std::optional<Array> given_;
  std::optional<NewArray> made_;
};

// Copies every element, for any strides; needs no GIL.
//
// precondition  same shape and element type, no shared memory
void copy_elements(const Array& from, const Array& to);

// throws   Error(unsupported) if the elements are not floats; `what` replaces array.where() in the
//          message
[[nodiscard]] core::DType float_type_of(const Array& array, std::string_view what = {});

enum class Order : std::uint8_t { tokens_first, heads_first };
[[nodiscard]] Order order_of(std::string_view name);
[[nodiscard]] core::AngleMode angles_of(std::string_view name, const char* where);

// The array as [batch, tokens, heads, dim]; without a batch axis, or with heads before tokens.
//
// throws   Error(shape_mismatch) for another rank, Error(unsupported) if the last axis is not
//          contiguous or the elements are not floats
[[nodiscard]] core::ConstHeadsView heads_of(const Array& array, Order order);
[[nodiscard]] core::HeadsView writable_heads_of(const Array& array, Order order);

// A positions argument: None (nullopt), an int (that offset), or integers or floats [tokens],
// [batch, tokens] or [axes, batch, tokens]. Dense int64 and float64 arrays are read in place and kept
// alive by the result, which may be copied and destroyed without the GIL; others are converted.
//
// throws   Error(shape_mismatch) for another rank, Error(unsupported) for bool,
//          Error(out_of_range) for an int beyond 64 bits; as Array
[[nodiscard]] std::optional<core::Positions> positions_of(nb::handle object, const char* where);

// The numbers of a small argument (lengths, boundaries, padding), row-major: read in place if the type
// and the layout fit, else copied. Lists are accepted; None gives an empty span.
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

// A config argument: JSON text of a dictionary or of an object with to_dict(), or a path.
struct ConfigArgument {
  std::string json;  // empty: a path
  std::string path;
};
[[nodiscard]] ConfigArgument config_of(nb::handle object, const char* where);
// json.loads
[[nodiscard]] nb::object from_json(const std::string& text);
[[nodiscard]] std::string to_json(nb::handle object);

}  // namespace phasor::python
