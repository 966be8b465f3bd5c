// GGUF, versions 2 and 3, little endian: metadata, a tensor directory, tensors. Trusts no byte of
// the file.
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
#include "phasor/io/mapped_file.hpp"
#include "phasor/io/tensor.hpp"

namespace phasor::io {

// A metadata value. Arrays of numbers keep their order; an array of arrays is refused.
using GgufValue =
    std::variant<bool, std::int64_t, std::uint64_t, double, std::string, std::vector<bool>,
                 std::vector<std::int64_t>, std::vector<std::uint64_t>, std::vector<double>,
                 std::vector<std::string>>;

// A tensor of a type that Phasor does not read: its entry was checked like any other.
struct SkippedTensor {
  std::string name;
  std::string type;                 // ggml's name: "Q2_K", "IQ4_XS", ...
  std::vector<std::int64_t> shape;  // outermost first
};

class PHASOR_API GgufFile {
 public:
  // Refuses, naming the file, what was expected and what came: a wrong magic, another version, big
  // endian, counts and lengths that the file cannot hold, keys and names that repeat or are not 1 to
  // 65535 characters of printable ASCII, unknown value types, arrays of arrays, arrays of more than
  // 2^25 elements in all, a bool other than 0 and 1, an alignment that is no power of two up to
  // 2^30, types that ggml does not have, shapes with no, more than four, empty or overflowing
  // dimensions, rows that do not fill their blocks, offsets that are not aligned, leave the file or
  // overlap. Types of ggml that TensorType lacks do not stop a file: see skipped().
  [[nodiscard]] static Result<GgufFile> open(const std::filesystem::path& path);
  [[nodiscard]] static Result<GgufFile> parse(std::span<const std::byte> bytes,
                                              std::string_view name);

  [[nodiscard]] std::uint32_t version() const noexcept { return version_; }
  [[nodiscard]] const std::map<std::string, GgufValue, std::less<>>& metadata() const noexcept {
    return metadata_;
  }
  // Absent keys read as nullopt; a value of another kind is an Error that names the key. Any
  // integer type reads as an integer, any number as a number.
  [[nodiscard]] Result<std::optional<std::int64_t>> integer(std::string_view key) const;
  [[nodiscard]] Result<std::optional<double>> number(std::string_view key) const;
  [[nodiscard]] Result<std::optional<bool>> flag(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::string>> text(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::vector<std::int64_t>>> integers(
      std::string_view key) const;

  // In the order of the directory. Shapes are outermost first: the reverse of the file's.
  [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
  // Those of other types, in the order of the directory; find() does not see them.
  [[nodiscard]] const std::vector<SkippedTensor>& skipped() const noexcept { return skipped_; }
  [[nodiscard]] const Tensor* find(std::string_view name) const noexcept;
  // The path, for messages.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const MappedFile& file() const noexcept { return file_; }

 private:
  MappedFile file_;
  std::string name_;
  std::uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<Tensor> tensors_;
  std::vector<SkippedTensor> skipped_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

// Whether a file starts as a GGUF file does.
[[nodiscard]] PHASOR_API bool looks_like_gguf(const std::filesystem::path& path) noexcept;

}  // namespace phasor::io
