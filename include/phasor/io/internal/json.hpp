// Strict JSON: repeated keys are an error, nesting is limited, 64-bit integers are exact. One value
// type for all rooms; the JSON library is included by src/io/json/library.cpp only, so that this
// header stays cheap to compile.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/file_text.hpp"

namespace phasor::io {

struct JsonMember;
template <class Value>
class JsonIterator;

// How dump() writes. The defaults are one line of UTF-8 in the order of the object.
struct JsonStyle {
  enum class Characters : std::uint8_t { utf8, ascii };   // ascii: \u escapes for all others
  enum class BadUtf8 : std::uint8_t { refuse, replace };  // replace: by U+FFFD
  enum class Keys : std::uint8_t { as_inserted, sorted };

  int indent = -1;  // spaces per level; negative: all in one line
  Characters characters = Characters::utf8;
  BadUtf8 bad_utf8 = BadUtf8::refuse;
  Keys keys = Keys::as_inserted;
};

// null, true or false, an integer, a double, a string, a list, or an object whose members keep their
// order.
//
// throws   Error(invalid_argument) from every member function that needs another type than the value
//          has, or a missing key or index
// cost     a lookup takes O(log n) in parsed objects, O(n) after a change or with few members
class Json {
 public:
  using value_type = Json;
  using iterator = JsonIterator<Json>;
  using const_iterator = JsonIterator<const Json>;

  // Not explicit, so that `object["key"] = 5;` and `value == "text"` read as they should.
  // NOLINTBEGIN(google-explicit-constructor)
  Json() noexcept = default;
  Json(std::nullptr_t) noexcept {}
  template <std::same_as<bool> T>  // not of pointers, which would convert
  Json(T value) noexcept : kind_(Kind::boolean), value_{.boolean = value} {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value)
  noexcept {
    if constexpr (std::is_signed_v<T>) {
      kind_ = Kind::integer;
      value_.integer = value;
    } else {
      kind_ = Kind::natural;
      value_.natural = value;
    }
  }
  template <std::floating_point T>
  Json(T value) noexcept : kind_(Kind::real), value_{.real = static_cast<double>(value)} {}
  Json(std::string text);
  Json(std::string_view text);
  Json(const char* text);
  template <class T>
  Json(const std::vector<T>& values) : Json(array()) {
    for (const auto& value : values) push_back(Json(static_cast<const T&>(value)));
  }
  // A list; when each value is a pair that starts with a string, the object of these members.
  Json(std::initializer_list<Json> values);
  // NOLINTEND(google-explicit-constructor)

  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  [[nodiscard]] static Json array();
  [[nodiscard]] static Json array(std::initializer_list<Json> values);
  [[nodiscard]] static Json object();
  // Any value. parse_object() below is for files, which have an object at the top.
  //
  // throws   Error(invalid_argument): not JSON, a repeated key, nested deeper than kMaxJsonDepth
  [[nodiscard]] static Json parse(std::string_view text);

  [[nodiscard]] bool is_null() const noexcept { return kind_ == Kind::null; }
  [[nodiscard]] bool is_boolean() const noexcept { return kind_ == Kind::boolean; }
  [[nodiscard]] bool is_number() const noexcept {
    return is_number_integer() || kind_ == Kind::real;
  }
  // Written without a point or an exponent, and within 64 bits.
  [[nodiscard]] bool is_number_integer() const noexcept {
    return kind_ == Kind::integer || kind_ == Kind::natural;
  }
  [[nodiscard]] bool is_string() const noexcept { return kind_ == Kind::string; }
  [[nodiscard]] bool is_array() const noexcept { return kind_ == Kind::array; }
  [[nodiscard]] bool is_object() const noexcept { return kind_ == Kind::object; }

  // bool, a number, std::string, Json, or a std::vector of them. Integers convert to any type of
  // number that holds them; a double converts to an integer when it has no fraction.
  template <class T>
  [[nodiscard]] T get() const;
  [[nodiscard]] const std::string& text() const;

  // Of lists and objects; 0 for null.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] bool empty() const { return size() == 0; }

  // Values of a list or of an object; none for null.
  [[nodiscard]] const_iterator begin() const;
  [[nodiscard]] const_iterator end() const;
  [[nodiscard]] iterator begin();
  [[nodiscard]] iterator end();
  // Keys and values of an object; none for null.
  [[nodiscard]] const std::vector<JsonMember>& items() const;
  // The same, sorted by key.
  [[nodiscard]] std::vector<const JsonMember*> sorted_items() const;

  // end() when the key is absent or this is not an object.
  [[nodiscard]] const_iterator find(std::string_view key) const;
  [[nodiscard]] iterator find(std::string_view key);
  [[nodiscard]] bool contains(std::string_view key) const { return member(key) != nullptr; }

