#include "phasor/core/positions.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/core/internal/positions.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::core {
namespace {

using Kind = Positions::Kind;

void point_to(Positions& positions, const std::int64_t* numbers) noexcept {
  positions.kind = Kind::integers;
  positions.integers = numbers;
}
void point_to(Positions& positions, const double* numbers) noexcept {
  positions.kind = Kind::floats;
  positions.floats = numbers;
}

template <class T>
Positions list_of(const T* numbers, int axes, std::int64_t batch, std::int64_t tokens) noexcept {
  Positions positions;
  point_to(positions, numbers);
  positions.axes = axes;
  positions.batch = batch;
  positions.tokens = tokens;
  return positions;
}

template <class T>
Positions view_of_shape(const T* numbers, std::span<const std::int64_t> shape) {
  const bool negative = std::any_of(shape.begin(), shape.end(), [](auto n) { return n < 0; });
  if (shape.empty() || shape.size() > 3 || negative || (shape.size() == 3 && shape[0] > kMaxAxes)) {
    refuse(ErrorCode::shape_mismatch,
           message("positions must have the shape [tokens], [batch, tokens], [axes, tokens] or "
                   "[axes, batch, tokens] with at most ",
                   kMaxAxes, " axes, got ", shape_text(shape)));
  }
  const std::size_t rank = shape.size();
  const std::int64_t batch = rank == 1 ? 0 : shape[rank - 2];
  // batch 0 means one row for all; an array without rows has a null pointer instead.
  const bool no_rows = rank > 1 && batch == 0;
  return list_of(no_rows ? nullptr : numbers, rank == 3 ? static_cast<int>(shape[0]) : 1, batch,
                 shape.back());
}

template <class T>
Positions keep(std::vector<T> numbers, std::span<const std::int64_t> shape) {
  Positions positions = view_of_shape(numbers.data(), shape);
  std::int64_t size = 1;
  for (const std::int64_t n : shape) size *= n;
  if (size != static_cast<std::int64_t>(numbers.size())) {
    refuse(ErrorCode::shape_mismatch, message("positions of the shape ", shape_text(shape),
                                              " must be ", size, ", got ", numbers.size()));
  }
  const auto kept = std::make_shared<const std::vector<T>>(std::move(numbers));
  if (size != 0) point_to(positions, kept->data());
  positions.keeper = kept;
  return positions;
}

std::int64_t longest_sequence(const Positions& positions) noexcept {
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < positions.sequences; ++i) {
    longest = std::max(longest, positions.integers[i + 1] - positions.integers[i]);
  }
  return longest;
}

PositionBounds bounds_of_list(const Positions& positions) {
  const std::int64_t count = positions.count();
  if (positions.kind == Kind::integers) {
    const auto [low, high] = std::minmax_element(positions.integers, positions.integers + count);
    return {static_cast<double>(*low), static_cast<double>(*high), true};
  }
  PositionBounds bounds{positions.floats[0], positions.floats[0], false};
  for (std::int64_t i = 0; i < count; ++i) {
    const double position = positions.floats[i];
    if (!std::isfinite(position))
      refuse(message("positions must be finite, got ", position, " at index ", i));
    bounds.low = std::min(bounds.low, position);
    bounds.high = std::max(bounds.high, position);
  }
  return bounds;
}

PositionBounds bounds_from(std::int64_t offset, std::int64_t tokens) {
  const auto low = static_cast<double>(offset);
  return {low, low + static_cast<double>(std::max<std::int64_t>(tokens, 1) - 1), true};
}

void check_packed(const Positions& positions, std::int64_t batch, std::int64_t tokens) {
  if (batch != 1)
    refuse(ErrorCode::shape_mismatch, message("packed positions need batch 1, got ", batch));
  const std::int64_t* boundaries = positions.integers;
  if (positions.sequences < 0) {
    refuse(ErrorCode::shape_mismatch,
           message("packed positions: no boundaries for ", tokens, " tokens"));
  }
  if (boundaries[0] != 0 || boundaries[positions.sequences] != tokens) {
    refuse(ErrorCode::shape_mismatch,
           message("packed positions: boundaries must run from 0 to the token count ", tokens,
                   ", got ", boundaries[0], " to ", boundaries[positions.sequences]));
  }
  for (std::int64_t i = 0; i < positions.sequences; ++i) {
    if (boundaries[i + 1] < boundaries[i]) {
      refuse(message("packed positions: boundaries must not decrease, got ", boundaries[i],
                     " then ", boundaries[i + 1]));
    }
  }
}

}  // namespace

