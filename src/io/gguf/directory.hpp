// The tensor directory of a GGUF file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/gguf/cursor.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::io {

struct GgufDirectory {
  std::vector<Tensor> tensors;
  std::vector<SkippedTensor> skipped;
};

// Reads the entries and checks that their bytes are inside `source`, aligned and without overlap.
// `cursor` is at the first entry of `source`.
//
// throws   Error(invalid_argument); Error(io)
[[nodiscard]] GgufDirectory read_gguf_directory(GgufCursor& cursor, std::uint64_t count,
                                                std::size_t alignment, const ByteSource& source);

}  // namespace phasor::io
