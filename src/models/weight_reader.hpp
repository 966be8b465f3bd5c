// Tensors of a checkpoint by name, with the shape they must have.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/models/checkpoint.hpp"
#include "phasor/models/internal/matrix.hpp"

namespace phasor::models {

// Rows [first, first + count) of a tensor of several matrices.
struct RowRange {
  std::int64_t first = 0, count = 0;
};

// throws   Error(invalid_argument): a missing tensor, a weight or scale that is not finite, with the
//          tensor's name; Error(shape_mismatch); Error(io): the file cannot be read or has become
//          shorter
class WeightReader {
 public:
  explicit WeightReader(Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  [[nodiscard]] bool has(std::string_view name) const;
  [[nodiscard]] Matrix matrix(std::string_view name, std::int64_t rows, std::int64_t columns);
  // Some rows of a tensor [rows, columns], the ranges concatenated.
  [[nodiscard]] Matrix matrix(std::string_view name, std::int64_t rows, std::int64_t columns,
                              std::span<const RowRange> parts);
  // The same of a tensor [columns, rows].
  //
  // throws   Error(unsupported) for a type of blocks, whose columns cannot be taken apart
  [[nodiscard]] Matrix transposed(std::string_view name, std::int64_t rows, std::int64_t columns,
                                  std::span<const RowRange> parts);
  // One of several matrices stored as [count, rows, columns].
  [[nodiscard]] Matrix matrix_of_stack(std::string_view name, std::int64_t count,
                                       std::int64_t index, std::int64_t rows, std::int64_t columns);
  [[nodiscard]] std::vector<float> vector(std::string_view name, std::int64_t size);
  // Any shape of `size` elements, for example [heads, head_dim].
  [[nodiscard]] std::vector<float> values(std::string_view name, std::int64_t size);

  // Marks a tensor as read: masks and frequencies of old checkpoints, which are not used.
  void skip(std::string_view name);
  // throws   Error(unsupported), with the name of the first tensor that was not read
  void refuse_unread(std::string_view model_type) const;

  [[nodiscard]] std::int64_t parameters() const noexcept { return parameters_; }
  [[nodiscard]] const std::set<std::string>& types() const noexcept { return types_; }
  [[nodiscard]] Checkpoint& checkpoint() noexcept { return checkpoint_; }

 private:
  [[nodiscard]] const io::Tensor& tensor(std::string_view name,
                                         std::initializer_list<std::int64_t> shape);
  void count(const io::Tensor& tensor);
  [[nodiscard]] Matrix packed(std::span<const TensorRows> parts) const;
  [[nodiscard]] std::vector<float> floats(const io::Tensor& tensor) const;

  Checkpoint& checkpoint_;
  std::int64_t parameters_ = 0;
  std::set<std::string> types_;
  std::set<std::string, std::less<>> counted_;
};

}  // namespace phasor::models
