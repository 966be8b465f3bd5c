// .npy files: any bytes give an array of the size of its shape, or an error of one line.
#include "phasor/io/npy.hpp"

#include "input.hpp"

using namespace phasor;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > fuzz::kMaxInput) return 0;
  const Result<io::NpyArray> array = io::parse_npy(fuzz::bytes_of(data, size), "input");
  if (!array) {
    fuzz::require_one_line(array.error());
    return 0;
  }
  fuzz::require(array->bytes.size() ==
                static_cast<std::size_t>(array->size()) * io::size_of(array->type));
  if (const auto dtype = io::dtype_of(*array, "input"); !dtype)
    fuzz::require_one_line(dtype.error());
  if (const auto doubles = io::to_doubles(*array); !doubles)
    fuzz::require_one_line(doubles.error());
  if (const auto integers = io::to_integers(*array); !integers)
    fuzz::require_one_line(integers.error());
  return 0;
}
