#include "phasor/models/matrix.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/large_memory.hpp"
#include "phasor/core/error.hpp"

namespace phasor::models {

struct Matrix::Packed {
  io::TensorType type = io::TensorType::f32;
  std::int64_t rows = 0, columns = 0;
  std::size_t row_bytes = 0, size = 0;
  std::shared_ptr<std::byte[]> bytes;
};

namespace {

bool has_product(io::TensorType type) noexcept {
  switch (type) {
    case io::TensorType::f64:
    case io::TensorType::f32:
    case io::TensorType::f16:
    case io::TensorType::bf16:
    case io::TensorType::q4_0:
    case io::TensorType::q4_1:
    case io::TensorType::q5_0:
    case io::TensorType::q5_1:
    case io::TensorType::q8_0:
    case io::TensorType::q4_k:
    case io::TensorType::q5_k:
    case io::TensorType::q6_k:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string_view name_of(Precision precision) noexcept {
  return precision == Precision::exact ? "exact" : "fast";
}

Matrix Matrix::pack(std::span<const TensorRows> parts) {
  auto packed = std::make_shared<Packed>();
  if (parts.empty()) throw Error(ErrorCode::shape_mismatch, "pack: rows must be given, got none");
  for (const TensorRows& part : parts) {
    const io::Tensor& tensor = *part.tensor;
    if (!has_product(tensor.type) || (packed->rows != 0 && tensor.type != packed->type)) {
      throw Error(ErrorCode::unsupported,
                  message("pack: tensor '", tensor.name, "': type must be one with a product, got ",
                          io::name_of(tensor.type)));
    }
    const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
    const std::int64_t rows = columns == 0 ? 0 : tensor.size() / columns;
    if (part.first < 0 || part.count < 1 || part.first > rows || part.count > rows - part.first ||
        columns < 1 || (packed->rows != 0 && columns != packed->columns)) {
      throw Error(ErrorCode::shape_mismatch,
                  message("pack: tensor '", tensor.name, "': rows must lie in [0, ", rows,
                          "), got ", part.count, " from ", part.first));
    }
    packed->type = tensor.type;
    packed->columns = columns;
    packed->rows += part.count;
  }
  packed->row_bytes = static_cast<std::size_t>(packed->columns / io::block_elements(packed->type)) *
                      io::block_bytes(packed->type);
  packed->size = packed->row_bytes * static_cast<std::size_t>(packed->rows);
  packed->bytes = core::allocate_large(static_cast<std::size_t>(packed->rows), packed->row_bytes);
  std::byte* to = packed->bytes.get();
  for (const TensorRows& part : parts) {
    const std::size_t size = packed->row_bytes * static_cast<std::size_t>(part.count);
    std::memcpy(
        to, part.tensor->bytes.data() + packed->row_bytes * static_cast<std::size_t>(part.first),
        size);
    to += size;
  }
  Matrix matrix;
  matrix.packed_ = std::move(packed);
  return matrix;
}

Matrix Matrix::pack(const io::Tensor& tensor) {
  const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  const TensorRows whole{&tensor, 0, columns == 0 ? 0 : tensor.size() / columns};
  return pack(std::span(&whole, 1));
}

std::int64_t Matrix::rows() const noexcept { return packed_ ? packed_->rows : 0; }
std::int64_t Matrix::columns() const noexcept { return packed_ ? packed_->columns : 0; }
io::TensorType Matrix::type() const noexcept {
  return packed_ ? packed_->type : io::TensorType::f32;
}
std::size_t Matrix::bytes() const noexcept { return packed_ ? packed_->size : 0; }

void Matrix::row(std::int64_t index, std::span<float> out) const {
  if (index < 0 || index >= rows()) {
    throw Error(ErrorCode::out_of_range,
                message("row: index must lie in [0, ", rows(), "), got ", index));
  }
  if (static_cast<std::int64_t>(out.size()) != columns()) {
    throw Error(ErrorCode::shape_mismatch,
                message("row: out must have ", columns(), " elements, got ", out.size()));
  }
  io::Tensor view;
  view.type = packed_->type;
  view.shape = {packed_->rows, packed_->columns};
  view.bytes = {packed_->bytes.get(), packed_->size};
  io::to_floats(view, index * packed_->columns, out);
}

void multiply(std::span<const Product> products, const float* x, std::int64_t tokens,
              std::int64_t x_stride, const ComputeOptions& /*options*/) {
  std::vector<float> row;
  for (const Product& product : products) {
    row.resize(static_cast<std::size_t>(product.matrix->columns()));
    for (std::int64_t r = 0; r < product.matrix->rows(); ++r) {
      product.matrix->row(r, row);
      for (std::int64_t t = 0; t < tokens; ++t) {
        double sum = product.bias != nullptr ? static_cast<double>(product.bias[r]) : 0;
        for (std::size_t c = 0; c < row.size(); ++c)
          sum += static_cast<double>(row[c]) *
                 static_cast<double>(x[t * x_stride + static_cast<std::int64_t>(c)]);
        product.out[t * product.out_stride + r] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace phasor::models
