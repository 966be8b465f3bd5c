// Rotates the queries or keys of a call: in float32 scratch, head after head, by rows of cos and sin
// that are computed once; or in float64, all at once.
#pragma once

#include <cstdint>
#include <span>

#include "attention/rotation_rows.hpp"
#include "attention/softmax/call_memory.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::attention {

// The order of rotated features: any that queries and keys share, or that of core::rotate, for
// queries of keys that it rotated.
enum class FeatureOrder : std::uint8_t { any, as_written };

struct RotatorChoices {
  core::AngleMode angles;
  core::InstructionSet isa;
  FeatureOrder order;
  core::DType arithmetic;        // f32 or f64
  SharedRows* shared = nullptr;  // where rows are found again; null: none
};

class Rotator {
 public:
  // memory   holds the ids [axes][tokens], finite, and receives the rows; must outlive the rotator
  // twin     another rotator of the same rotary, whose rows are used if its ids are the same
  // throws   Error(out_of_range) for a position beyond the exact angles; std::bad_alloc
  Rotator(const core::Rotary& rotary, core::Role role, const RotatorChoices& choices,
          RotatorMemory& memory, const Rotator* twin = nullptr);

  // Rotates tokens [first, first + count) in place: token t at rows + t * stride.
  void rotate(std::int64_t first, std::int64_t count, float* rows, std::int64_t stride,
              core::Direction direction = core::Direction::forward) const;
  // Float64: rotates every token in place, by core::rotate.
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
