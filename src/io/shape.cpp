#include "phasor/io/internal/shape.hpp"

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
      return Error(ErrorCode::io, message("shape must not be negative, got ", shape_text(shape)));
    }
    empty = empty || dim == 0;
    if (dim != 0 && __builtin_mul_overflow(bytes, dim, &bytes)) {
      return Error(ErrorCode::io,
                   message("size must fit in 63 bits, got shape ", shape_text(shape)));
    }
  }
  return empty ? 0 : static_cast<std::size_t>(bytes);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "(";
  for (const std::int64_t dim : shape) out += std::to_string(dim) + ", ";
  if (shape.size() > 1) out.resize(out.size() - 2);
  if (shape.size() == 1) out.resize(out.size() - 1);
  return out + ")";
}

std::string in_quotes(std::string_view text, std::size_t longest) {
  std::string out = "'";
  for (const char c : text.substr(0, longest)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out + (text.size() > longest ? "...'" : "'");
}

}  // namespace phasor::io
