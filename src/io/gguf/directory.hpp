// The tensor directory of a GGUF file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "phasor/io/internal/gguf_cursor.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::io {

struct GgufDirectory {
  std::vector<Tensor> tensors;
  std::vector<SkippedTensor> skipped;
};

// Reads the entries and checks that their bytes are inside `file`, aligned and without overlap.
// `cursor` is at the first entry of `file`.
//
// throws   Error(invalid_argument)
[[nodiscard]] GgufDirectory read_gguf_directory(GgufCursor& cursor, std::uint64_t count,
                                                std::size_t alignment,
                                                std::span<const std::byte> file);

}  // namespace phasor::io
