// What finished runs found: tables over variants and seeds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::lab {

struct FinishedRun {
  std::filesystem::path folder;
  std::string experiment, variant;
  std::uint64_t seed = 0;
  io::Json settings;  // experiment.json without the seed
  io::Json result;    // result.json, with "bleu" and "chrf" of bleu.json if it is there
};

// Every folder with a result.json at or below `folder`, sorted by path; stages of pre-training are parts
// of their run and not listed.
//
// error    Error(io | invalid_argument) with the path; Error(invalid_argument): none
[[nodiscard]] Result<std::vector<FinishedRun>> find_runs(const std::filesystem::path& folder);

// Mean and sample standard deviation; 0 for one value.
struct Spread {
  std::size_t count = 0;
  double mean = 0.0, deviation = 0.0;
};
[[nodiscard]] Spread spread_of(std::span<const double> values);

struct ReportFile {
  std::string name, content;
};
// report.md, and CSV files of what it shows: results.csv (a row per run), and per experiment
// EXPERIMENT-curves.csv (experiment, encoding, step, loss, seed: the validation loss) and, if runs have
// them, EXPERIMENT-contexts.csv (experiment, encoding, context, loss, seed).
//
// figures   the page shows EXPERIMENT-curves.svg and EXPERIMENT-contexts.svg
// throws    Error(io | invalid_argument): a log that cannot be read; runs of one variant whose settings
//           differ in more than the seed, with the difference
enum class Figures : std::uint8_t { none, shown };
[[nodiscard]] std::vector<ReportFile> make_report(std::span<const FinishedRun> runs,
                                                  Figures figures);

}  // namespace phasor::lab
