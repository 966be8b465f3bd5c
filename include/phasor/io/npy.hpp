// NumPy's .npy files, versions 1 to 3, little-endian. Files are untrusted input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/view.hpp"
#include "phasor/export.h"

namespace phasor::io {

// bf16 is what NumPy writes for ml_dtypes.bfloat16: a two-byte void, descr '|V2' (or '<V2').
enum class NpyType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  c64,  // complex64: two float32
  c128
};

[[nodiscard]] PHASOR_API std::size_t size_of(NpyType type) noexcept;
[[nodiscard]] PHASOR_API std::string_view name_of(
    NpyType type) noexcept;  // NumPy's name: "float64", "bfloat16", "int64", ...

struct PHASOR_API NpyArray {
  NpyType type = NpyType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;  // size() * size_of(type), C order

  [[nodiscard]] std::int64_t size() const noexcept;  // product of shape; 1 for a scalar
  // precondition  sizeof(T) == size_of(type)
  template <class T>
  [[nodiscard]] const T* as() const noexcept {
    return reinterpret_cast<const T*>(bytes.data());
  }
  template <class T>
  [[nodiscard]] T* as() noexcept {
    return reinterpret_cast<T*>(bytes.data());
  }
};

// An array of zeros.
[[nodiscard]] PHASOR_API NpyArray make_npy(NpyType type, std::vector<std::int64_t> shape);
// The core's type for f64, f32, f16 and bf16; Error(unsupported) for the others. `what` names the
// array in the message.
[[nodiscard]] PHASOR_API Result<core::DType> dtype_of(const NpyArray& array, std::string_view what);
// Every element as a double (bf16 and f16 widened); Error(out_of_range) for integers above
// 2^53 in magnitude, Error(unsupported) for complex types.
[[nodiscard]] PHASOR_API Result<std::vector<double>> to_doubles(const NpyArray& array);
// Every element of an integer array; Error for float types and for u64 above 2^63 - 1.
[[nodiscard]] PHASOR_API Result<std::vector<std::int64_t>> to_integers(const NpyArray& array);
[[nodiscard]] PHASOR_API bool is_integer(NpyType type) noexcept;  // i64 ... u8, not boolean
[[nodiscard]] PHASOR_API bool is_complex(NpyType type) noexcept;

// error    Error(io), with the file's name: the file cannot be opened; wrong magic or version; a header
//          that does not parse, exceeds the file, or has unknown, repeated or missing keys;
//          negative or overflowing shapes; data of another size than the header says.
//          Error(unsupported): big-endian, object and other types.
// An array in Fortran order is copied to C order.
[[nodiscard]] PHASOR_API Result<NpyArray> read_npy(const std::filesystem::path& path);
// The same for bytes in memory; `name` is the file's name in messages.
[[nodiscard]] PHASOR_API Result<NpyArray> parse_npy(std::span<const std::byte> bytes,
                                                    std::string_view name);
// Writes version 1.0, aligned to 64 bytes, through replace_file.
[[nodiscard]] PHASOR_API Result<Done> write_npy(const std::filesystem::path& path,
                                                const NpyArray& array);

}  // namespace phasor::io
