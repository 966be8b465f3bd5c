// Whole files: read with a size limit, replaced atomically.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "phasor/core/error.hpp"

namespace phasor::io {

// Reads a text file of at most `limit` bytes.
[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& path,
                                            std::size_t limit = std::size_t{64} << 20);

// Writes the pieces in order to a temporary file in the folder of `path`, then renames it to `path`.
// On failure the temporary file is removed and `path` is unchanged. A temporary file stays only if the
// process is killed; io/internal/temporary_files.hpp says who removes it then.
[[nodiscard]] Result<Done> replace_file(const std::filesystem::path& path,
                                        std::span<const std::span<const std::byte>> pieces);

// The same for pieces that are made one after the other: `write` passes them to `put`, and returns or
// throws what stops it.
using PutBytes = std::function<Result<Done>(std::span<const std::byte>)>;
[[nodiscard]] Result<Done> replace_file(
    const std::filesystem::path& path,
    const std::function<Result<Done>(const PutBytes& put)>& write);

}  // namespace phasor::io
