// Files of arrays (.npz, .pt, .safetensors, .npy): any bytes give arrays of the sizes of their shapes, or
// errors of one line.
#include "arrays.hpp"

using namespace phasor;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > fuzz::kMaxInput) return 0;
  fuzz::read_arrays(fuzz::bytes_of(data, size));
  return 0;
}
