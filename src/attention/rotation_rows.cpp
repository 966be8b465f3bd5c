#include "attention/rotation_rows.hpp"

#include <algorithm>
#include <cstring>

#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/internal/angle_rows.hpp"
#include "phasor/core/internal/positions.hpp"
#include "phasor/core/internal/standard.hpp"

namespace phasor::attention {
namespace {

// Rotaries of one model: a local and a global one, sometimes a third; with xPos twice as many.
constexpr std::size_t kMostRotaries = 8;

// Whether one row of cos and sin serves both.
bool same_rows(const core::Rotary& a, const core::Rotary& b) noexcept {
  const auto same_growth = [&] {
    return a.growth.has_value() == b.growth.has_value() &&
           (!a.growth ||
            (a.growth->centre == b.growth->centre && a.growth->rates == b.growth->rates));
  };
  return a.frequencies.amplitude() == b.frequencies.amplitude() &&
         core::equal(a.frequencies.values(), b.frequencies.values()) &&
         a.frequencies.axis_count() == b.frequencies.axis_count() &&
         core::equal(a.frequencies.axes(), b.frequencies.axes()) && same_growth();
}

// With the growth of xPos, in double until the last step.
void grown_row(const core::Rotary& rotary, const core::kernels::Kernels& kernels,
               const double* positions, core::Role role, float* cos, float* sin) {
  double wide_cos[core::kMaxRotaryDim / 2], wide_sin[core::kMaxRotaryDim / 2];
  kernels.row_f64(core::kernel_angles(rotary.frequencies), positions, wide_cos, wide_sin);
  core::apply_growth(*rotary.growth, positions[0], role, core::Direction::forward, wide_cos,
                     wide_sin);
  for (std::int64_t i = 0; i < rotary.frequencies.pairs(); ++i) {
    cos[i] = static_cast<float>(wide_cos[i]);
    sin[i] = static_cast<float>(wide_sin[i]);
  }
}

}  // namespace

RotationRows::RotationRows(const core::Rotary& rotary,
                           const core::kernels::Kernels& kernels) noexcept
    : rotary_(&rotary), kernels_(&kernels), pairs_(rotary.frequencies.pairs()) {}

std::int64_t RotationRows::floats_for(std::int64_t count) const noexcept {
  return count * row_floats() + core::kRowPadding;
}

void RotationRows::make(const core::Positions& positions, std::int64_t tokens, std::int64_t b,
                        std::int64_t first, std::int64_t count, core::Role role,
                        float* rows) const noexcept {
  const core::Frequencies& frequencies = rotary_->frequencies;
  core::PositionCursor cursor(positions, frequencies.axis_count(), tokens, b * tokens + first);
  for (std::int64_t t = 0; t < count; ++t) {
    float* const cos = rows + t * row_floats();
    float* const sin = cos + pairs_;
    double token[core::kMaxAxes];
    cursor.next(token);
    if (rotary_->growth) {
      grown_row(*rotary_, *kernels_, token, role, cos, sin);
    } else {
      kernels_->row_f32(core::kernel_angles(frequencies), token, cos, sin);
    }
  }
}

void RotationRows::transpose(const float* rows, std::int64_t count,
                             float* transposed) const noexcept {
  for (std::int64_t t = 0; t < count; ++t) {
    const float* from = rows + t * row_floats();
    float* to = transposed + t * row_floats();
    for (std::int64_t i = 0; i < pairs_; ++i) to[i] = from[i];
    for (std::int64_t i = pairs_; i < 2 * pairs_; ++i) to[i] = -from[i];
  }
}

void RotationRows::rotate(const float* rows, const float* in, float* out, std::int64_t stride,
                          std::int64_t count) const noexcept {
  const std::int64_t before = rotary_->offset;
  const std::int64_t after = before + 2 * pairs_;
  if (in != out && 2 * pairs_ != rotary_->head_dim) {
    for (std::int64_t t = 0; t < count; ++t) {
      std::memcpy(out + t * stride, in + t * stride,
                  static_cast<std::size_t>(before) * sizeof(float));
      std::memcpy(out + t * stride + after, in + t * stride + after,
                  static_cast<std::size_t>(rotary_->head_dim - after) * sizeof(float));
    }
  }
  const int half = rotary_->layout == core::PairLayout::half ? 1 : 0;
  const std::int64_t block_pairs = pairs_ / rotary_->blocks;
  for (std::int64_t block = 0; block < rotary_->blocks; ++block) {
    const std::int64_t start = before + block * 2 * block_pairs;
    const float* cos = rows + block * block_pairs;
    kernels_->rotate[0][half]({in + start, out + start, stride, stride, count, row_floats()},
                              block_pairs, cos, cos + pairs_, 0, core::kernels::Store::cached);
  }
}

bool same_positions(const core::Positions& a, const core::Positions& b) noexcept {
  return a.kind == b.kind && a.integers == b.integers && a.floats == b.floats && a.axes == b.axes &&
         a.batch == b.batch && a.tokens == b.tokens && a.offset == b.offset &&
         a.sequences == b.sequences;
}

SharedRows::Entry& SharedRows::entry_for(const core::Rotary& rotary, core::Role role,
                                         const core::kernels::Kernels& kernels) {
  for (Entry& entry : entries_) {
    if (entry.kernels == &kernels && same_rows(entry.rotary, rotary) &&
        (entry.role == role || !rotary.growth)) {
      return entry;
    }
  }
  if (entries_.size() < kMostRotaries) return entries_.emplace_back(Entry{rotary, role, &kernels});
  Entry& entry = entries_[oldest_];
  entry.filled = false;
  entry.rotary = rotary;
  entry.role = role;
  entry.kernels = &kernels;
  oldest_ = (oldest_ + 1) % kMostRotaries;
  return entry;
}

const float* SharedRows::rows_for(const core::Rotary& rotary, core::Role role,
                                  const core::kernels::Kernels& kernels,
                                  std::span<const double> ids, std::int64_t tokens) {
  Entry& entry = entry_for(rotary, role, kernels);
  if (entry.filled && core::equal(entry.ids, ids)) return entry.rows.data();
  entry.filled = false;
  const RotationRows rows(rotary, kernels);
  entry.ids.assign(ids.begin(), ids.end());
  entry.rows.reserve(rows.floats_for(tokens));
  rows.make(core::positions_per_row(entry.ids.data(), rotary.frequencies.axis_count(), 1, tokens),
            tokens, 0, 0, tokens, role, entry.rows.data());
  entry.filled = true;
  return entry.rows.data();
}

}  // namespace phasor::attention
