#include "phasor/core/rotate.hpp"

#include <cmath>

#include "core/angles/float32_engine.hpp"
#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/internal/dispatch.hpp"
#include "phasor/core/internal/enum_names.hpp"

namespace phasor::core {

namespace {

constexpr EnumNames<AngleMode::float16> kAngleModes("exact", "float32", "bfloat16_frequencies",
                                                    "bfloat16", "float16");

}  // namespace

std::string_view name_of(AngleMode mode) noexcept { return kAngleModes[mode]; }
std::optional<AngleMode> angle_mode_of(std::string_view name) noexcept {
  return kAngleModes.find(name);
}

void check_angle_range(const char* where, const Frequencies& frequencies, double low, double high,
                       AngleMode mode) {
  const double farthest = std::fmax(std::fabs(low), std::fabs(high));
  if (!(farthest < kMaxPosition)) {
    refuse(ErrorCode::out_of_range,
           message(where, ": positions must be below 2^53 in magnitude, got ",
                   std::fabs(low) > std::fabs(high) ? low : high));
  }
  if (!(farthest * frequencies.largest() <= kMaxAngle)) {
    refuse(ErrorCode::out_of_range,
           message(where, ": position x frequency must be at most 2^48 rad, got position ",
                   farthest, " with frequency ", frequencies.largest()));
  }
  if (mode == AngleMode::float16 && !(farthest * frequencies.largest() <= kMaxAngle16)) {
    refuse(ErrorCode::out_of_range,
           message(where, ": float16 angles must be at most 65504 rad, got position ", farthest,
                   " with frequency ", frequencies.largest()));
  }
}

kernels::Angles kernel_angles(const Frequencies& frequencies) noexcept {
  return {frequencies.values().data(),
          frequencies.axis_count() == 1 ? nullptr : frequencies.axes().data(), frequencies.pairs(),
          frequencies.amplitude()};
}

namespace {

template <class T>
void check(const Frequencies& frequencies, std::span<const double> positions, std::span<T> cos,
           std::span<T> sin, AngleMode mode) {
  if (static_cast<int>(positions.size()) != frequencies.axis_count()) {
    refuse(ErrorCode::shape_mismatch,
           message("cos_sin: positions must be ", frequencies.axis_count(), ", one per axis, got ",
                   positions.size()));
  }
  const auto pairs = static_cast<std::size_t>(frequencies.pairs());
  if (cos.size() != pairs || sin.size() != pairs) {
    refuse(ErrorCode::shape_mismatch, message("cos_sin: cos and sin must have ", pairs,
                                              " entries, got ", cos.size(), " and ", sin.size()));
  }
  for (const double position : positions) {
    if (!std::isfinite(position)) {
      refuse(message("cos_sin: positions must be finite, got ", position));
    }
    check_angle_range("cos_sin", frequencies, position, position, mode);
  }
}

}  // namespace

void cos_sin(const Frequencies& frequencies, std::span<const double> positions,
             std::span<float> cos, std::span<float> sin, AngleMode mode, InstructionSet isa) {
  check(frequencies, positions, cos, sin, mode);
  if (mode != AngleMode::exact) {
    float32_row(frequencies, positions.data(), mode, cos.data(), sin.data());
  } else {
    kernels_for(isa).row_f32(kernel_angles(frequencies), positions.data(), cos.data(), sin.data());
  }
}

void cos_sin(const Frequencies& frequencies, std::span<const double> positions,
             std::span<double> cos, std::span<double> sin, InstructionSet isa) {
  check(frequencies, positions, cos, sin, AngleMode::exact);
  kernels_for(isa).row_f64(kernel_angles(frequencies), positions.data(), cos.data(), sin.data());
}

}  // namespace phasor::core
