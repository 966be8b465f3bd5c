// The arrays that verbs read and write. Every verb reads them here, so that all know the same files.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "phasor/io/internal/array_file.hpp"
#include "phasor/io/npy.hpp"

namespace phasor::tools {

// An array of a .npy, .npz, .safetensors or .pt file. `text` is
//
//   FILE        the file, which may also be `-` (stdin); the array is its only one
//   FILE:NAME   the array of that name. A path that exists is always a path, whatever colons it holds;
//               otherwise the first part that is a file is FILE
//
// throws   Error as io::ArrayFile: with the names, when the file has several arrays or not that one
[[nodiscard]] io::NpyArray read_array(const std::string& text);

// The same, before an array is chosen.
struct SelectedArrays {
  std::shared_ptr<const std::string> bytes;  // of stdin, which `file` reads
  io::ArrayFile file;
  std::optional<std::string> name;
};
[[nodiscard]] SelectedArrays open_arrays(const std::string& text);

// The only array of a file that was read already, from stdin.
[[nodiscard]] io::NpyArray array_in(const std::string& bytes);

// Appended to the help of verbs that read arrays.
inline constexpr const char* kArrayFiles =
    R"(Arrays   .npy, .npz, .safetensors or .pt (tensors only, no code is run); FILE:NAME selects
         one of several, - is stdin. Written as .npy, - is stdout.)";

// A .npy file; `-` is stdout, and what the verb prints then goes to stderr. Of several ranks, rank 0 writes.
//
// throws   Error as io::write_npy()
void write_array(const std::string& path, const io::NpyArray& array);

}  // namespace phasor::tools