Positions positions_from(std::int64_t offset) noexcept {
  Positions positions;
  positions.offset = offset;
  return positions;
}

Positions positions_counted(std::int64_t first, std::int64_t count) {
  if (count < 0) refuse(message("positions: count must not be negative, got ", count));
  // In double: first + count may not fit an integer.
  const double end = static_cast<double>(first) + static_cast<double>(count);
  if (std::fabs(static_cast<double>(first)) > kMaxPosition || end > kMaxPosition) {
    refuse(ErrorCode::out_of_range,
           message("positions must be within 2^53 of 0, got ", first, " and ", count, " more"));
  }
  // An offset with 0 tokens would fit any number of tokens.
  if (count == 0) return positions_per_token(std::span<const std::int64_t>());
  Positions positions = positions_from(first);
  positions.tokens = count;
  return positions;
}

Positions positions_per_token(std::span<const std::int64_t> positions) noexcept {
  return list_of(positions.data(), 1, 0, static_cast<std::int64_t>(positions.size()));
}
Positions positions_per_token(std::span<const double> positions) noexcept {
  return list_of(positions.data(), 1, 0, static_cast<std::int64_t>(positions.size()));
}
Positions positions_per_row(const std::int64_t* positions, int axes, std::int64_t batch,
                            std::int64_t tokens) noexcept {
  return list_of(positions, axes, batch, tokens);
}
Positions positions_per_row(const double* positions, int axes, std::int64_t batch,
                            std::int64_t tokens) noexcept {
  return list_of(positions, axes, batch, tokens);
}
Positions positions_packed(std::span<const std::int64_t> boundaries, std::int64_t offset) noexcept {
  Positions positions;
  positions.kind = Kind::packed;
  positions.integers = boundaries.data();
  positions.offset = offset;
  positions.sequences = static_cast<std::int64_t>(boundaries.size()) - 1;
  positions.tokens = boundaries.empty() ? 0 : boundaries.back();
  return positions;
}

Positions positions_of_shape(const std::int64_t* numbers, std::span<const std::int64_t> shape) {
  return view_of_shape(numbers, shape);
}
Positions positions_of_shape(const double* numbers, std::span<const std::int64_t> shape) {
  return view_of_shape(numbers, shape);
}
Positions positions_of_shape(std::vector<std::int64_t> numbers,
                             std::span<const std::int64_t> shape) {
  return keep(std::move(numbers), shape);
}
Positions positions_of_shape(std::vector<double> numbers, std::span<const std::int64_t> shape) {
  return keep(std::move(numbers), shape);
}

std::int64_t Positions::count() const noexcept {
  if (integers == nullptr && floats == nullptr) return 0;
  return is_list() ? axes * std::max<std::int64_t>(batch, 1) * tokens : 0;
}

std::vector<std::int64_t> Positions::shape() const {
  const bool no_rows = is_list() && tokens > 0 && integers == nullptr && floats == nullptr;
  std::vector<std::int64_t> shape;
  if (axes != 1) shape.push_back(axes);
  if (batch != 0 || no_rows) shape.push_back(batch);
  shape.push_back(tokens);
  return shape;
}

double Positions::at(int axis, std::int64_t row, std::int64_t token) const noexcept {
  if (kind == Kind::offset) return static_cast<double>(offset + token);
  if (kind == Kind::packed) {
    const std::int64_t* const next = std::upper_bound(integers, integers + sequences + 1, token);
    return static_cast<double>(offset + token - next[-1]);
  }
  const std::int64_t rows = std::max<std::int64_t>(batch, 1);
  const std::int64_t index =
      ((axes == 1 ? 0 : axis) * rows + (batch == 0 ? 0 : row)) * tokens + token;
  return kind == Kind::integers ? static_cast<double>(integers[index]) : floats[index];
}

void Positions::read_token(std::int64_t row, std::int64_t token,
                           std::span<double> axes_out) const noexcept {
  for (std::size_t axis = 0; axis < axes_out.size(); ++axis)
    axes_out[axis] = at(static_cast<int>(axis), row, token);
}

std::optional<double> Positions::largest(std::int64_t call_tokens) const noexcept {
  if (is_list()) {
    const std::int64_t numbers = count();
    if (numbers == 0) return std::nullopt;
    return kind == Kind::integers
               ? static_cast<double>(*std::max_element(integers, integers + numbers))
               : *std::max_element(floats, floats + numbers);
  }
  const std::int64_t longest = kind == Kind::packed ? longest_sequence(*this) : call_tokens;
  if (longest == 0) return std::nullopt;
  return static_cast<double>(offset) + static_cast<double>(longest - 1);
}

