// NumPy's .npy format, versions 1 to 3; little endian, C order. Trusts no byte of the file.
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
  boolean
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
// f64, f32, f16, bf16 as a storage type of the core; Error(unsupported) for the others, naming
// `what`.
[[nodiscard]] PHASOR_API Result<core::DType> dtype_of(const NpyArray& array, std::string_view what);
// Every element as a double (bf16 and f16 widened); integers above 2^53 in magnitude are refused.
[[nodiscard]] PHASOR_API Result<std::vector<double>> to_doubles(const NpyArray& array);
// Every element of an integer array; Error for float types and for u64 above 2^63 - 1.
[[nodiscard]] PHASOR_API Result<std::vector<std::int64_t>> to_integers(const NpyArray& array);
[[nodiscard]] PHASOR_API bool is_integer(NpyType type) noexcept;  // i64 ... u8, not boolean

// Refuses, naming the file, what was expected and what came: no such file, a directory, a wrong
// magic, an unknown version, a header that does not parse or is longer than the file, unknown or
// repeated or missing keys, Fortran order with more than one dimension longer than 1, big-endian,
// object and other unsupported types, negative or overflowing shapes, and a size that differs from
// what the header says (shorter or longer).
[[nodiscard]] PHASOR_API Result<NpyArray> read_npy(const std::filesystem::path& path);
// The same over bytes in memory; `name` stands in messages.
[[nodiscard]] PHASOR_API Result<NpyArray> parse_npy(std::span<const std::byte> bytes,
                                                    std::string_view name);
// Writes version 1.0, aligned to 64 bytes, through replace_file.
[[nodiscard]] PHASOR_API Result<Done> write_npy(const std::filesystem::path& path,
                                                const NpyArray& array);

}  // namespace phasor::io
