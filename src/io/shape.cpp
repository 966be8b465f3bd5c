#include "phasor/io/internal/shape.hpp"

#include "phasor/core/internal/message_text.hpp"

namespace phasor::io {

Result<std::size_t> byte_count(std::size_t element_bytes, const std::vector<std::int64_t>& shape) {
  if (shape.size() > kMaxDims) {
    return Error(ErrorCode::io,
                 message("shape must have at most ", kMaxDims, " dimensions, got ", shape.size()));
  }
  auto bytes = static_cast<std::int64_t>(element_bytes);
  bool empty = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) {
      return Error(ErrorCode::io,
                   message("shape must not be negative, got ", core::shape_text(shape)));
    }
    empty = empty || dim == 0;
    if (dim != 0 && __builtin_mul_overflow(bytes, dim, &bytes)) {
      return Error(ErrorCode::io,
                   message("size must fit in 63 bits, got shape ", core::shape_text(shape)));
    }
  }
  return empty ? 0 : static_cast<std::size_t>(bytes);
}

}  // namespace phasor::io
