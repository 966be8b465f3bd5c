#include "phasor/models/internal/matrix.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "models/matrix/dispatch.hpp"
#include "models/matrix/packed.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/finite.hpp"

namespace phasor::models {
namespace {

using io::TensorType;
using kernels::kGroupRows;

struct Extent {
  std::int64_t rows, columns;
};
Extent extent_of(const io::Tensor& tensor) {
  const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  return {columns == 0 ? 0 : tensor.size() / columns, columns};
}

[[noreturn]] void refuse_tensor(ErrorCode code, const io::Tensor& tensor, const std::string& what) {
  refuse(code, message("pack: tensor '", tensor.name, "': ", what));
}

// `first` is the first of the parts.
void check_part(const TensorRows& part, const TensorRows& first) {
  if (part.tensor == nullptr) refuse("pack: the tensor of a part is null");
  const io::Tensor& tensor = *part.tensor;
  if (!format_of(tensor.type)) {
    refuse_tensor(ErrorCode::unsupported, tensor,
                  message("type must be a float or a quantised type of GGUF, got ",
                          io::name_of(tensor.type)));
  }
  if (tensor.type != first.tensor->type) {
    refuse_tensor(ErrorCode::unsupported, tensor,
                  message("type must be the same as the first part's, ",
                          io::name_of(first.tensor->type), ", got ", io::name_of(tensor.type)));
  }
  const auto [rows, columns] = extent_of(tensor);
  if (columns < 1 || columns % io::block_elements(tensor.type) != 0) {
    refuse_tensor(ErrorCode::shape_mismatch, tensor,
                  message("columns must be a positive multiple of ",
                          io::block_elements(tensor.type), ", got ", columns));
  }
  if (columns != extent_of(*first.tensor).columns) {
    refuse_tensor(ErrorCode::shape_mismatch, tensor,
                  message("columns must be ", extent_of(*first.tensor).columns,
                          " as in the first part, got ", columns));
  }
  if (part.first < 0 || part.count < 1 || part.first > rows || part.count > rows - part.first) {
    refuse_tensor(
        ErrorCode::shape_mismatch, tensor,
        message("the tensor has ", rows, " rows, got ", part.count, " from row ", part.first));
  }
  if (tensor.file == nullptr && tensor.bytes.size() != tensor.byte_size()) {
    refuse_tensor(ErrorCode::shape_mismatch, tensor,
                  message("bytes must be ", tensor.byte_size(), ", got ", tensor.bytes.size()));
  }
}

// `rows` are whole rows of the tensor from row `first` on.
void refuse_non_finite(const io::Tensor& tensor, std::int64_t first, std::int64_t columns,
                       std::span<const std::byte> rows) {
  const std::optional<io::NonFinite> found = io::find_non_finite(tensor.type, rows);
  if (!found) return;
  const std::int64_t elements = io::block_elements(tensor.type);
  const std::int64_t at = static_cast<std::int64_t>(found->block) * elements;
  const std::int64_t column = at % columns;
  refuse_tensor(ErrorCode::invalid_argument, tensor,
                elements == 1 ? message("weights must be finite, got ", found->value, " in row ",
                                        first + at / columns, ", column ", column)
                              : message("the scales of blocks must be finite, got ", found->value,
                                        " in row ", first + at / columns, ", columns ", column,
                                        " to ", column + elements - 1));
}

// The parts below each other, into the order of the kernels.
struct Packing {
  std::span<const TensorRows> parts;
  Matrix::Packed& packed;
  std::int64_t columns;
  std::size_t row_bytes;

