// The errors of another engine's cos/sin table, and their most likely cause.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/view.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/export.h"

namespace phasor::porting {

// A table computed by another implementation.
//
// shape    cos, sin [rows, pairs], widened to double; positions [rows, axes], one per position row
//          that the frequencies read
struct ForeignTable {
  std::span<const double> cos, sin;
  std::span<const double> positions;
  std::int64_t rows = 0;
  core::DType stored = core::DType::f32;  // the type the numbers were stored in
};

struct AuditOptions {
  std::optional<std::int64_t> context = std::nullopt;
  // Radians, and relative amplitude.
  double threshold = 1e-3;
};

struct WorstEntry {
  double error = 0.0;
  std::int64_t row = 0, pair = 0;
};

// The errors of one row.
struct RowErrors {
  double max_angle = 0.0, mean_angle = 0.0;  // radians
  double max_amplitude = 0.0;                // relative
  double max_ulp = 0.0;
};

// A way to compute the table that produces these errors.
struct Cause {
  std::string name;  // "float32_product", "bfloat16_positions", ...: stable, for programs
  std::string text;  // the same in words
  // Root mean square distance between the table's (cos, sin) and those that this cause predicts,
  // divided by the amplitude.
  double residual = 0.0;
};

struct Audit {
  // The exact frequencies that the table was compared with.
  core::Frequencies frequencies = core::Frequencies({1.0});
  WorstEntry angle;      // radians
  WorstEntry amplitude;  // relative
  WorstEntry ulp;        // of float32, or of a 16-bit `stored`
  double mean_angle = 0.0, mean_ulp = 0.0;
  std::int64_t entries = 0;
  std::optional<std::int64_t> first_row_past;  // the threshold
  std::vector<RowErrors> by_row;
  std::vector<WorstEntry> by_pair;  // angle
  double error = 0.0;               // root mean square distance to the exact (cos, sin)
  // None when the table is as good as its type can store, or when no known cause explains the
  // errors.
  std::optional<Cause> cause;
  std::optional<Cause> runner_up;  // the next best that predicts other numbers
  // The table holds the exact values rounded to `stored`, within a unit in the last place.
  bool as_good_as_its_type = false;
};

// throws   Error(shape_mismatch) when the sizes of cos, sin or positions do not match rows and pairs;
//          Error as resolve_frequencies()
// cost     one exact cos and sin per entry; causes are tried on at most a few hundred rows
[[nodiscard]] PHASOR_API Audit audit(const encodings::RopeSpec& spec, const ForeignTable& table,
                                     const AuditOptions& options = {});

// The pairs with the largest angle errors, at most five, the worst first; none without an error.
[[nodiscard]] PHASOR_API std::vector<WorstEntry> worst_pairs(const Audit& findings);
// 2 pi / frequency of a pair, in positions; infinite for a frequency of 0.
[[nodiscard]] PHASOR_API double wavelength_of(const Audit& findings, std::int64_t pair);
// NumPy's name of the type whose units in the last place are counted.
[[nodiscard]] PHASOR_API std::string_view unit_name(core::DType stored) noexcept;
// One JSON object; `table` and `options` are those of the audit. An error that is not finite is
// null.
[[nodiscard]] PHASOR_API std::string audit_json(const Audit& findings, const ForeignTable& table,
                                                const AuditOptions& options);

}  // namespace phasor::porting
