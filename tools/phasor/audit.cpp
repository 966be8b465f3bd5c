// phasor audit: the errors of another engine's cos/sin table.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "commands.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/porting/diagnose.hpp"
#include "phasor/porting/internal/table_forms.hpp"
#include "progress.hpp"
#include "spec.hpp"
#include "text_files.hpp"

namespace phasor::tools {
namespace {

using porting::WorstEntry;

// Past this a rotated value is off in its third digit.
constexpr double kDefaultThreshold = 1e-3;
// What rounding to bfloat16 alone does: half a unit in the last place of cos and of sin.
constexpr double kBfloat16Threshold = 0x1p-8;

struct AuditOptions {
  SpecOptions spec;
  std::string table, sin, positions, csv, form;
  std::optional<double> threshold;
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

bool names(std::string name, std::string_view wanted, std::string_view other) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name.find(wanted) != std::string::npos && name.find(other) == std::string::npos;
}

// The only array whose name contains the one word and not the other.
const io::ArrayEntry* find_named(const std::vector<io::ArrayEntry>& entries,
                                 std::string_view wanted, std::string_view other) {
  const io::ArrayEntry* found = nullptr;
  for (const io::ArrayEntry& entry : entries) {
    if (!names(entry.name, wanted, other)) continue;
    if (found != nullptr) return nullptr;
    found = &entry;
  }
  return found;
}

porting::TableReading read_table(const AuditOptions& options, const encodings::RopeSpec& spec) {
  const std::int64_t pairs = encodings::resolve_frequencies(spec, options.spec.context).pairs();
  const std::optional<porting::TableForm> form = porting::table_form_of(options.form);
  const SelectedArrays selected = open_arrays(options.table);
  std::optional<io::NpyArray> sin;
  std::optional<std::string> name = selected.name;
  if (!options.sin.empty()) {
    sin = read_array(options.sin);
  } else if (!name && selected.file.entries().size() > 1) {
    const io::ArrayEntry* const of_cos = find_named(selected.file.entries(), "cos", "sin");
    const io::ArrayEntry* const of_sin = find_named(selected.file.entries(), "sin", "cos");
    if (of_cos != nullptr && of_sin != nullptr) {
      name = of_cos->name;
      sin = selected.file.read(of_sin->name).value_or_throw();
    }
  }
  const io::NpyArray table = selected.file.read(name).value_or_throw();
  try {
    return porting::read_table(table, sin ? &*sin : nullptr, pairs, form);
  } catch (const Error& error) {
    throw Error(error.code(), message(options.table, ": ", error.what()));
  }
}

void print_copies(const porting::TableReading& reading) {
  if (!reading.copies) return;
  const porting::CopyDifference& copies = *reading.copies;
  print_err(
      "phasor audit: {} values are stored twice and differ, first in row {}: feature {} is {:.6g}, "
      "feature {} is {:.6g}\n",
      copies.count, copies.row, copies.first, copies.first_value, copies.second,
      copies.second_value);
}

int run_audit(const AuditOptions& options) {
  if (options.threshold && !(*options.threshold >= 0.0)) {
    refuse(message("--threshold must be at least 0, got ", *options.threshold));
  }
  const encodings::RopeSpec spec = read_spec(options.spec);
  const porting::TableReading reading = read_table(options, spec);
  const std::int64_t rows = reading.rows;
  const core::Positions positions =
      fit_positions(spec,
                    options.positions.empty() ? core::positions_counted(0, rows)
                                              : parse_positions(options.positions),
                    std::nullopt, rows);
  const std::optional<std::int64_t> context = context_for(spec, options.spec, positions, "audit");
  const core::Frequencies frequencies = encodings::resolve_frequencies(spec, context);
  const auto axes = static_cast<std::size_t>(frequencies.axis_count());
  std::vector<double> flat_positions(static_cast<std::size_t>(rows) * axes);
  for (std::int64_t row = 0; row < rows; ++row) {
    positions.read_token(
        0, row, std::span(flat_positions).subspan(static_cast<std::size_t>(row) * axes, axes));
  }
  const porting::ForeignTable table{reading.cos,
                                    reading.sin,
                                    flat_positions,
                                    rows,
                                    reading.stored,
                                    porting::name_of(reading.form),
                                    reading.copies ? reading.copies->count : 0};
  const double threshold = options.threshold.value_or(
      reading.stored == core::DType::bf16 ? kBfloat16Threshold : kDefaultThreshold);
  Progress progress;
  const porting::AuditOptions asked{context, threshold,
                                    [&](double share) { progress.move(share, 1.0); }};
  const porting::Audit findings = porting::audit(spec, table, asked);
  progress.clear();
  const Report report(findings, positions, porting::unit_name(reading.stored));
  if (!options.csv.empty()) report.write_csv(options.csv);
  if (options.json) {
    print_out("{}\n", porting::audit_json(findings, table, asked));
  } else {
    print_out("table            {} {}\n", core::name_of(reading.stored),
              porting::name_of(reading.form));
    report.print_text(threshold);
  }
  print_copies(reading);
  return findings.first_row_past || reading.copies ? exit_code::difference : exit_code::done;
}

}  // namespace

void add_audit(CommandLine& line) {
  auto options = std::make_shared<AuditOptions>();
  Verb& verb = line.verb("audit", "measure the errors of another engine's cos/sin table");
  verb.argument("table", &options->table, "the table: cos and sin, or cos alone").required();
  verb.argument("sin", &options->sin, "sin, if TABLE is cos alone");
  add_spec_options(verb, options->spec);
  verb.flag("--positions", &options->positions,
            "positions of the rows: A:B or a .npy file (default 0, 1, 2, ...)");
  verb.flag("--form", &options->form, "how the table is stored (default: inferred)")
      .one_of(
          {"pairs", "concatenated", "interleaved", "complex", "last_axis", "cos_sin", "sin_cos"});
  verb.flag("--threshold", &options->threshold,
            "exit 1 above this angle error in radians or relative amplitude error (default 1e-3; "
            "bfloat16 "
            "tables: 2^-8)");
  verb.flag("--csv", &options->csv, "also write the errors of every position to this file");
  verb.flag("--json", &options->json, "print the result as one JSON object");
  verb.footer =
      R"(Compares a table with the exact values of its config: angle and amplitude of every entry, the
worst entries, the first position above the threshold, and the arithmetic or misread config
that explains the errors.

Forms    pairs         cos and sin [positions, pairs]
         concatenated  cos and sin [positions, 2 pairs], halves equal (Hugging Face)
         interleaved   cos and sin [positions, 2 pairs], neighbours equal
         complex       [positions, pairs], cos + i sin (freqs_cis)
         last_axis     [positions, pairs, 2], cos and sin
         cos_sin       [positions, 2 pairs], cos in the first half (vLLM)
         sin_cos       the same, sin first; only with --form
         cos and sin are two files, arrays of one file whose names contain "cos" and
         "sin", or one array [2, ...]. Further axes of size 1 are ignored. float16,
         float32, float64, bfloat16 (or its bits as uint16), complex64, complex128.
         P.npy as for phasor table

)" + std::string(kArrayFiles) +
      R"(

Example  phasor audit T.npy --config model --positions 0:131072
         phasor audit rotary.pt --config model)";
  verb.action = [options] { return run_audit(*options); };
}

}  // namespace phasor::tools
