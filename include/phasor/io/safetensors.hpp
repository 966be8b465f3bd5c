// safetensors: a JSON header and plain tensors behind it. Trusts no byte of the file.
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
#include "phasor/io/mapped_file.hpp"
#include "phasor/io/tensor.hpp"

namespace phasor::io {

class PHASOR_API SafetensorsFile {
 public:
  // Refuses, naming the file, the tensor, what was expected and what came: a file shorter than its
  // header says, a header above 100 MB, one that is no JSON object or repeats a name, unknown
  // types, negative or overflowing shapes, offsets that leave the data, overlap, leave a gap or
  // disagree with type and shape, unknown keys, metadata that is no map of strings, and more than
  // 64 dimensions or 100 000 entries of metadata.
  [[nodiscard]] static Result<SafetensorsFile> open(const std::filesystem::path& path);
  // The same over bytes that somebody else keeps; `name` stands in messages.
  [[nodiscard]] static Result<SafetensorsFile> parse(std::span<const std::byte> bytes,
                                                     std::string_view name);

  // In the order of their bytes.
  [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
  // Null when there is none of that name.
  [[nodiscard]] const Tensor* find(std::string_view name) const noexcept;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept {
    return metadata_;
  }
  // Length field, header and padding: all that stands before the first tensor's bytes.
  [[nodiscard]] std::span<const std::byte> head() const noexcept { return head_; }
  // The mapping; empty after parse().
  [[nodiscard]] const MappedFile& file() const noexcept { return file_; }

 private:
  MappedFile file_;
  std::span<const std::byte> head_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

// A checkpoint of one or more safetensors files.
class PHASOR_API SafetensorsCheckpoint {
 public:
  // A .safetensors file, or a folder that holds model.safetensors.index.json with its shards, or
  // one model.safetensors, or exactly one other .safetensors file.
  //
  // Refuses what SafetensorsFile::open() refuses, and: a missing shard, a shard name that leaves
  // the folder, a tensor that the index places in a shard that does not hold it, one that a shard
  // holds and the index does not name, a name in two shards, an index with other content than
  // weight_map and metadata.
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

// Writes the tensors in the order given, 8-byte aligned header, through replace_file().
//
// error    Error(invalid_argument): a name twice or "__metadata__", bytes that disagree with type
//          and shape, a type that safetensors does not have; Error(io)
[[nodiscard]] PHASOR_API Result<Done> write_safetensors(
    const std::filesystem::path& path, const std::vector<Tensor>& tensors,
    const std::map<std::string, std::string>& metadata = {});

}  // namespace phasor::io
