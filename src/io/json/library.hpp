// What the JSON library does for us. It is included in json_library.cpp and nowhere else: its
// templates take seconds of compile time wherever they are seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "phasor/io/internal/json.hpp"

namespace phasor::io {

enum class JsonFault : std::uint8_t {
  syntax,
  number_range,  // a number that float64 does not have
};

// Follows a text from event to event. What returns false ends the parse; what throws does so too.
class JsonEvents {
 public:
  JsonEvents() = default;
  JsonEvents(const JsonEvents&) = delete;
  JsonEvents& operator=(const JsonEvents&) = delete;
  virtual ~JsonEvents() = default;

  virtual bool null() = 0;
  virtual bool boolean(bool value) = 0;
  virtual bool integer(std::int64_t value) = 0;  // has a minus sign
  virtual bool natural(std::uint64_t value) = 0;
  virtual bool real(double value, const std::string& text) = 0;
  virtual bool string(std::string& value) = 0;
  virtual bool start_object() = 0;
  virtual bool key(std::string& name) = 0;
  virtual bool end_object() = 0;
  virtual bool start_array() = 0;
  virtual bool end_array() = 0;
  // `position` is one past the offending byte.
  virtual void fault(JsonFault fault, std::size_t position) = 0;
};

// The library skips a byte order mark, and takes a NUL for the end of the text: a caller that wants
// neither looks for them first.
void parse_events(std::string_view text, JsonEvents& events);

// Line and column of a byte offset that the parser reports one past the offending byte.
[[nodiscard]] std::string place_of(std::string_view text, std::size_t byte);

// The shortest text, or one digit more, that reads back as the same double; null when not finite.
void append_json_number(std::string& to, double value);
// In quotes.
//
// throws   Error(invalid_argument): not UTF-8, unless the style replaces it
void append_json_string(std::string& to, const std::string& text, const JsonStyle& style);

}  // namespace phasor::io
