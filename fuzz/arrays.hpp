// Reads every array that a file offers.
#pragma once

#include "input.hpp"
#include "phasor/io/internal/array_file.hpp"

namespace phasor::fuzz {

// A file of a few KiB may claim more: deflate and expanded views repeat, by about a thousand each.
inline constexpr std::size_t kMaxArray = std::size_t{64} << 20;

inline void read_arrays(std::span<const std::byte> bytes) {
  const Result<io::ArrayFile> file = io::ArrayFile::parse(bytes, "input");
  if (!file) {
    require_one_line(file.error());
    return;
  }
  for (std::size_t i = 0; i < file->entries().size(); ++i) {
    const io::ArrayEntry& entry = file->entries()[i];
    if (entry.problem) require_one_line(*entry.problem);
    if (entry.bytes > kMaxArray) continue;
    const Result<io::NpyArray> array = file->read(i);
    if (!array) {
      require_one_line(array.error());
      continue;
    }
    require(!entry.problem && array->bytes.size() == entry.bytes && array->shape == entry.shape);
    require(array->bytes.size() ==
            static_cast<std::size_t>(array->size()) * io::size_of(array->type));
  }
  if (const auto only = file->read(std::nullopt); !only) require_one_line(only.error());
}

}  // namespace phasor::fuzz
