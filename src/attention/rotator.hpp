// Queries or keys of a call turned: in float32 scratch, head after head, by rows of cos and sin that
// are made once; or in float64, all at once.
#pragma once

#include <cstdint>
#include <span>

#include "attention/rotation_rows.hpp"
#include "attention/softmax/call_memory.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::attention {

// Whether turned features must lie as core::rotate writes them (they meet keys that it turned), or
// any order will do that queries and keys share.
enum class FeatureOrder : std::uint8_t { any, as_written };

struct RotatorChoices {
  core::AngleMode angles;
  core::InstructionSet isa;
  FeatureOrder order;
  core::DType arithmetic;  // f32 or f64
};

class Rotator {
 public:
  // memory   its ids [axes][tokens], finite; rows are made in it. Outlives the turner
  // twin     another turner of the same rotary whose rows are taken where its tokens stand alike
  // throws   Error(out_of_range) for a position beyond the exact angles
  Rotator(const core::Rotary& rotary, core::Role role, const RotatorChoices& choices,
          RotatorMemory& memory, const Rotator* twin = nullptr);

  // Turns tokens [first, first + count) in place: token t at rows + t * stride.
  void rotate(std::int64_t first, std::int64_t count, float* rows, std::int64_t stride,
              core::Direction direction = core::Direction::forward) const;
  // Float64: turns every token in place, by core::rotate.
  //
  // shape    x [batch, tokens, heads, head_dim] of f64, with the batch and tokens of the ids
  void rotate_all(const core::HeadsView& x, int threads,
                  core::Direction direction = core::Direction::forward) const;

 private:
  [[nodiscard]] bool keeps_rows() const noexcept;

  const core::Rotary* rotary_;
  core::Role role_;
  RotatorChoices choices_;
  std::span<const double> ids_;
  std::int64_t tokens_;
  RotationRows rotation_rows_;
  const float* rows_ = nullptr;
};

}  // namespace phasor::attention
