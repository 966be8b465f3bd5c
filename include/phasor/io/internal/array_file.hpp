// Named arrays in the files that people have: .npy, .npz, .safetensors, and torch.save()'s .pt. What a
// file is follows from its bytes, not from its name. Files are untrusted input; no code of a .pt is run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/io/npy.hpp"

namespace phasor::io {

enum class ArrayFormat : std::uint8_t { npy, npz, safetensors, torch };
[[nodiscard]] std::string_view name_of(ArrayFormat format) noexcept;  // "npy", "npz", ...

// What a file says about one of its arrays.
struct ArrayEntry {
  // In nested dicts and lists of a .pt: "layers.0.q". Empty for an array without a name: that of a .npy,
  // and a tensor that was saved alone.
  std::string name;
  std::string type;  // NumPy's name, or that of the file for a type that cannot be read
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;         // of its elements
  std::optional<Error> problem;  // why it cannot be read: a type without a NumPy name, a bad header
};

class ArrayReader;  // of src/io/arrays

class ArrayFile {
 public:
  // Reads the names, types and shapes.
  //
  // error    Error(io), with the file's name: it cannot be opened, is none of these formats, or is
  //          damaged. Error(unsupported): files of torch before 1.6, big-endian ones, and those that hold
  //          more than tensors, numbers, text, dicts, lists and tuples; encrypted archives; two arrays
  //          of one name
  [[nodiscard]] static Result<ArrayFile> open(const std::filesystem::path& path);
  // The same for bytes that the caller keeps alive; `name` is the file's name in messages.
  [[nodiscard]] static Result<ArrayFile> parse(std::span<const std::byte> bytes,
                                               std::string_view name);

  [[nodiscard]] ArrayFormat format() const noexcept;
  [[nodiscard]] const std::string& name() const noexcept;  // of the file, for messages
  // In the order of the file.
  [[nodiscard]] const std::vector<ArrayEntry>& entries() const noexcept;

  // The array of an entry, in C order: views of a .pt are gathered.
  //
  // error    the entry's problem; Error(io): the file is damaged or has become shorter
  [[nodiscard]] Result<NpyArray> read(std::size_t index) const;
  // The array of a name. Without a name, the only one that can be read.
  //
  // error    as read(); Error(invalid_argument), which lists the names: no such name, or several arrays
  [[nodiscard]] Result<NpyArray> read(const std::optional<std::string>& name) const;

 private:
  explicit ArrayFile(std::shared_ptr<const ArrayReader> reader) : reader_(std::move(reader)) {}

  std::shared_ptr<const ArrayReader> reader_;
};

}  // namespace phasor::io
