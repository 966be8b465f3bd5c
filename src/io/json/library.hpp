// The interface to the JSON library, which library.cpp alone includes: its templates take seconds to
// compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "phasor/io/internal/json.hpp"

namespace phasor::io {

// Receives the events of a parse. A function that returns false or throws ends it.
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
  // The text is not JSON. `position` is one past the invalid byte; `reason` is in plain ASCII.
  virtual void fault(std::size_t position, std::string_view reason) = 0;
};

// The library skips a byte order mark and treats a NUL as the end of the text: callers check first.
void parse_events(std::string_view text, JsonEvents& events);

// `invalid JSON at line 2, column 7: reason`, for the arguments of JsonEvents::fault().
[[nodiscard]] std::string json_fault_text(std::string_view text, std::size_t position,
                                          std::string_view reason);

// The shortest text, or one digit more, that reads back as the same double; null when not finite.
void append_json_number(std::string& to, double value);
// In quotes.
//
// throws   Error(invalid_argument): not UTF-8, unless the style replaces it
void append_json_string(std::string& to, const std::string& text, const JsonStyle& style);

}  // namespace phasor::io
