#include "attention/rotation_rows.hpp"

#include <cmath>
#include <cstring>

#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/internal/positions.hpp"

namespace phasor::attention {
namespace {

// Kernels read whole vectors of a row.
constexpr std::int64_t kRowPadding = 32;

// xPos: a query's pair i grows by e^{rate (m - centre)}, a key's shrinks by it.
void grown_row(const core::Rotary& rotary, const core::kernels::Kernels& kernels,
               const double* positions, core::Role role, float* cos, float* sin) {
  double wide_cos[core::kMaxRotaryDim / 2], wide_sin[core::kMaxRotaryDim / 2];
  kernels.row_f64(core::kernel_angles(rotary.frequencies), positions, wide_cos, wide_sin);
  const core::Growth& growth = *rotary.growth;
  const double distance = (positions[0] - growth.centre) * (role == core::Role::key ? -1.0 : 1.0);
  for (std::size_t i = 0; i < growth.rates.size(); ++i) {
    const double factor = std::exp(growth.rates[i] * distance);
    cos[i] = static_cast<float>(wide_cos[i] * factor);
    sin[i] = static_cast<float>(wide_sin[i] * factor);
  }
}

}  // namespace

RotationRows::RotationRows(const core::Rotary& rotary,
                           const core::kernels::Kernels& kernels) noexcept
    : rotary_(&rotary), kernels_(&kernels), pairs_(rotary.frequencies.pairs()) {}

std::int64_t RotationRows::floats_for(std::int64_t count) const noexcept {
  return count * row_floats() + kRowPadding;
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
  const std::int64_t behind = before + 2 * pairs_;
  if (in != out && 2 * pairs_ != rotary_->head_dim) {
    for (std::int64_t t = 0; t < count; ++t) {
      std::memcpy(out + t * stride, in + t * stride,
                  static_cast<std::size_t>(before) * sizeof(float));
      std::memcpy(out + t * stride + behind, in + t * stride + behind,
                  static_cast<std::size_t>(rotary_->head_dim - behind) * sizeof(float));
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

}  // namespace phasor::attention
