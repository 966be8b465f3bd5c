// Exceptions to status codes, and checks of arguments that every function of the C API needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "capi/struct_sizes.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "phasor/phasor.h"

namespace phasor::capi {

// Stores the text for phasor_last_error() and returns the status.
phasor_status fail(phasor_status status, const char* text) noexcept;
// PHASOR_INTERNAL, with a text that needs no memory.
phasor_status out_of_memory() noexcept;
[[nodiscard]] const char* last_error_text() noexcept;
[[nodiscard]] phasor_status status_of(ErrorCode code) noexcept;

// What phasor_set_cancellation() set for this thread; null: nothing.
[[nodiscard]] const core::Cancellation* thread_cancellation() noexcept;

// Runs the body of a C function and converts exceptions to a status and a text.
template <class Body>
phasor_status guarded(Body body) noexcept {
  try {
    if (const core::Cancellation* const cancellation = thread_cancellation()) {
      const core::CancellationScope scope(cancellation);
      body();
    } else {
      body();
    }
    return PHASOR_OK;
  } catch (const Error& error) {
    return fail(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return fail(PHASOR_INTERNAL, error.what());
  } catch (...) {
    return fail(PHASOR_INTERNAL, "phasor: an exception of an unknown type was thrown");
  }
}

// `what` names the argument, `member` its member (".data"): two parameters, so that a successful call
// allocates no text.
inline void need(const void* pointer, std::string_view where, std::string_view what,
                 std::string_view member = {}) {
  if (pointer == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                message(where, ": ", what, member, " must not be NULL"));
  }
}
// An array without elements may be NULL.
inline void need_array(const void* pointer, std::size_t count, std::string_view where,
                       std::string_view what, std::string_view member = {}) {
  if (count != 0) need(pointer, where, what, member);
}

inline void need_count(std::size_t count, std::int64_t expected, std::string_view where,
                       std::string_view what) {
  if (count != static_cast<std::size_t>(expected)) {
    throw Error(ErrorCode::shape_mismatch,
                message(where, ": ", what, " must be ", expected, ", got ", count));
  }
}

// The enumerator of E for a number of the caller; E's enumerators are 0, 1, ..., last.
template <class E>
[[nodiscard]] E choice(std::int32_t number, E last, std::string_view where, std::string_view what,
                       std::string_view member = {}) {
  if (number < 0 || number > static_cast<std::int32_t>(last)) {
    throw Error(ErrorCode::invalid_argument,
                message(where, ": ", what, member, " must be from 0 to ",
                        static_cast<std::int32_t>(last), ", got ", number));
  }
  return static_cast<E>(number);
}

// No struct of phasor.h will ever be this large: a larger size is uninitialised memory, or that of
// something else, and writing as many bytes would damage what follows the struct.
inline constexpr std::size_t kLargestStruct = 1024;

// throws   Error(invalid_argument) for a size below the struct's first one, or above kLargestStruct
template <class T>
void check_struct_size(std::size_t size, std::string_view where, std::string_view what) {
  static_assert(sizeof(T) <= kLargestStruct / 2, "room for as much again");
  if (size < kFirstSize<T> || size > kLargestStruct) {
    throw Error(ErrorCode::invalid_argument,
                message(where, ": struct_size of ", what, " must be at least ", kFirstSize<T>,
                        " and at most ", kLargestStruct, ", got ", size));
  }
}

// A struct of a caller that may be older or newer than this library: members it does not have keep
// their value in `known`; members that this library does not have must be zero: others would be
// silently ignored.
template <class T>
[[nodiscard]] T take_struct(const T* given, T known, std::string_view where,
                            std::string_view what) {
  need(given, where, what);
  std::uint32_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  check_struct_size<T>(size, where, what);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      throw Error(ErrorCode::unsupported,
                  message(where, ": members of ", what, " beyond ", sizeof(T),
                          " bytes must be 0 in this version, got ", int{bytes[i]}, " at byte ", i));
    }
  }
  std::memcpy(&known, given, std::min<std::size_t>(size, sizeof(T)));
  return known;
}
// Optional options: NULL gives `known`.
template <class T>
[[nodiscard]] T take_options(const T* given, T known, std::string_view where) {
  return given == nullptr ? known : take_struct(given, known, where, "options");
}

// The reverse: writes `values` to a struct of `size` bytes of the caller; members that only the
// caller has become 0. precondition  check_struct_size<T>(size)
template <class T>
void give_struct(T values, std::size_t size, T* out) noexcept {
  values.struct_size = static_cast<std::uint32_t>(size);
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &values, std::min(size, sizeof(T)));
}
// Fills in a struct that has its size in struct_size.
template <class T>
[[nodiscard]] std::size_t size_to_fill(const T* out, std::string_view where,
                                       std::string_view what) {
  need(out, where, what);
  std::uint32_t size = 0;
  std::memcpy(&size, out, sizeof(size));
  check_struct_size<T>(size, where, what);
  return size;
}

}  // namespace phasor::capi
