#include "heads_file.hpp"

#include <cstddef>
#include <vector>

#include "arrays.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::tools {

HeadsFile::HeadsFile(const std::string& path, std::string_view role) : array(read_array(path)) {
  const std::vector<std::int64_t>& shape = array.shape;
  if (shape.size() != 3 && shape.size() != 4) {
    refuse(ErrorCode::shape_mismatch,
           message(path, ": ", role,
                   " must have the shape [batch, tokens, heads, head_dim] or [tokens, heads, "
                   "head_dim], got ",
                   core::shape_text(shape)));
  }
  const core::DType dtype = io::dtype_of(array, path).value_or_throw();
  batched = shape.size() == 4;
  const std::size_t first = batched ? 1 : 0;
  view = core::heads_view(array.as<float>(), batched ? shape[0] : 1, shape[first], shape[first + 1],
                          shape[first + 2]);
  view.data = array.bytes.data();
  view.dtype = dtype;
}

}  // namespace phasor::tools
