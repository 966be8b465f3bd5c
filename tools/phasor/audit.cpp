// phasor audit: how wrong is another engine's cos/sin table.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "commands.hpp"
#include "phasor/core/angles.hpp"
#include "phasor/core/error.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/npy.hpp"
#include "spec.hpp"

namespace phasor::tools {
namespace {

// Past this a rotated value is off in its third digit.
constexpr double kDefaultThreshold = 1e-3;
constexpr std::size_t kWorstPairs = 5;

struct AuditOptions {
  SpecOptions spec;
  std::string table, positions;
  double threshold = kDefaultThreshold;
  bool json = false;
};

struct Worst {
  double error = 0.0;
  std::int64_t row = 0, pair = 0;

  void see(double candidate, std::int64_t at_row, std::int64_t at_pair) {
    if (candidate > error) *this = {candidate, at_row, at_pair};
  }
};

struct Findings {
  Worst angle;      // radians
  Worst amplitude;  // relative
  Worst ulp;        // float32 units in the last place
  double angle_sum = 0.0;
  std::int64_t entries = 0;
  std::optional<std::int64_t> first_row_past;  // the threshold
  std::vector<Worst> by_pair;                  // angle
};

double ulp_of_float(double value) {
  const float magnitude = std::abs(static_cast<float>(value));
  return static_cast<double>(std::nextafter(magnitude, std::numeric_limits<float>::infinity())) -
         static_cast<double>(magnitude);
}

struct Pair {
  double cos, sin;
};

void compare(Pair table, Pair exact, double amplitude, double threshold, std::int64_t row,
             std::int64_t pair, Findings& findings) {
  // The turn from the exact direction to the table's: no subtraction of angles, so none wraps
  // around.
  double angle = std::abs(std::atan2(table.sin * exact.cos - table.cos * exact.sin,
                                     table.cos * exact.cos + table.sin * exact.sin));
  double length = std::abs(std::hypot(table.cos, table.sin) / amplitude - 1.0);
  double ulp = std::max(std::abs(table.cos - exact.cos) / ulp_of_float(exact.cos),
                        std::abs(table.sin - exact.sin) / ulp_of_float(exact.sin));
  if (!std::isfinite(table.cos) || !std::isfinite(table.sin)) {
    angle = length = ulp = std::numeric_limits<double>::infinity();
  }
  findings.angle.see(angle, row, pair);
  findings.amplitude.see(length, row, pair);
  findings.ulp.see(ulp, row, pair);
  findings.by_pair[static_cast<std::size_t>(pair)].see(angle, row, pair);
  findings.angle_sum += angle;
  ++findings.entries;
  // A wrong length moves the rotated pair as far as a wrong angle of the same size.
  if (!findings.first_row_past && std::max(angle, length) > threshold)
    findings.first_row_past = row;
}

std::vector<Worst> worst_pairs(std::vector<Worst> by_pair) {
  const std::size_t kept = std::min(kWorstPairs, by_pair.size());
  std::partial_sort(by_pair.begin(), by_pair.begin() + static_cast<std::ptrdiff_t>(kept),
                    by_pair.end(),
                    [](const Worst& a, const Worst& b) { return a.error > b.error; });
  by_pair.resize(kept);
  std::erase_if(by_pair, [](const Worst& worst) { return worst.error == 0.0; });
  return by_pair;
}

class Report {
 public:
  Report(const Findings& findings, const PositionGrid& positions,
         const core::Frequencies& frequencies)
      : findings_(findings), positions_(positions), frequencies_(frequencies) {}

  void print_text(double threshold) const {
    fmt::print("angle error      max {:.3g} rad at {}, mean {:.3g} rad\n", findings_.angle.error,
               place(findings_.angle), mean());
    fmt::print("amplitude error  max {:.3g} (relative) at {}\n", findings_.amplitude.error,
               place(findings_.amplitude));
    fmt::print("float32 ulp      max {:.3g} at {}\n", findings_.ulp.error, place(findings_.ulp));
    for (const Worst& worst : worst_pairs(findings_.by_pair)) {
      fmt::print("  pair {:<5} wavelength {:<10.5g} worst {:.3g} rad at position {}\n", worst.pair,
                 wavelength(worst.pair), worst.error, position_text(worst.row));
    }
    if (findings_.first_row_past) {
      fmt::print("past {:g}: first at position {}\n", threshold,
                 position_text(*findings_.first_row_past));
    } else {
      fmt::print("within {:g} everywhere\n", threshold);
    }
  }

  void print_json(double threshold, double amplitude) const {
    using Json = nlohmann::ordered_json;
    Json answer;
    answer["entries"] = findings_.entries;
    answer["threshold"] = threshold;
    answer["within_threshold"] = !findings_.first_row_past.has_value();
    answer["amplitude"] = amplitude;
    answer["max_angle_error"] = findings_.angle.error;
    answer["mean_angle_error"] = mean();
    answer["worst_angle"] = place_json(findings_.angle);
    answer["max_amplitude_error"] = findings_.amplitude.error;
    answer["worst_amplitude"] = place_json(findings_.amplitude);
    answer["max_ulp"] = findings_.ulp.error;
    answer["worst_ulp"] = place_json(findings_.ulp);
    answer["first_position_past_threshold"] =
        findings_.first_row_past ? position_json(*findings_.first_row_past) : Json(nullptr);
    answer["worst_pairs"] = Json::array();
    for (const Worst& worst : worst_pairs(findings_.by_pair)) {
      Json pair = place_json(worst);
      pair["angle_error"] = worst.error;
      pair["wavelength"] = wavelength(worst.pair);
      answer["worst_pairs"].push_back(std::move(pair));
    }
    fmt::print("{}\n", answer.dump());
  }

