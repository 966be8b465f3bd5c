// safetensors files: any bytes give tensors inside them, or an error of one line.
#include "phasor/io/tensors.hpp"

#include <algorithm>
#include <array>

#include "input.hpp"

using namespace phasor;

namespace {

void touch(const io::SafetensorsFile& file, std::span<const std::byte> bytes) {
  for (const io::Tensor& tensor : file.tensors()) {
    fuzz::require(file.find(tensor.name) == &tensor);
    fuzz::require(tensor.bytes.size() ==
                  static_cast<std::size_t>(tensor.size()) * io::block_bytes(tensor.type));
    fuzz::require_inside(tensor.bytes, bytes);
    std::array<float, 4> values{};
    const std::size_t count = std::min(values.size(), static_cast<std::size_t>(tensor.size()));
    fuzz::allow_refusal([&] {
      io::to_floats(tensor, tensor.size() - static_cast<std::int64_t>(count),
                    std::span(values).first(count));
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > fuzz::kMaxInput) return 0;
  const std::span<const std::byte> bytes = fuzz::bytes_of(data, size);
  const Result<io::SafetensorsFile> file = io::SafetensorsFile::parse(bytes, "input");
  if (!file) {
    fuzz::require_one_line(file.error());
    return 0;
  }
  touch(*file, bytes);
  return 0;
}