Positions Positions::last_tokens(std::int64_t count) const {
  if (count < 0 || count > tokens) {
    refuse(ErrorCode::shape_mismatch,
           message("cannot take the last ", count, " of ", tokens, " positions"));
  }
  if (kind == Kind::offset) {
    return positions_counted(offset + tokens - count, count);
  }
  std::vector<std::int64_t> last_shape = shape();
  last_shape.back() = count;
  const auto copy = [&](auto numbers) {
    const bool empty = is_list() && this->count() == 0;
    const std::int64_t rows = empty ? 0 : std::max<std::int64_t>(batch, 1);
    numbers.reserve(static_cast<std::size_t>(axes * rows * count));
    for (int axis = 0; axis < axes; ++axis) {
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t token = tokens - count; token < tokens; ++token) {
          numbers.push_back(
              static_cast<typename decltype(numbers)::value_type>(at(axis, row, token)));
        }
      }
    }
    return keep(std::move(numbers), last_shape);
  };
  return kind == Kind::floats ? copy(std::vector<double>()) : copy(std::vector<std::int64_t>());
}

Positions fit_positions(const Positions& positions, const PositionsShape& shape) {
  if (positions.kind == Kind::offset && positions.tokens == 0) return positions;
  const std::int64_t tokens = shape.tokens, batch = shape.batch.value_or(1);
  const bool many = shape.axes > 1;
  const bool one_row = !many || shape.one_row == PositionsShape::OneRow::serves_every_axis;
  const std::vector<std::int64_t> given = positions.shape();
  struct Fit {
    std::vector<std::int64_t> shape;
    int axes;
    std::int64_t batch;
  };
  std::vector<Fit> fits;
  if (one_row) fits.push_back({{tokens}, 1, 0});
  if (one_row && (shape.batch || !many)) fits.push_back({{batch, tokens}, 1, batch});
  if (many && !shape.batch) fits.push_back({{shape.axes, tokens}, shape.axes, 0});
  if (many) fits.push_back({{shape.axes, batch, tokens}, shape.axes, batch});
  for (const Fit& fit : fits) {
    if (fit.shape != given) continue;
    Positions fitted = positions;
    fitted.axes = fit.axes;
    fitted.batch = fit.batch;
    return fitted;
  }
  std::string known;
  for (const Fit& fit : fits) known += (known.empty() ? "" : " or ") + shape_text(fit.shape);
  refuse(ErrorCode::shape_mismatch,
         message("positions must have the shape ", known, ", got ", shape_text(given)));
}

PositionBounds check_positions(const Positions& positions, int axes, std::int64_t batch,
                               std::int64_t tokens) {
  const bool counted = positions.kind != Kind::offset || positions.tokens != 0;
  if (positions.kind == Kind::packed) {
    check_packed(positions, batch, tokens);
    return bounds_from(positions.offset, longest_sequence(positions));
  }
  // One axis of text positions is used for every axis of M-RoPE and images.
  if (positions.axes != axes && positions.axes != 1) {
    refuse(ErrorCode::shape_mismatch,
           message("positions have ", positions.axes, " axes, the rotary has ", axes));
  }
  if (counted &&
      (positions.tokens != tokens || (positions.batch != 0 && positions.batch != batch))) {
    refuse(ErrorCode::shape_mismatch,
           message("positions of the shape ", shape_text(positions.shape()), " do not fit batch ",
                   batch, ", tokens ", tokens));
  }
  if (positions.kind == Kind::offset) return bounds_from(positions.offset, tokens);
  if (positions.count() == 0) {
    if (batch * tokens != 0) {
      refuse(ErrorCode::shape_mismatch,
             message("positions of the shape ", shape_text(positions.shape()),
                     " have no number for batch ", batch, ", tokens ", tokens));
    }
    return {};
  }
  return bounds_of_list(positions);
}

PositionCursor::PositionCursor(const Positions& positions, int axes, std::int64_t tokens,
                               std::int64_t row)
    : positions_(positions), axes_(axes), tokens_(tokens), token_(row) {
  if (positions.is_list()) {
    if (positions.batch == 0 && row != 0) token_ = row % tokens;
    axis_stride_ = positions.axes == 1 ? 0 : std::max<std::int64_t>(positions.batch, 1) * tokens;
  } else if (positions.kind == Kind::offset) {
    if (row != 0) token_ = row % tokens;
  } else {
    const std::int64_t* boundaries = positions.integers;
    sequence_ =
        std::upper_bound(boundaries, boundaries + positions.sequences + 1, row) - boundaries - 1;
  }
}

}  // namespace phasor::core
