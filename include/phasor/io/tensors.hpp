// Files of named tensors: safetensors and GGUF. Files are untrusted input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/export.h"

namespace phasor::io {

// Types of safetensors and GGUF. The q types are quantised blocks of GGUF.
enum class TensorType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
};

[[nodiscard]] PHASOR_API std::string_view name_of(TensorType type) noexcept;  // "f32", "q4_k", ...
// Elements and bytes of a block; 1 and the element's size for types that are not quantised.
[[nodiscard]] PHASOR_API std::int64_t block_elements(TensorType type) noexcept;
[[nodiscard]] PHASOR_API std::size_t block_bytes(TensorType type) noexcept;

struct InputFile;  // an open file, of io/internal/posix_file.hpp
class ByteSource;  // of src/io/files

struct PHASOR_API Tensor {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape = {};  // outermost first, as NumPy; empty for a scalar
  // A tensor in memory: its byte_size() bytes, which its maker keeps alive. Empty for one in a file.
  std::span<const std::byte> bytes = {};
  // A tensor in a file, which is read when needed. It is not mapped: reading a mapping of a file that
  // another process has shortened raises SIGBUS, reading the file is an error.
  std::shared_ptr<const InputFile> file = nullptr;
  std::uint64_t offset = 0;  // of its first byte in the file

  [[nodiscard]] std::int64_t size() const noexcept;      // product of shape; 1 for a scalar
  [[nodiscard]] std::size_t byte_size() const noexcept;  // as many as type and shape need
};

// Bytes [first, first + out.size()) of the tensor.
//
// throws   Error(out_of_range) when the range exceeds the tensor or the memory of its bytes; Error(io)
//          when its file cannot be read or has become shorter
PHASOR_API void read_bytes(const Tensor& tensor, std::size_t first, std::span<std::byte> out);
// Whether the tensors have the same bytes.
//
// throws   as read_bytes()
[[nodiscard]] PHASOR_API bool same_bytes(const Tensor& a, const Tensor& b);

// The elements [first, first + out.size()) as float32: widened, or dequantised. f64 and integers
// are rounded to nearest.
//
// throws   Error(out_of_range) when the range exceeds the tensor;
//          Error(invalid_argument) when it does not start and end at a block;
//          Error(unsupported) for the f8 types; Error(io) as read_bytes()
PHASOR_API void to_floats(const Tensor& tensor, std::int64_t first, std::span<float> out);

// safetensors files: a JSON header followed by the tensors.

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
  // One file whose bytes the caller keeps alive; `name` is its name in messages.
  [[nodiscard]] static Result<SafetensorsCheckpoint> parse(std::span<const std::byte> bytes,
                                                           std::string_view name);

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

// Writes the tensors in the order given, 8-byte aligned header, through replace_file(). They may be
// those of an open file, of `path` itself too.
//
// error    Error(invalid_argument): a name twice or "__metadata__", bytes that disagree with type
//          and shape, a type that safetensors does not have; Error(io)
[[nodiscard]] PHASOR_API Result<Done> write_safetensors(
    const std::filesystem::path& path, const std::vector<Tensor>& tensors,
    const std::map<std::string, std::string>& metadata = {});

// GGUF files, versions 2 and 3, little-endian: metadata and tensors.

// A metadata value. Arrays of arrays are not supported.
using GgufValue =
    std::variant<bool, std::int64_t, std::uint64_t, double, std::string, std::vector<bool>,
                 std::vector<std::int64_t>, std::vector<std::uint64_t>, std::vector<double>,
                 std::vector<std::string>>;

// A tensor of a type that Phasor cannot read. Its directory entry is checked as all others are.
struct SkippedTensor {
  std::string name;
  std::string type;                 // ggml's name: "Q2_K", "IQ4_XS", ...
  std::vector<std::int64_t> shape;  // outermost first
};

class PHASOR_API GgufFile {
 public:
  // error    Error(io): the file cannot be opened, or becomes shorter while it is read.
  //          Error(invalid_argument), with the file's name: wrong magic, version or byte order; counts
  //          and lengths beyond the end of the file; keys and names that repeat or are not 1 to 65535
  //          printable ASCII characters; unknown value types, arrays of arrays, more than 2^25 array
  //          elements in all, a bool other than 0 and 1; an alignment that is not a power of two up to
  //          2^30; types unknown to ggml; shapes that do not have 1 to 4 positive dimensions or
  //          overflow; rows that are not whole blocks; offsets that are not aligned, beyond the file or
  //          overlapping. Tensors of ggml types that TensorType does not have are in skipped().
  [[nodiscard]] static Result<GgufFile> open(const std::filesystem::path& path);
  // The same for bytes that the caller keeps alive; `name` is the file's name in messages.
  [[nodiscard]] static Result<GgufFile> parse(std::span<const std::byte> bytes,
                                              std::string_view name);

  [[nodiscard]] std::uint32_t version() const noexcept { return version_; }
  [[nodiscard]] const std::map<std::string, GgufValue, std::less<>>& metadata() const noexcept {
    return metadata_;
  }
  // nullopt when the key is absent; Error(invalid_argument) when the value has another kind. Any
  // integer type can be read as an integer, any number as a number.
  [[nodiscard]] Result<std::optional<std::int64_t>> integer(std::string_view key) const;
  [[nodiscard]] Result<std::optional<double>> number(std::string_view key) const;
  [[nodiscard]] Result<std::optional<bool>> flag(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::string>> text(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::vector<std::int64_t>>> integers(
      std::string_view key) const;

  // In the order of the directory. Shapes are outermost first, the reverse of the file's order.
  [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
  // Tensors of unsupported types, in the order of the directory; find() does not return them.
  [[nodiscard]] const std::vector<SkippedTensor>& skipped() const noexcept { return skipped_; }
  [[nodiscard]] const Tensor* find(std::string_view name) const noexcept;
  // The path, for messages.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  [[nodiscard]] static Result<GgufFile> read(const ByteSource& source, std::string_view name);

  std::string name_;
  std::uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<Tensor> tensors_;
  std::vector<SkippedTensor> skipped_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

// Whether a file starts with "GGUF". False for a file that cannot be read.
[[nodiscard]] PHASOR_API bool looks_like_gguf(const std::filesystem::path& path) noexcept;

}  // namespace phasor::io
