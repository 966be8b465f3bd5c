// The metadata of a GGUF file: keys with typed values.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "io/gguf/cursor.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::io {

using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

// throws   Error(invalid_argument)
[[nodiscard]] GgufMetadata read_gguf_metadata(GgufCursor& cursor, std::uint64_t count);

}  // namespace phasor::io