  // Rows [from, to) of the result, whole groups.
  void run(std::int64_t from, std::int64_t to) const {
    // Rows at a time that stay in the processor's cache between the file, the check and the packing.
    constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
    // Whole groups, which are packed at once.
    const std::int64_t most = rounded_up(
        static_cast<std::int64_t>(std::max<std::size_t>(1, kPieceBytes / row_bytes)), kGroupRows);
    std::vector<std::byte> read;
    std::int64_t before = 0;  // rows of the parts before this one
    for (const TensorRows& part : parts) {
      const io::Tensor& tensor = *part.tensor;
      const std::int64_t end = std::min(part.count, to - before);
      for (std::int64_t at = std::max<std::int64_t>(0, from - before); at < end;) {
        const std::int64_t count = std::min(most, end - at);
        const std::size_t begin = static_cast<std::size_t>(part.first + at) * row_bytes;
        const std::size_t size = static_cast<std::size_t>(count) * row_bytes;
        std::span<const std::byte> piece;
        if (tensor.file == nullptr) {
          piece = tensor.bytes.subspan(begin, size);
        } else {
          read.resize(size);
          io::read_bytes(tensor, begin, read);
          piece = read;
        }
        refuse_non_finite(tensor, part.first + at, columns, piece);
        pack_rows(packed, before + at, count, piece.data());
        at += count;
      }
      before += part.count;
    }
  }
};

}  // namespace

std::string_view name_of(Precision precision) noexcept {
  return precision == Precision::exact ? "exact" : "fast";
}

Matrix Matrix::pack(std::span<const TensorRows> parts) {
  if (parts.empty()) refuse(ErrorCode::shape_mismatch, "pack: parts is empty");
  std::int64_t rows = 0;
  for (const TensorRows& part : parts) {
    check_part(part, parts.front());
    rows += part.count;
  }
  const TensorType type = parts.front().tensor->type;
  const std::int64_t columns = extent_of(*parts.front().tensor).columns;
  const std::shared_ptr<Packed> packed = make_packed(type, rows, columns);
  const std::size_t row_bytes =
      static_cast<std::size_t>(columns / io::block_elements(type)) * io::block_bytes(type);
  Packing packing{parts, *packed, columns, row_bytes};
  // New memory costs more than the packing: its pages are cleared when they are first written, and
  // threads do that at the same time.
  const std::int64_t worth = packed->weights.groups * packed->weights.group_bytes /
                             static_cast<std::int64_t>(core::kThreadBytes);
  core::run_parts(
      static_cast<int>(std::clamp<std::int64_t>(worth, 1, core::available_threads())),
      [](void* context, int part, int count) {
        const auto& self = *static_cast<const Packing*>(context);
        const std::int64_t groups = self.packed.weights.groups;
        self.run(groups * part / count * kGroupRows, groups * (part + 1) / count * kGroupRows);
      },
      &packing);
  Matrix matrix;
  matrix.packed_ = packed;
  return matrix;
}

Matrix Matrix::pack(const io::Tensor& tensor) {
  const TensorRows whole{&tensor, 0, extent_of(tensor).rows};
  return pack(std::span(&whole, 1));
}

std::int64_t Matrix::rows() const noexcept { return packed_ == nullptr ? 0 : packed_->rows; }
std::int64_t Matrix::columns() const noexcept { return packed_ == nullptr ? 0 : packed_->columns; }
TensorType Matrix::type() const noexcept {
  return packed_ == nullptr ? TensorType::f32 : packed_->type;
}
std::size_t Matrix::bytes() const noexcept {
  if (packed_ == nullptr) return 0;
  return static_cast<std::size_t>(packed_->weights.groups * packed_->weights.group_bytes);
}

void Matrix::row(std::int64_t index, std::span<float> out) const {
  if (index < 0 || index >= rows()) {
    refuse(ErrorCode::out_of_range,
           message("row: index must be in [0, ", rows(), "), got ", index));
  }
  if (static_cast<std::int64_t>(out.size()) != columns()) {
    refuse(ErrorCode::shape_mismatch,
           message("row: out must have ", columns(), " elements, got ", out.size()));
  }
  // The whole group, since its rows are interleaved.
  ThreadScratch scratch;
  auto* const group = reinterpret_cast<float*>(
      scratch.at_least(static_cast<std::size_t>(kGroupRows * columns()) * sizeof(float)));
  kernels_for(core::InstructionSet::best)
      .dequantise(packed_->weights, index / kGroupRows, group, kGroupRows);
  const std::size_t lane = static_cast<std::size_t>(index % kGroupRows);
  for (std::size_t c = 0; c < out.size(); ++c)
    out[c] = group[c * static_cast<std::size_t>(kGroupRows) + lane];
}

}  // namespace phasor::models
