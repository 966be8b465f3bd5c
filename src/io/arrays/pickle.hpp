// Python pickles of plain values: numbers, text, tuples, lists, dicts, and calls of functions that the
// caller names. Nothing is run: a call is a value that holds the function's name and its arguments, and
// any other name is refused. Untrusted input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::io {

// Limits of a pickle; a checkpoint of 50 000 tensors stays below.
inline constexpr std::size_t kMaxPickleBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMaxPickleValues = std::size_t{1} << 21;

struct PickleValue {
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    number,
    text,
    bytes,       // not kept
    tuple,       // items
    list,        // items
    dict,        // items: key, value, key, value, ...; also an OrderedDict
    global,      // text: "module.name"
    call,        // text: the function; items: its arguments
    persistent,  // items: one, what the writer keeps outside of the pickle
  };
  Kind kind = Kind::none;
  std::int64_t integer = 0;  // also a boolean
  double number = 0.0;
  std::string text = {};
  std::vector<std::uint32_t> items = {};  // of Pickle::values
};

struct Pickle {
  std::vector<PickleValue> values;
  std::uint32_t root = 0;

  [[nodiscard]] const PickleValue& operator[](std::uint32_t index) const { return values[index]; }
};

// `globals` are the names that may occur, besides collections.OrderedDict. A list or a dict may contain
// itself; whoever walks through the values bounds the depth.
//
// error    Error(io), without a file name: bytes that are no pickle of protocol 2 to 5, too long, with
//          too many values, or after its end. Error(unsupported): another global, by name; an opcode
//          that plain values do not need
[[nodiscard]] Result<Pickle> read_pickle(std::span<const std::byte> bytes,
                                         std::span<const std::string_view> globals);

}  // namespace phasor::io
