// stdin and stdout as files: `-` in the place of a path.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace phasor::tools {

// The path that means stdin or stdout.
inline constexpr std::string_view kStandardStream = "-";

// Everything on stdin; of several ranks, collective: that of rank 0.
//
// throws   Error(invalid_argument) if another flag has read it; Error(io)
[[nodiscard]] std::string read_stdin();

// Writes the pieces to stdout. From then on print_out() writes to stderr, so that the reader of the
// pipe receives only the data.
//
// throws   Error(invalid_argument) if stdout is a terminal; Error(io)
void write_stdout(std::initializer_list<std::span<const std::byte>> pieces);

// throws   Error(invalid_argument) when more than one of the paths is `-`: called before any is written
void require_one_stdout(std::initializer_list<std::string_view> paths);

// Forgets who has used the streams. For the start of a command.
void release_streams() noexcept;

}  // namespace phasor::tools