  [[nodiscard]] const Json& at(std::string_view key) const;
  [[nodiscard]] Json& at(std::string_view key);
  [[nodiscard]] const Json& at(std::size_t index) const;
  [[nodiscard]] Json& at(std::size_t index);
  const Json& operator[](std::string_view key) const { return at(key); }
  // Adds the member when it is absent; null becomes an object.
  Json& operator[](std::string_view key);
  const Json& operator[](std::size_t index) const { return at(index); }
  Json& operator[](std::size_t index) { return at(index); }
  [[nodiscard]] const Json& front() const { return at(std::size_t{0}); }
  [[nodiscard]] const Json& back() const { return at(size() - 1); }

  // Null becomes a list.
  void push_back(Json value);
  // Does nothing when the key is absent.
  void erase(std::string_view key);
  void erase(std::size_t index);

  // Infinity and NaN, which JSON does not have, are written as null.
  //
  // throws   Error(invalid_argument): text that is not UTF-8, unless the style replaces it
  [[nodiscard]] std::string dump(const JsonStyle& style) const;
  [[nodiscard]] std::string dump(int indent = -1) const {
    return dump(JsonStyle{.indent = indent});
  }

  // Numbers compare by value (1 == 1.0), objects without regard to order.
  friend bool operator==(const Json& left, const Json& right) { return left.equals(right); }
  // dump() with U+FFFD for what is not UTF-8; for the messages of failed tests.
  friend std::ostream& operator<<(std::ostream& to, const Json& value);

 private:
  friend class JsonBuilder;
  struct Object;
  enum class Kind : std::uint8_t { null, boolean, integer, natural, real, string, array, object };

  [[nodiscard]] bool equals(const Json& other) const;
  [[nodiscard]] const Json* member(std::string_view key) const;
  [[nodiscard]] bool as_boolean() const;
  [[nodiscard]] double as_real() const;
  [[nodiscard]] std::int64_t as_integer(std::int64_t least, std::int64_t greatest) const;
  [[nodiscard]] std::uint64_t as_natural(std::uint64_t greatest) const;
  [[nodiscard]] const std::vector<Json>& elements() const;
  [[noreturn]] void wrong_type(std::string_view wanted) const;
  void write(std::string& to, const JsonStyle& style, int margin) const;
  void swap(Json& other) noexcept;

  Kind kind_ = Kind::null;
  union Value {
    std::int64_t integer = 0;
    std::uint64_t natural;
    double real;
    bool boolean;
    std::string* string;
    std::vector<Json>* array;
    Object* object;
  } value_{};
};

struct JsonMember {
  std::string key;
  Json value;
};

// Over the elements of a list or the values of an object.
template <class Value>
class JsonIterator {
  using Member = std::conditional_t<std::is_const_v<Value>, const JsonMember, JsonMember>;

 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = Json;
  using difference_type = std::ptrdiff_t;
  using pointer = Value*;
  using reference = Value&;

  JsonIterator() = default;
  explicit JsonIterator(Value* element) : element_(element) {}
  explicit JsonIterator(Member* member) : member_(member) {}

  reference operator*() const { return member_ != nullptr ? member_->value : *element_; }
  pointer operator->() const { return &**this; }
  JsonIterator& operator++() {
    if (member_ != nullptr) {
      ++member_;
    } else {
      ++element_;
    }
    return *this;
  }
  JsonIterator operator++(int) {
    JsonIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const JsonIterator&) const = default;

 private:
  Value* element_ = nullptr;
  Member* member_ = nullptr;
};

template <class T>
T Json::get() const {
  if constexpr (std::is_same_v<T, Json>) {
    return *this;
  } else if constexpr (std::is_same_v<T, bool>) {
    return as_boolean();
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(as_real());
  } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    return static_cast<T>(as_integer(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(as_natural(std::numeric_limits<T>::max()));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text();
  } else {
    T values;
    values.reserve(elements().size());
    for (const Json& element : elements()) values.push_back(element.get<typename T::value_type>());
    return values;
  }
}

// Limits the recursion of a copy, a comparison, a dump and a destructor.
inline constexpr int kMaxJsonDepth = 64;

// throws   Error(invalid_argument): not JSON, a repeated key, nested too deep, or not an object at
//          the top
[[nodiscard]] Json parse_object(std::string_view text);

// parse_object() for the output of Python's json: NaN, Infinity and -Infinity, which JSON does not have,
// become strings. Configs of hybrid models have them in keys that no reader here uses; a reader that
// needs a number refuses the string.
[[nodiscard]] Json parse_python_object(std::string_view text);

// A value in a message: one line, keys sorted, cut as one_line() does.
[[nodiscard]] std::string shown(const Json& value);

}  // namespace phasor::io
