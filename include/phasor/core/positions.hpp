// The positions of the tokens of a call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "phasor/export.h"

namespace phasor::core {

// An offset, a list of numbers, or packed sequences. Make one with a function below.
//
// memory   `integers` and `floats` point into the caller's memory, or into memory that `keeper`
//          owns; copying a value copies no numbers
struct PHASOR_API Positions {
  enum class Kind : std::uint8_t { offset, integers, floats, packed };
  Kind kind = Kind::offset;
  const std::int64_t* integers = nullptr;  // packed: the sequences + 1 boundaries
  const double* floats = nullptr;
  int axes = 1;             // 1: the same position on every axis of a rotary
  std::int64_t batch = 0;   // 0: one row for every batch row
  std::int64_t tokens = 0;  // offset: 0 fits any number of tokens
  std::int64_t offset = 0;
  std::int64_t sequences = 0;
  std::shared_ptr<const void> keeper = nullptr;

  [[nodiscard]] bool is_list() const noexcept {
    return kind == Kind::integers || kind == Kind::floats;
  }
  // Numbers in a list.
  [[nodiscard]] std::int64_t count() const noexcept;
  // [tokens], [batch, tokens], [axes, tokens] or [axes, batch, tokens]
  [[nodiscard]] std::vector<std::int64_t> shape() const;

  // The position of one token. Packed sequences are searched: O(log sequences).
  //
  // precondition  check_positions() accepts a call that has this axis, batch row and token
  [[nodiscard]] double at(int axis, std::int64_t row, std::int64_t token) const noexcept;
  // The same for each axis: one value per element of `axes_out`.
  void read_token(std::int64_t row, std::int64_t token, std::span<double> axes_out) const noexcept;

  // The largest position of a call of `tokens` tokens; none if there is no position. `tokens` is read
  // for an offset only.
  [[nodiscard]] std::optional<double> largest(std::int64_t tokens) const noexcept;
  [[nodiscard]] std::optional<double> largest() const noexcept { return largest(tokens); }

  // The last `count` tokens of each row.
  //
  // throws   Error(shape_mismatch) if there are fewer
  // cost     a list is copied
  [[nodiscard]] Positions last_tokens(std::int64_t count) const;
};

// Token t of every batch row has position offset + t.
[[nodiscard]] PHASOR_API Positions positions_from(std::int64_t offset) noexcept;
// first, first + 1, ..., first + count - 1: as positions_from(first), for `count` tokens.
//
// throws   Error(invalid_argument) if count < 0; Error(out_of_range) beyond 2^53
[[nodiscard]] PHASOR_API Positions positions_counted(std::int64_t first, std::int64_t count);
// [tokens]: the same for every batch row.
[[nodiscard]] PHASOR_API Positions
positions_per_token(std::span<const std::int64_t> positions) noexcept;
[[nodiscard]] PHASOR_API Positions positions_per_token(std::span<const double> positions) noexcept;
// [axes, batch, tokens]; axes = 1 for text, 3 or 4 for M-RoPE, 2 for images.
[[nodiscard]] PHASOR_API Positions positions_per_row(const std::int64_t* positions, int axes,
                                                     std::int64_t batch,
                                                     std::int64_t tokens) noexcept;
[[nodiscard]] PHASOR_API Positions positions_per_row(const double* positions, int axes,
                                                     std::int64_t batch,
                                                     std::int64_t tokens) noexcept;
// Sequences one after another in one batch row: positions restart at `offset` at each boundary.
// boundaries = [0, ..., tokens].
[[nodiscard]] PHASOR_API Positions positions_packed(std::span<const std::int64_t> boundaries,
                                                    std::int64_t offset = 0) noexcept;

// An array of positions, row-major: [tokens], [batch, tokens] or [axes, batch, tokens]. [axes,
// tokens] is read as [batch, tokens]; fit_positions() corrects that. A pointer is viewed, a vector is
// owned by the result.
//
// throws   Error(shape_mismatch) for another rank, more than kMaxAxes axes, or a vector of another
//          size
[[nodiscard]] PHASOR_API Positions positions_of_shape(const std::int64_t* numbers,
                                                      std::span<const std::int64_t> shape);
[[nodiscard]] PHASOR_API Positions positions_of_shape(const double* numbers,
                                                      std::span<const std::int64_t> shape);
[[nodiscard]] PHASOR_API Positions positions_of_shape(std::vector<std::int64_t> numbers,
                                                      std::span<const std::int64_t> shape);
[[nodiscard]] PHASOR_API Positions positions_of_shape(std::vector<double> numbers,
                                                      std::span<const std::int64_t> shape);

// The shape that a call needs.
struct PositionsShape {
  enum class OneRow : std::uint8_t { serves_every_axis, serves_one_axis };
  int axes = 1;
  std::optional<std::int64_t> batch = std::nullopt;  // none: the tensor has no batch axis
  std::int64_t tokens = 0;
  // A text token of M-RoPE has the same position on every axis; an image patch does not.
  OneRow one_row = OneRow::serves_every_axis;
};
// The positions for that shape; [axes, tokens] is accepted if the tensor has no batch axis. No
// numbers are copied.
//
// throws   Error(shape_mismatch) with the given shape and those that would fit
[[nodiscard]] PHASOR_API Positions fit_positions(const Positions& positions,
                                                 const PositionsShape& shape);

struct PositionBounds {
  double low = 0.0, high = 0.0;
  bool integral = true;
};
// The lowest and highest position of a call of that shape; 0 and 0 if there is none.
//
// throws   Error(shape_mismatch) if positions do not fit the shape; Error(invalid_argument) for a
//          position that is not finite, boundaries that decrease
// cost     one read of a list; no allocation
[[nodiscard]] PHASOR_API PositionBounds check_positions(const Positions& positions, int axes,
                                                        std::int64_t batch, std::int64_t tokens);

}  // namespace phasor::core
