#include "attention/rotator.hpp"

#include <algorithm>

#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/internal/dispatch.hpp"
#include "phasor/core/internal/standard.hpp"

namespace phasor::attention {

Rotator::Rotator(const core::Rotary& rotary, core::Role role, const RotatorChoices& choices,
                 RotatorMemory& memory, const Rotator* twin)
    : rotary_(&rotary),
      role_(role),
      choices_(choices),
      ids_(memory.ids),
      tokens_(static_cast<std::int64_t>(ids_.size()) / rotary.frequencies.axis_count()),
      rotation_rows_(rotary, core::kernels_for(choices.isa)) {
  if (tokens_ == 0) return;
  const auto [low, high] = std::minmax_element(ids_.begin(), ids_.end());
  core::check_angle_range("attention", rotary.frequencies, *low, *high, choices.angles);
  if (!keeps_rows()) return;
  if (choices.shared != nullptr) {
    rows_ = choices.shared->rows_for(rotary, role, core::kernels_for(choices.isa), ids_, tokens_);
    return;
  }
  if (twin != nullptr && !rotary.growth && core::equal(twin->ids_, ids_)) {
    rows_ = twin->rows_;
    return;
  }
  memory.rows.reserve(rotation_rows_.floats_for(tokens_));
  rows_ = memory.rows.data();
  rotation_rows_.make(
      core::positions_per_row(ids_.data(), rotary.frequencies.axis_count(), 1, tokens_), tokens_, 0,
      0, tokens_, role_, memory.rows.data());
}

// core::rotate alone has the rows of rounded angles and the order of interleaved_to_half.
bool Rotator::keeps_rows() const noexcept {
  return choices_.arithmetic == core::DType::f32 && choices_.angles == core::AngleMode::exact &&
         (choices_.order == FeatureOrder::any ||
          rotary_->layout != core::PairLayout::interleaved_to_half);
}

void Rotator::rotate(std::int64_t first, std::int64_t count, float* rows, std::int64_t stride,
                     core::Direction direction) const {
  if (keeps_rows()) {
    const float* const cos_sin = rows_ + first * rotation_rows_.row_floats();
    if (direction != core::Direction::transpose)
      return rotation_rows_.rotate(cos_sin, rows, rows, stride, count);
    // Rows of R^T, some tokens at a time on the stack.
    constexpr std::int64_t kRoom = 4 * core::kMaxRotaryDim;
    float transposed[kRoom];
    const std::int64_t most = (kRoom - rotation_rows_.floats_for(0)) / rotation_rows_.row_floats();
    for (std::int64_t at = 0; at < count; at += most) {
      const std::int64_t some = std::min(most, count - at);
      rotation_rows_.transpose(cos_sin + at * rotation_rows_.row_floats(), some, transposed);
      std::fill_n(transposed + some * rotation_rows_.row_floats(), rotation_rows_.floats_for(0),
                  0.0F);
      rotation_rows_.rotate(transposed, rows + at * stride, rows + at * stride, stride, some);
    }
    return;
  }
  // Some tokens at a time, their ids on the stack.
  constexpr std::int64_t kAtOnce = 64;
  const int axes = rotary_->frequencies.axis_count();
  double ids[core::kMaxAxes * kAtOnce];
  for (std::int64_t at = 0; at < count; at += kAtOnce) {
    const std::int64_t some = std::min(kAtOnce, count - at);
    for (int axis = 0; axis < axes; ++axis)
      std::copy_n(ids_.begin() + axis * tokens_ + first + at, some, ids + axis * some);
    core::HeadsView view = core::heads_view(rows + at * stride, 1, some, 1, rotary_->head_dim);
    view.token_stride = stride;
    const core::Rotation in_place{view, view, role_};
    core::rotate(*rotary_, core::positions_per_row(ids, axes, 1, some), {&in_place, 1},
                 {.direction = direction,
                  .angles = choices_.angles,
                  .table = nullptr,
                  .threads = 1,
                  .isa = choices_.isa});
  }
}

void Rotator::rotate_all(const core::HeadsView& x, int threads, core::Direction direction) const {
  if (tokens_ == 0) return;
  const core::Rotation in_place{x, x, role_};
  core::rotate(
      *rotary_,
      core::positions_per_row(ids_.data(), rotary_->frequencies.axis_count(), x.batch, x.tokens),
      {&in_place, 1},
      {.direction = direction,
       .angles = choices_.angles,
       .table = nullptr,
       .threads = threads,
       .isa = choices_.isa});
}

}  // namespace phasor::attention
