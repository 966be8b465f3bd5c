// GGUF files: any bytes give metadata and tensors inside them, or an error of one line.
#include "phasor/io/tensors.hpp"

#include <algorithm>
#include <vector>

#include "input.hpp"
#include "phasor/config/config.hpp"
#include "resolve.hpp"

using namespace phasor;

namespace {

template <class T>
void require_readable(const Result<T>& value) {
  if (!value) fuzz::require_one_line(value.error());
}

void get_each(const io::GgufFile& file) {
  for (const auto& [key, value] : file.metadata()) {
    require_readable(file.integer(key));
    require_readable(file.number(key));
    require_readable(file.flag(key));
    require_readable(file.text(key));
    require_readable(file.integers(key));
  }
}

void touch(const io::GgufFile& file, std::span<const std::byte> bytes) {
  for (const io::Tensor& tensor : file.tensors()) {
    fuzz::require(file.find(tensor.name) == &tensor);
    const std::int64_t block = io::block_elements(tensor.type);
    fuzz::require(tensor.size() % block == 0);
    fuzz::require(tensor.bytes.size() ==
                  static_cast<std::size_t>(tensor.size() / block) * io::block_bytes(tensor.type));
    fuzz::require_inside(tensor.bytes, bytes);
    std::vector<float> values(static_cast<std::size_t>(std::min(tensor.size(), 2 * block)));
    fuzz::allow_refusal([&] {
      io::to_floats(tensor, tensor.size() - static_cast<std::int64_t>(values.size()), values);
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > fuzz::kMaxInput) return 0;
  const std::span<const std::byte> bytes = fuzz::bytes_of(data, size);
  const Result<io::GgufFile> file = io::GgufFile::parse(bytes, "input");
  if (!file) {
    fuzz::require_one_line(file.error());
    return 0;
  }
  get_each(*file);
  touch(*file, bytes);
  const Result<config::ModelConfig> config = config::config_of_gguf(*file);
  require_readable(config);
  if (config) fuzz::resolve_each(*config);
  return 0;
}
