// How Phasor says no. A caller's mistake is thrown as Error before any output is touched; a mistake
// of the world (a file, a flag, JSON) comes back as Result<T>.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace phasor {

enum class ErrorCode : std::uint8_t {
  invalid_argument,
  shape_mismatch,
  out_of_range,
  unsupported,
  io,
  internal,
};

// The message follows one grammar: `where: what must hold, got what came`.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// Joins its arguments into one message: message("rotate: rotary_dim must be even, got ", dim).
template <class... Parts>
[[nodiscard]] std::string message(const Parts&... parts) {
  std::ostringstream out;
  out.precision(17);
  (out << ... << parts);
  return out.str();
}

// A value or the Error that stands in its place.
template <class T>
class [[nodiscard]] Result {
 public:
  // Not explicit, so that `return value;` and `return error;` read as they should.
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

  // The value, or its Error thrown: for callers that speak in exceptions.
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
