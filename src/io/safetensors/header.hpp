// The JSON at the front of a safetensors file: read and written without a tree in between, so that
// a hostile header costs no more memory than a few times its own length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/io/tensor.hpp"

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

// A tensor's name as it stands in messages: names are long, and their ends tell them apart.
[[nodiscard]] std::string quoted_name(std::string_view name);

// The message of an Error has no file name in front: `must ..., got ...`.
[[nodiscard]] Result<SafetensorsHeader> parse_safetensors_header(std::string_view text);

// "BF16"; empty for a type that safetensors does not have.
[[nodiscard]] std::string_view safetensors_name_of(TensorType type) noexcept;

// The length field and the text, padded to 8 bytes; each tensor's data follows that of the one
// before.
//
// error    as write_safetensors(), before anything is written
[[nodiscard]] Result<std::string> safetensors_front(
    const std::vector<Tensor>& tensors, const std::map<std::string, std::string>& metadata);

}  // namespace phasor::io
