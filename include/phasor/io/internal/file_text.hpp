// Parts of files in messages, and the errors that name a file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "phasor/core/error.hpp"

namespace phasor::io {

// Starts the message of a file that ends before its header says.
inline constexpr std::string_view kTruncated = "the file is truncated (incomplete download?): ";

// Text in one line, as core::visible_text() shows it, cut after `longest` bytes of it.
[[nodiscard]] std::string one_line(std::string_view text, std::size_t longest = 60);

// Any bytes in single quotes: what is not printable ASCII becomes '?', cut at `longest` bytes.
[[nodiscard]] std::string in_quotes(std::string_view text, std::size_t longest = 40);

// in_quotes() of a tensor's name or a metadata key, which differ at their ends: cut at 120 bytes.
[[nodiscard]] std::string quoted_name(std::string_view name);

// Error(io): `name: text`
[[nodiscard]] Error file_error(std::string_view name, std::string_view text);
// The same error with the file's name in front.
[[nodiscard]] Error in_file(std::string_view name, const Error& error);

}  // namespace phasor::io
