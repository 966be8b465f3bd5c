// Exact cos and sin of position x frequency.
//
// The angle is the exact product of two doubles, kept as high + low (one FMA), reduced by pi/2 kept
// in three parts, and evaluated by a polynomial in double; the result is rounded once. A float32
// angle near 100000 rad is off by up to 0.004 rad before cos is even called.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "phasor/core/instruction_set.hpp"
#include "phasor/core/rotary.hpp"
#include "phasor/export.h"

namespace phasor::core {

enum class AngleMode : std::uint8_t {
  exact,
  // float32 frequency, product, cos and sin, as other engines compute them. Bit-identical to them in
  // f16 and bf16; in float32 their cos and sin are not always correctly rounded and may differ by
  // one unit in the last place.
  float32,
};

// |float32 result - truth| in units in the last place of the float32 result, truth being
// cos or sin of the exact product: for every integer |position| <= kExactPosition, near-zero
// results included.
inline constexpr double kCosSinErrorUlp = 0.502;
inline constexpr std::int64_t kExactPosition = std::int64_t{1} << 40;
// The same for float64 results.
inline constexpr double kCosSinErrorUlp64 = 1.0;
// Positions of this magnitude or more are an error. Between the two, and for positions that are not
// integers, the same bound holds against the exact product of the float64 position while |angle| <= kMaxAngle.
inline constexpr double kMaxPosition = 9007199254740992.0;  // 2^53: every integer below is a double
inline constexpr double kMaxAngle = 281474976710656.0;      // 2^48 rad; larger angles are an error
// |float32 result - truth of the mathematically exact frequency|, absolute, |position| <= 2^24.
inline constexpr double kCosSinErrorExactFrequency = 1e-7;

// cos and sin of one token's angles, times the amplitude.
//
// inputs   positions: one per axis of `frequencies`
// shape    cos, sin [pairs]
// throws   Error(shape_mismatch | out_of_range | invalid_argument), before anything is written
PHASOR_API void cos_sin(const Frequencies& frequencies, std::span<const double> positions,
                        std::span<float> cos, std::span<float> sin,
                        AngleMode mode = AngleMode::exact,
                        InstructionSet isa = InstructionSet::best);
PHASOR_API void cos_sin(const Frequencies& frequencies, std::span<const double> positions,
                        std::span<double> cos, std::span<double> sin,
                        InstructionSet isa = InstructionSet::best);

// cos and sin of a range of positions, computed once.

struct PositionRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Immutable after it is built and cheap to copy (copies share the rows), so threads can share one.
// grown() builds another table: rows in both ranges are copied, not recomputed.
class PHASOR_API CosSinTable {
 public:
  // throws   Error(invalid_argument | out_of_range); std::bad_alloc when the rows do not fit
  [[nodiscard]] static CosSinTable build(const Frequencies& frequencies, PositionRange range,
                                         AngleMode mode = AngleMode::exact, int threads = 0,
                                         InstructionSet isa = InstructionSet::best);
  [[nodiscard]] CosSinTable grown(PositionRange range, int threads = 0) const;

  // From rows that the caller already has, as the ONNX operator gives them: row r is for position
  // first + r.
  //
  // shape    cos, sin [rows, pairs]
  [[nodiscard]] static CosSinTable from_rows(std::span<const float> cos, std::span<const float> sin,
                                             std::int64_t pairs, std::int64_t first = 0);

  [[nodiscard]] PositionRange range() const noexcept { return range_; }
  [[nodiscard]] std::int64_t pairs() const noexcept { return pairs_; }
  // Whether the rows were built from these frequencies. For from_rows() only the number of pairs
  // is compared.
  [[nodiscard]] bool serves(const Frequencies& frequencies, AngleMode mode) const noexcept;
  // The factor inside the rows.
  [[nodiscard]] double amplitude() const noexcept { return amplitude_; }
  // precondition  position inside range()
  [[nodiscard]] std::span<const float> cos(std::int64_t position) const noexcept;
  [[nodiscard]] std::span<const float> sin(std::int64_t position) const noexcept;

 private:
  CosSinTable() = default;
  std::shared_ptr<const float[]> rows_;  // [count][cos: pairs | sin: pairs]
  PositionRange range_;
  std::int64_t pairs_ = 0;
  double amplitude_ = 1.0;
  std::optional<Frequencies> frequencies_;  // none for from_rows
  AngleMode mode_ = AngleMode::exact;
};

}  // namespace phasor::core
