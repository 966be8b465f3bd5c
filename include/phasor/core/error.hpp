// Errors. An invalid argument is thrown as Error before any output is written; an invalid file, flag
// or JSON text is returned as Result<T>.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "phasor/export.h"

namespace phasor {

enum class ErrorCode : std::uint8_t {
  invalid_argument,
  shape_mismatch,
  out_of_range,
  unsupported,
  io,
  internal,
  cancelled,  // CancellationScope: the caller asked the call to stop
};

// The message is one line: what was being done, what is wrong with the value (always shown), what
// would be right. `rotate: rotary_dim must be even, got 7`
class PHASOR_API Error : public std::runtime_error {
 public:
  // Control characters in the message, which may show names of files and tensors, become escapes such
  // as \x1b and \n.
  Error(ErrorCode code, const std::string& message);
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

namespace detail {

// Compiled once: streams would cost every file that includes this header a second of compile time.
PHASOR_API void append_to(std::string& text, std::int64_t number);
PHASOR_API void append_to(std::string& text, std::uint64_t number);
PHASOR_API void append_to(std::string& text, double number);  // 17 digits, as `%.17g`

template <class Part>
void append_part(std::string& text, const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    text += std::string_view(part);
  } else if constexpr (std::is_same_v<Part, char>) {
    text += part;
  } else if constexpr (std::is_floating_point_v<Part>) {
    append_to(text, static_cast<double>(part));
  } else if constexpr (std::is_unsigned_v<Part>) {
    append_to(text, static_cast<std::uint64_t>(part));
  } else {
    static_assert(std::is_integral_v<Part>, "text and numbers alone make a message");
    append_to(text, static_cast<std::int64_t>(part));
  }
}

}  // namespace detail

// Joins its arguments into one message: message("rotate: rotary_dim must be even, got ", dim).
template <class... Parts>
[[nodiscard]] std::string message(const Parts&... parts) {
  std::string text;
  (detail::append_part(text, parts), ...);
  return text;
}

// Throws Error(code, text).
[[noreturn]] PHASOR_API void refuse(ErrorCode code, const std::string& text);
// Throws Error(invalid_argument, text).
[[noreturn]] PHASOR_API void refuse(const std::string& text);

// A value, or the Error that explains why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  // Not explicit, so that `return value;` and `return error;` work.
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return std::holds_alternative<T>(state_); }
  explicit operator bool() const noexcept { return ok(); }

  // precondition  ok()
  [[nodiscard]] const T& value() const& { return std::get<T>(state_); }
  [[nodiscard]] T&& value() && { return std::get<T>(std::move(state_)); }
  const T& operator*() const& { return value(); }
  const T* operator->() const { return &value(); }

  // precondition  not ok()
  [[nodiscard]] const Error& error() const { return std::get<Error>(state_); }

  // Returns the value or throws the Error.
  [[nodiscard]] T value_or_throw() && {
    if (!ok()) throw Error(error());
    return std::get<T>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

// Success without a value.
struct Done {};

}  // namespace phasor
