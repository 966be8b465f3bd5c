// GGUF files, versions 2 and 3, little-endian: metadata and tensors. Files are untrusted input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/export.h"
#include "phasor/io/tensor.hpp"

namespace phasor::io {

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

class ByteSource;  // of src/io/files

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
