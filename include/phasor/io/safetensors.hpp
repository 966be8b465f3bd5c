// safetensors files: a JSON header followed by the tensors. Files are untrusted input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/export.h"
#include "phasor/io/tensor.hpp"

namespace phasor::io {

class ByteSource;  // of src/io/files

class PHASOR_API SafetensorsFile {
 public:
  // error    Error(io), with the names of file and tensor: the file cannot be opened or is shorter than
  //          its header says; a header above 100 MB, not a JSON object, with a repeated name or an
  //          unknown key; negative or overflowing shapes, more than 64 dimensions; offsets beyond
  //          the data, overlapping, with a gap, or of another size than type and shape; metadata
  //          that is not a map of strings or has more than 100 000 entries.
  //          Error(unsupported): unknown types
  [[nodiscard]] static Result<SafetensorsFile> open(const std::filesystem::path& path);
  // The same for bytes that the caller keeps alive; `name` is the file's name in messages.
  [[nodiscard]] static Result<SafetensorsFile> parse(std::span<const std::byte> bytes,
                                                     std::string_view name);

  // In the order of their bytes.
  [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
  // Null when the name is unknown.
  [[nodiscard]] const Tensor* find(std::string_view name) const noexcept;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept {
    return metadata_;
  }

 private:
  [[nodiscard]] static Result<SafetensorsFile> read(const ByteSource& source,
                                                    std::string_view name);

  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

// A checkpoint of one or more safetensors files.
class PHASOR_API SafetensorsCheckpoint {
 public:
  // A .safetensors file, or a folder with model.safetensors.index.json and its shards, or with
  // model.safetensors, or with exactly one other .safetensors file.
  //
  // error    as SafetensorsFile::open(), and Error(io): a missing shard, a shard name outside the
  //          folder, a tensor that is not in the shard that the index names, or is in a shard but
  //          not in the index, or is in two shards; an index with other keys than weight_map and
  //          metadata
  [[nodiscard]] static Result<SafetensorsCheckpoint> open(const std::filesystem::path& path);

  struct Shard {
    std::string name;  // of the file, inside the folder
    SafetensorsFile file;
  };
  [[nodiscard]] const std::vector<Shard>& shards() const noexcept { return shards_; }
  [[nodiscard]] const Tensor* find(std::string_view name) const noexcept;
  // The folder that holds the shards.
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  std::filesystem::path folder_;
  std::vector<Shard> shards_;
};

// Writes the tensors, which are in memory, in the order given, 8-byte aligned header, through
// replace_file().
//
// error    Error(invalid_argument): a name twice or "__metadata__", bytes that disagree with type
//          and shape, a type that safetensors does not have; Error(io)
[[nodiscard]] PHASOR_API Result<Done> write_safetensors(
    const std::filesystem::path& path, const std::vector<Tensor>& tensors,
    const std::map<std::string, std::string>& metadata = {});

}  // namespace phasor::io
