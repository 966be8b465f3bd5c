// cos and sin of a range of positions, computed once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "phasor/core/angles.hpp"
#include "phasor/core/frequencies.hpp"
#include "phasor/export.h"

namespace phasor::core {

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
