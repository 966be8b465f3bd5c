// A tensor of a checkpoint of any file format: name, type, shape, and where its bytes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
};

[[nodiscard]] PHASOR_API std::string_view name_of(TensorType type) noexcept;  // "f32", "q4_k", ...
// Elements and bytes of a block; 1 and the element's size for types that are not quantised.
[[nodiscard]] PHASOR_API std::int64_t block_elements(TensorType type) noexcept;
[[nodiscard]] PHASOR_API std::size_t block_bytes(TensorType type) noexcept;

// A file open for reading: of io/internal/posix_file.hpp.
struct InputFile;

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

}  // namespace phasor::io
