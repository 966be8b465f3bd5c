// Folders, by functions that survive a lack of memory. libstdc++ 12 does not: its directory iterators
// end the program, and appending a name to a path that ends with '/' destroys objects that do not
// exist.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::io {

// The path without '/' at its end, ready to have a name appended.
[[nodiscard]] std::filesystem::path as_folder(const std::filesystem::path& path);

// The names of everything in a folder, sorted.
[[nodiscard]] Result<std::vector<std::string>> names_in(const std::filesystem::path& folder);

// Everything in a folder and its folders that is not a folder itself, relative to it and sorted. Links
// are listed, not followed.
[[nodiscard]] Result<std::vector<std::string>> files_below(const std::filesystem::path& folder);

}  // namespace phasor::io
