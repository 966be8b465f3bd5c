// The JSON header of a safetensors file, read and written without a tree: an untrusted header needs
// at most a few times its own length in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::io {

inline constexpr std::size_t kMaxSafetensorsHeader = 100'000'000;  // the format's own limit
inline constexpr std::size_t kSafetensorsLengthField = 8;          // little endian
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

struct SafetensorsHeader {
  struct Entry {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0, end = 0;  // offsets into the data; not yet checked
  };
  std::vector<Entry> entries;  // in the order of the text
  std::map<std::string, std::string> metadata;
};

// Error(io | unsupported), without a file name.
[[nodiscard]] Result<SafetensorsHeader> parse_safetensors_header(std::string_view text);

// "BF16"; empty for a type that safetensors does not have.
[[nodiscard]] std::string_view safetensors_name_of(TensorType type) noexcept;

// The length field and the text, padded to 8 bytes, for tensors stored without gaps.
//
// error    as write_safetensors(), before anything is written
[[nodiscard]] Result<std::string> safetensors_front(
    const std::vector<Tensor>& tensors, const std::map<std::string, std::string>& metadata);

}  // namespace phasor::io
