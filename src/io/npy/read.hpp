// .npy files from any stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/files/byte_stream.hpp"
#include "io/npy/header.hpp"
#include "phasor/io/npy.hpp"

namespace phasor::io {

// What a file says about its array.
struct NpyFacts {
  NpyType type = NpyType::f32;
  NpyHeader::Order order = NpyHeader::Order::c;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;  // of the data: the rest of the stream
};

// Reads up to the data; every size is checked. Errors as read_npy().
[[nodiscard]] Result<NpyFacts> read_npy_facts(ByteStream& stream);
[[nodiscard]] Result<NpyArray> read_npy_stream(ByteStream& stream);

}  // namespace phasor::io
