// Whole text files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/file.hpp"
#include "ranks.hpp"
#include "streams.hpp"

namespace phasor::tools {

// The text of a file; "-" reads stdin.
[[nodiscard]] inline std::string read_text_or_stdin(const std::string& path) {
  return path == kStandardStream ? read_stdin() : io::read_text(path).value_or_throw();
}

// Replaces the file as a whole: after an error the old one is unchanged. "-" is stdout; what the verb
// prints from then on goes to stderr. Of several ranks, rank 0 writes.
inline void write_text(const std::filesystem::path& path, std::string_view text) {
  if (path == kStandardStream) {
    write_out(text);
    set_text_stream(TextStream::err);
    return;
  }
  if (!is_first_rank()) return;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  (void)io::replace_file(path, std::span(&bytes, 1)).value_or_throw();
}

}  // namespace phasor::tools
