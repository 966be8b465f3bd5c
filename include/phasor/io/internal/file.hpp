// Whole files: read with a limit, written so that a reader sees the old file or the new one, never
// half.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "phasor/core/error.hpp"

namespace phasor::io {

// Reads a text file of at most `limit` bytes.
[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& path,
                                            std::size_t limit = std::size_t{64} << 20);

// Writes the pieces one after the other to a temporary file beside `path`, then renames it over
// `path`. On any failure the temporary is removed and `path` is as it was.
[[nodiscard]] Result<Done> replace_file(const std::filesystem::path& path,
                                        std::span<const std::span<const std::byte>> pieces);

}  // namespace phasor::io
