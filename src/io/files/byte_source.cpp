#include "io/files/byte_source.hpp"

#include <algorithm>

namespace phasor::io {

void ByteSource::read(std::uint64_t offset, std::span<std::byte> into) const {
  if (file_ != nullptr) {
    (void)read_at(*file_, offset, into).value_or_throw();
  } else {
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
  }
}

void ByteSource::place(Tensor& tensor, std::uint64_t offset) const {
  tensor.offset = offset;
  if (file_ != nullptr) {
    tensor.file = file_;
  } else {
    tensor.bytes = bytes_.subspan(static_cast<std::size_t>(offset), tensor.byte_size());
  }
}

}  // namespace phasor::io
