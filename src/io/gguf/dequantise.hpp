// Blocks of quantised elements back to float32.
#pragma once

#include <cstddef>
#include <span>

#include "phasor/io/tensors.hpp"

namespace phasor::io {

// Consecutive whole blocks of a q type. Every product and sum is one float32 operation,
// in the order that ggml writes them, so that the results equal ggml's bit for bit.
//
// precondition  out.size() is a multiple of block_elements(type); blocks has as many
void dequantise(TensorType type, const std::byte* blocks, std::span<float> out) noexcept;

}  // namespace phasor::io
