#include "models/weight_reader.hpp"

#include <algorithm>
#include <cmath>

#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file_text.hpp"

namespace phasor::models {

bool WeightReader::has(std::string_view name) const {
  const std::vector<const io::Tensor*> all = checkpoint_.tensors();
  return std::any_of(all.begin(), all.end(),
                     [&](const io::Tensor* tensor) { return tensor->name == name; });
}

const io::Tensor& WeightReader::tensor(std::string_view name,
                                       std::initializer_list<std::int64_t> shape) {
  const io::Tensor* const found = checkpoint_.find(name);
  const std::span<const std::int64_t> wanted(shape.begin(), shape.size());
  if (found == nullptr) {
    refuse(message(checkpoint_.name(), ": tensor ", name, " ", core::shape_text(wanted),
                   " is missing"));
  }
  if (!std::equal(found->shape.begin(), found->shape.end(), wanted.begin(), wanted.end())) {
    refuse(ErrorCode::shape_mismatch,
           message(checkpoint_.name(), ": tensor ", name, " must be ", core::shape_text(wanted),
                   ", got ", core::shape_text(found->shape)));
  }
  count(*found);
  return *found;
}

// A tensor that is read in several parts counts once.
void WeightReader::count(const io::Tensor& tensor) {
  if (!counted_.insert(tensor.name).second) return;
  parameters_ += tensor.size();
  types_.emplace(io::name_of(tensor.type));
}

Matrix WeightReader::matrix(std::string_view name, std::int64_t rows, std::int64_t columns) {
  const RowRange all{0, rows};
  return matrix(name, rows, columns, {&all, 1});
}

Matrix WeightReader::matrix(std::string_view name, std::int64_t rows, std::int64_t columns,
                            std::span<const RowRange> parts) {
  const io::Tensor& found = tensor(name, {rows, columns});
  std::vector<TensorRows> ranges;
  for (const RowRange& part : parts) ranges.push_back({&found, part.first, part.count});
  return packed(ranges);
}

Matrix WeightReader::transposed(std::string_view name, std::int64_t rows, std::int64_t columns,
                                std::span<const RowRange> parts) {
  const io::Tensor& found = tensor(name, {columns, rows});
  if (io::block_elements(found.type) != 1) {
    refuse(ErrorCode::unsupported, message(checkpoint_.name(), ": tensor ", name, ": type ",
                                           io::name_of(found.type), " cannot be transposed"));
  }
  const std::size_t size = io::block_bytes(found.type);
  std::vector<std::byte> stored(found.byte_size()), bytes(found.byte_size());
  io::read_bytes(found, 0, stored);
  const auto height = static_cast<std::size_t>(rows), width = static_cast<std::size_t>(columns);
  for (std::size_t r = 0; r < height; ++r) {
    for (std::size_t c = 0; c < width; ++c) {
      std::copy_n(stored.begin() + static_cast<std::ptrdiff_t>((c * height + r) * size), size,
                  bytes.begin() + static_cast<std::ptrdiff_t>((r * width + c) * size));
    }
  }
  const io::Tensor flipped{
      .name = found.name, .type = found.type, .shape = {rows, columns}, .bytes = bytes};
  std::vector<TensorRows> ranges;
  for (const RowRange& part : parts) ranges.push_back({&flipped, part.first, part.count});
  return packed(ranges);
}

Matrix WeightReader::packed(std::span<const TensorRows> parts) const {
  try {
    return Matrix::pack(parts);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io) throw;  // names the file
    throw io::in_file(checkpoint_.name(), error);
  }
}

Matrix WeightReader::matrix_of_stack(std::string_view name, std::int64_t count, std::int64_t index,
                                     std::int64_t rows, std::int64_t columns) {
  const io::Tensor& found = tensor(name, {count, rows, columns});
  const TensorRows range{&found, index * rows, rows};
  return packed({&range, 1});
}

std::vector<float> WeightReader::vector(std::string_view name, std::int64_t size) {
  return floats(tensor(name, {size}));
}

std::vector<float> WeightReader::floats(const io::Tensor& tensor) const {
  std::vector<float> out(static_cast<std::size_t>(tensor.size()));
  io::to_floats(tensor, 0, out);
  const auto found =
      std::find_if(out.begin(), out.end(), [](float value) { return !std::isfinite(value); });
  if (found != out.end()) {
    refuse(message(checkpoint_.name(), ": tensor ", tensor.name, ": weights must be finite, got ",
                   *found, " in element ", found - out.begin()));
  }
  return out;
}

std::vector<float> WeightReader::values(std::string_view name, std::int64_t size) {
  const io::Tensor* const found = checkpoint_.find(name);
  if (found == nullptr || found->size() != size) return vector(name, size);
  count(*found);
  return floats(*found);
}

void WeightReader::skip(std::string_view name) { (void)checkpoint_.find(name); }

void WeightReader::refuse_unread(std::string_view model_type) const {
  const std::vector<std::string> rest = checkpoint_.unread();
  if (rest.empty()) return;
  refuse(ErrorCode::unsupported,
         message(checkpoint_.name(), ": unknown tensor for model_type ", model_type, ": ",
                 io::one_line(rest.front()),
                 rest.size() > 1 ? message(" and ", rest.size() - 1, " more") : ""));
}

}  // namespace phasor::models
