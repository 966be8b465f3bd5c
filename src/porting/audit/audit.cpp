#include "phasor/porting/diagnose.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/positions.hpp"
#include "phasor/core/rotate.hpp"
#include "porting/audit/causes.hpp"
#include "porting/share.hpp"

namespace phasor::porting {
namespace {

struct Precision {
  int digits;    // of the significand, including the hidden bit
  int smallest;  // exponent of the smallest normal number
};

[[nodiscard]] Precision precision_of(core::DType stored) noexcept {
  switch (stored) {
    case core::DType::f16:
      return {11, -14};
    case core::DType::bf16:
      return {8, -126};
    default:
      return {24, -126};
  }
}

[[nodiscard]] double unit_in_last_place(double value, core::DType stored) noexcept {
  const Precision precision = precision_of(stored);
  const int exponent = value == 0.0 ? precision.smallest : std::ilogb(value);
  return std::ldexp(1.0, std::max(exponent, precision.smallest) - precision.digits + 1);
}

void keep_worst(WorstEntry& worst, double error, std::int64_t row, std::int64_t pair) noexcept {
  if (error > worst.error) worst = {error, row, pair};
}

struct Rotation {
  double cos, sin;
};

struct EntryErrors {
  double angle, amplitude, ulp;
};

[[nodiscard]] EntryErrors compare(Rotation table, Rotation exact, double amplitude,
                                  core::DType stored) noexcept {
  if (!std::isfinite(table.cos) || !std::isfinite(table.sin)) {
    constexpr double kWrong = std::numeric_limits<double>::infinity();
    return {kWrong, kWrong, kWrong};
  }
  // The angle between the two directions, without subtracting angles, which could wrap around.
  return {std::abs(std::atan2(table.sin * exact.cos - table.cos * exact.sin,
                              table.cos * exact.cos + table.sin * exact.sin)),
          std::abs(std::hypot(table.cos, table.sin) / amplitude - 1.0),
          std::max(std::abs(table.cos - exact.cos) / unit_in_last_place(exact.cos, stored),
                   std::abs(table.sin - exact.sin) / unit_in_last_place(exact.sin, stored))};
}

void check_shapes(const ForeignTable& table, const core::Frequencies& frequencies) {
  const auto need = [&](std::string_view what, std::size_t got, std::int64_t per_row) {
    const std::int64_t expected = table.rows * per_row;
    if (table.rows < 0 || got != static_cast<std::size_t>(expected)) {
      refuse(ErrorCode::shape_mismatch,
             message("audit: ", what, " must have ", table.rows, " rows of ", per_row,
                     " values, got ", got, " values"));
    }
  };
  need("cos", table.cos.size(), frequencies.pairs());
  need("sin", table.sin.size(), frequencies.pairs());
  need("positions", table.positions.size(), frequencies.axis_count());
}

}  // namespace

Audit audit(const encodings::RopeSpec& spec, const ForeignTable& table,
            const AuditOptions& options) {
  const core::Frequencies frequencies = encodings::resolve_frequencies(spec, options.context);
  check_shapes(table, frequencies);
  const auto pairs = static_cast<std::size_t>(frequencies.pairs());
  const auto axes = static_cast<std::size_t>(frequencies.axis_count());

  Audit result;
  result.frequencies = frequencies;
  result.by_row.resize(static_cast<std::size_t>(table.rows));
  result.by_pair.resize(pairs);
  std::vector<double> exact_cos(pairs), exact_sin(pairs);
  double angle_sum = 0.0, ulp_sum = 0.0, square_sum = 0.0;
  // The rest is the search for a cause.
  const Share share = Share(options.progress).part(0.0, 0.9);
  for (std::size_t row = 0; row < result.by_row.size(); ++row) {
    core::throw_if_cancelled();
    const auto at = static_cast<std::int64_t>(row);
    if (row % 1024 == 0) share.at(static_cast<double>(at) / static_cast<double>(table.rows));
    core::cos_sin(frequencies, table.positions.subspan(row * axes, axes), std::span(exact_cos),
                  std::span(exact_sin));
    RowErrors& errors = result.by_row[row];
    double row_sum = 0.0;
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const Rotation got{table.cos[row * pairs + pair], table.sin[row * pairs + pair]};
      const Rotation exact{exact_cos[pair], exact_sin[pair]};
      const EntryErrors entry = compare(got, exact, frequencies.amplitude(), table.stored);
      const auto column = static_cast<std::int64_t>(pair);
      keep_worst(result.angle, entry.angle, at, column);
      keep_worst(result.amplitude, entry.amplitude, at, column);
      keep_worst(result.ulp, entry.ulp, at, column);
      keep_worst(result.by_pair[pair], entry.angle, at, column);
      errors.max_angle = std::max(errors.max_angle, entry.angle);
      errors.max_amplitude = std::max(errors.max_amplitude, entry.amplitude);
      errors.max_ulp = std::max(errors.max_ulp, entry.ulp);
      row_sum += entry.angle;
      ulp_sum += entry.ulp;
      const double distance = std::hypot(got.cos - exact.cos, got.sin - exact.sin);
      square_sum += distance * distance;
    }
    errors.mean_angle = row_sum / static_cast<double>(pairs);
    angle_sum += row_sum;
    if (!result.first_row_past &&
        std::max(errors.max_angle, errors.max_amplitude) > options.threshold) {
      result.first_row_past = at;
    }
  }
  result.entries = table.rows * frequencies.pairs();
  if (result.entries == 0) {
    result.as_good_as_its_type = true;
    return result;
  }
  const auto entries = static_cast<double>(result.entries);
  result.mean_angle = angle_sum / entries;
  result.mean_ulp = ulp_sum / entries;
  result.error = std::sqrt(square_sum / entries) / frequencies.amplitude();
  result.as_good_as_its_type = result.ulp.error <= 1.0;
  if (!result.as_good_as_its_type) {
    CauseFindings findings = find_cause(spec, table, frequencies, options.context);
    result.cause = std::move(findings.cause);
    result.runner_up = std::move(findings.runner_up);
  }
  return result;
}

}  // namespace phasor::porting