 private:
  [[nodiscard]] double mean() const {
    return findings_.entries == 0 ? 0.0
                                  : findings_.angle_sum / static_cast<double>(findings_.entries);
  }
  [[nodiscard]] double wavelength(std::int64_t pair) const {
    return 2.0 * std::numbers::pi / std::abs(frequencies_.values()[static_cast<std::size_t>(pair)]);
  }
  [[nodiscard]] nlohmann::ordered_json position_json(std::int64_t row) const {
    std::vector<double> per_axis;
    positions_.token(row, per_axis);
    return per_axis.size() == 1 ? nlohmann::ordered_json(per_axis[0])
                                : nlohmann::ordered_json(per_axis);
  }
  [[nodiscard]] nlohmann::ordered_json place_json(const Worst& worst) const {
    if (findings_.entries == 0) return nullptr;
    return {{"position", position_json(worst.row)}, {"pair", worst.pair}};
  }
  [[nodiscard]] std::string position_text(std::int64_t row) const {
    std::vector<double> per_axis;
    positions_.token(row, per_axis);
    std::string text;
    for (const double position : per_axis) {
      text += (text.empty() ? "" : ",") + fmt::format("{}", position);
    }
    return text;
  }
  [[nodiscard]] std::string place(const Worst& worst) const {
    if (findings_.entries == 0) return "no entry";
    return fmt::format("position {}, pair {}", position_text(worst.row), worst.pair);
  }

  const Findings& findings_;
  const PositionGrid& positions_;
  const core::Frequencies& frequencies_;
};

int run_audit(const AuditOptions& options) {
  if (!(options.threshold >= 0.0)) {
    throw Error(ErrorCode::invalid_argument,
                message("--threshold must be at least 0, got ", options.threshold));
  }
  const encodings::RopeSpec spec = read_spec(options.spec);
  const io::NpyArray array = io::read_npy(options.table).value_or_throw();
  (void)io::dtype_of(array, options.table).value_or_throw();
  if (array.shape.size() != 3 || array.shape[0] != 2) {
    throw Error(ErrorCode::shape_mismatch,
                message(options.table, ": the shape must be [2, positions, pairs], got ",
                        shape_text(array.shape)));
  }
  const std::int64_t rows = array.shape[1];
  const RawPositions raw =
      options.positions.empty() ? count_positions(0, rows) : parse_positions(options.positions);
  const PositionGrid positions(spec, raw, std::nullopt, rows);
  const std::optional<std::int64_t> context = context_for(spec, options.spec, positions, "audit");
  const core::Frequencies frequencies = encodings::resolve_frequencies(spec, context);
  const std::int64_t pairs = frequencies.pairs();
  if (array.shape[2] != pairs) {
    throw Error(ErrorCode::shape_mismatch,
                message(options.table, ": the config gives ", pairs, " pairs, got a table of ",
                        array.shape[2], " in ", shape_text(array.shape)));
  }

  const std::vector<double> values = io::to_doubles(array).value_or_throw();
  const double* const cos = values.data();
  const double* const sin = cos + rows * pairs;
  std::vector<double> exact_cos(static_cast<std::size_t>(pairs)), exact_sin(exact_cos), per_axis;
  Findings findings;
  findings.by_pair.resize(static_cast<std::size_t>(pairs));
  for (std::int64_t row = 0; row < rows; ++row) {
    positions.token(row, per_axis);
    core::cos_sin(frequencies, per_axis, std::span(exact_cos), std::span(exact_sin));
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const auto column = static_cast<std::size_t>(pair);
      compare({cos[row * pairs + pair], sin[row * pairs + pair]},
              {exact_cos[column], exact_sin[column]}, frequencies.amplitude(), options.threshold,
              row, pair, findings);
    }
  }
  const Report report(findings, positions, frequencies);
  if (options.json) {
    report.print_json(options.threshold, frequencies.amplitude());
  } else {
    report.print_text(options.threshold);
  }
  return findings.first_row_past ? exit_code::difference : exit_code::done;
}

}  // namespace

void add_audit(CLI::App& app, Action& action) {
  auto options = std::make_shared<AuditOptions>();
  CLI::App* verb = app.add_subcommand("audit", "how wrong is another engine's cos/sin table");
  verb->add_option("table", options->table, "the table to judge, a .npy file")->required();
  add_spec_options(*verb, options->spec);
  verb->add_option("--positions", options->positions,
                   "the positions of the rows: A:B or a .npy file (default 0, 1, 2, ...)");
  verb->add_option(
      "--threshold", options->threshold,
      "exit 1 past this many radians, or this relative amplitude error (default 1e-3)");
  verb->add_flag("--json", options->json, "print the findings as one object");
  verb->footer(
      "Compares a table with the exact values of its config: the angle and the amplitude of every\n"
      "entry, where the worst are, and the first position past the threshold.\n"
      "\n"
      "Shape    T.npy is [2, positions, pairs]: cos, then sin; float16, float32, float64 or "
      "bfloat16\n"
      "         P.npy as for phasor table\n"
      "\n"
      "Example  phasor audit T.npy --config model --positions 0:131072");
  verb->callback([&action, options] { action = [options] { return run_audit(*options); }; });
}

}  // namespace phasor::tools
