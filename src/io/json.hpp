// JSON as strictly as it must be read where two readers may not see two things: one object, every
// key once, no nesting without end.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "phasor/core/error.hpp"

namespace phasor::io {

using Json = nlohmann::json;

// Deeper nesting than any config has is refused.
inline constexpr int kMaxJsonDepth = 64;

// throws   Error(invalid_argument): not JSON, a repeated key, nested too deep, or not an object at
//          the top
[[nodiscard]] Json parse_object(std::string_view text);

// parse_object() of what Python's json wrote: its bare words NaN, Infinity and -Infinity, which JSON has
// not, become text of the same letters. Hybrid models' configs have them among keys that no reader here
// asks for; one that wants a number refuses the text.
[[nodiscard]] Json parse_python_object(std::string_view text);

// Line and column of a byte offset that the parser reports one past the offending byte.
[[nodiscard]] std::string place_of(std::string_view text, std::size_t byte);

// UTF-8 text of a file as it may stand in a message: control characters become '?', cut when long.
[[nodiscard]] std::string one_line(std::string_view text, std::size_t longest = 60);

// A value as a message shows it: one line, cut when long.
[[nodiscard]] std::string shown(const Json& value);

}  // namespace phasor::io
