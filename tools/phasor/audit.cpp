// phasor audit: the errors of another engine's cos/sin table.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "commands.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/porting/diagnose.hpp"
#include "spec.hpp"
#include "text_files.hpp"

namespace phasor::tools {
namespace {

using porting::WorstEntry;

// Past this a rotated value is off in its third digit.
constexpr double kDefaultThreshold = 1e-3;

struct AuditOptions {
  SpecOptions spec;
  std::string table, positions, csv;
  double threshold = kDefaultThreshold;
  bool json = false;
};

class Report {
 public:
  Report(const porting::Audit& findings, const core::Positions& positions, std::string_view unit)
      : findings_(findings), positions_(positions), unit_(unit) {}

  void print_text(double threshold) const {
    print_out("angle error      max {:.3g} rad at {}, mean {:.3g} rad\n", findings_.angle.error,
              place(findings_.angle), findings_.mean_angle);
    print_out("amplitude error  max {:.3g} (relative) at {}\n", findings_.amplitude.error,
              place(findings_.amplitude));
    print_out("{:<17}max {:.3g} at {}, mean {:.3g}\n", fmt::format("{} ulp", unit_),
              findings_.ulp.error, place(findings_.ulp), findings_.mean_ulp);
    for (const WorstEntry& worst : porting::worst_pairs(findings_)) {
      print_out("  pair {:<5} wavelength {:<10.5g} worst {:.3g} rad at position {}\n", worst.pair,
                porting::wavelength_of(findings_, worst.pair), worst.error,
                position_text(worst.row));
    }
    if (findings_.first_row_past) {
      print_out("above {:g}: first at position {}\n", threshold,
                position_text(*findings_.first_row_past));
    } else {
      print_out("within {:g} everywhere\n", threshold);
    }
    print_cause();
  }

  // position, errors: one line per row.
  void write_csv(const std::string& path) const {
    std::string text = "position,max_angle_error,mean_angle_error,max_amplitude_error,max_ulp\n";
    for (std::size_t row = 0; row < findings_.by_row.size(); ++row) {
      const porting::RowErrors& errors = findings_.by_row[row];
      std::string position = position_text(static_cast<std::int64_t>(row));
      std::replace(position.begin(), position.end(), ',', ' ');
      text += fmt::format("{},{},{},{},{}\n", position, errors.max_angle, errors.mean_angle,
                          errors.max_amplitude, errors.max_ulp);
    }
    write_text(path, text);
  }

 private:
  void print_cause() const {
    if (findings_.as_good_as_its_type) {
      print_out("cause: none, the table is as exact as {} can store\n", unit_);
    } else if (findings_.cause) {
      print_out("cause: {} ({}), which leaves {:.2g} of {:.2g} (rms)\n", findings_.cause->text,
                findings_.cause->name, findings_.cause->residual, findings_.error);
      if (findings_.runner_up) {
        print_out("       next best: {} ({}), which leaves {:.2g}\n", findings_.runner_up->text,
                  findings_.runner_up->name, findings_.runner_up->residual);
      }
    } else {
      print_out("cause: unknown\n");
    }
  }
  [[nodiscard]] std::string position_text(std::int64_t row) const {
    std::vector<double> per_axis(static_cast<std::size_t>(findings_.frequencies.axis_count()));
    positions_.read_token(0, row, per_axis);
    std::string text;
    for (const double position : per_axis) {
      if (!text.empty()) text += ',';
      text += fmt::format("{}", position);
    }
    return text;
  }
  [[nodiscard]] std::string place(const WorstEntry& worst) const {
    if (findings_.entries == 0) return "no entry";
    return fmt::format("position {}, pair {}", position_text(worst.row), worst.pair);
  }

  const porting::Audit& findings_;
  const core::Positions& positions_;
  std::string_view unit_;
};

int run_audit(const AuditOptions& options) {
  if (!(options.threshold >= 0.0)) {
    refuse(message("--threshold must be at least 0, got ", options.threshold));
  }
  const encodings::RopeSpec spec = read_spec(options.spec);
  const io::NpyArray array = io::read_npy(options.table).value_or_throw();
  const core::DType stored = io::dtype_of(array, options.table).value_or_throw();
  if (array.shape.size() != 3 || array.shape[0] != 2) {
    refuse(ErrorCode::shape_mismatch,
           message(options.table, ": the shape must be [2, positions, pairs], got ",
                   core::shape_text(array.shape)));
  }
  const std::int64_t rows = array.shape[1];
  const core::Positions positions =
      fit_positions(spec,
                    options.positions.empty() ? core::positions_counted(0, rows)
                                              : parse_positions(options.positions),
                    std::nullopt, rows);
  const std::optional<std::int64_t> context = context_for(spec, options.spec, positions, "audit");
  const core::Frequencies frequencies = encodings::resolve_frequencies(spec, context);
  const std::int64_t pairs = frequencies.pairs();
  if (array.shape[2] != pairs) {
    refuse(ErrorCode::shape_mismatch,
           message(options.table, ": the table must have the config's ", pairs,
                   " pairs, got the shape ", core::shape_text(array.shape)));
  }

  const std::vector<double> values = io::to_doubles(array).value_or_throw();
  const auto half = static_cast<std::size_t>(rows * pairs);
  const auto axes = static_cast<std::size_t>(frequencies.axis_count());
  std::vector<double> flat_positions(static_cast<std::size_t>(rows) * axes);
  for (std::int64_t row = 0; row < rows; ++row) {
    positions.read_token(
        0, row, std::span(flat_positions).subspan(static_cast<std::size_t>(row) * axes, axes));
  }
  const porting::ForeignTable table{std::span(values).first(half), std::span(values).subspan(half),
                                    flat_positions, rows, stored};
  const porting::AuditOptions asked{context, options.threshold};
  const porting::Audit findings = porting::audit(spec, table, asked);
  const Report report(findings, positions, porting::unit_name(stored));
  if (!options.csv.empty()) report.write_csv(options.csv);
  if (options.json) {
    print_out("{}\n", porting::audit_json(findings, table, asked));
  } else {
    report.print_text(options.threshold);
  }
  return findings.first_row_past ? exit_code::difference : exit_code::done;
}

}  // namespace

void add_audit(CommandLine& line) {
  auto options = std::make_shared<AuditOptions>();
  Verb& verb = line.verb("audit", "measure the errors of another engine's cos/sin table");
  verb.argument("table", &options->table, "the table, a .npy file").required();
  add_spec_options(verb, options->spec);
  verb.flag("--positions", &options->positions,
            "positions of the rows: A:B or a .npy file (default 0, 1, 2, ...)");
  verb.flag("--threshold", &options->threshold,
            "exit 1 above this angle error in radians or relative amplitude error (default 1e-3)");
  verb.flag("--csv", &options->csv, "also write the errors of every position to this file");
  verb.flag("--json", &options->json, "print the result as one JSON object");
  verb.footer =
      R"(Compares a table with the exact values of its config: angle and amplitude of every entry, the
worst entries, the first position above the threshold, and the arithmetic or misread config
that explains the errors.

Shape    T.npy is [2, positions, pairs]: cos, then sin; float16, float32, float64 or bfloat16
         P.npy as for phasor table

Example  phasor audit T.npy --config model --positions 0:131072)";
  verb.action = [options] { return run_audit(*options); };
}

}  // namespace phasor::tools
