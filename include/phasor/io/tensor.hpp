// A tensor of a checkpoint of any file format: name, type, shape, and a view of its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/export.h"

namespace phasor::io {

// The bytes of a file, mapped into memory without a copy.

// Read-only. If another process shortens the file while it is mapped, reading the missing bytes
// raises SIGBUS: replace files by renaming, as replace_file() does.
class PHASOR_API MappedFile {
 public:
  // Error(io) when the file is missing, unreadable or not a regular file. An empty file has no bytes.
  [[nodiscard]] static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  // The path, in one line, for messages.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Asks the kernel to read ahead; a hint that cannot fail.
  void will_need(std::span<const std::byte> part) const noexcept;
  // Frees the memory of the pages of `part`; reading them again reads the file again.
  void release(std::span<const std::byte> part) const noexcept;

 private:
  std::span<const std::byte> bytes_;
  std::string name_;
};

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
};

[[nodiscard]] PHASOR_API std::string_view name_of(TensorType type) noexcept;  // "f32", "q4_k", ...
// Elements and bytes of a block; 1 and the element's size for types that are not quantised.
[[nodiscard]] PHASOR_API std::int64_t block_elements(TensorType type) noexcept;
[[nodiscard]] PHASOR_API std::size_t block_bytes(TensorType type) noexcept;

struct PHASOR_API Tensor {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;   // outermost first, as NumPy; empty for a scalar
  std::span<const std::byte> bytes;  // in the mapped file; as many as type and shape need

  [[nodiscard]] std::int64_t size() const noexcept;  // product of shape; 1 for a scalar
};

// The elements [first, first + out.size()) as float32: widened, or dequantised. f64 and integers
// are rounded to nearest.
//
// throws   Error(out_of_range) when the range exceeds the tensor;
//          Error(invalid_argument) when it does not start and end at a block;
//          Error(unsupported) for the f8 types
PHASOR_API void to_floats(const Tensor& tensor, std::int64_t first, std::span<float> out);

}  // namespace phasor::io
