// log.csv: the curves of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::lab {

struct LogRow {
  std::int64_t step = 0, tokens = 0;
  // Empty in the file if there is none: before the first step, between evaluations.
  std::optional<double> loss, rate, gradient_norm, validation_loss, validation_accuracy;
};

// Numbers have nine significant digits. Rows hold no times, so that equal runs have equal files.
class RunLog {
 public:
  RunLog();
  void add(const LogRow& row);
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t last_step() const noexcept { return last_step_; }  // -1: no row

  // Replaces the file.
  [[nodiscard]] Result<Done> save(const std::filesystem::path& path) const;
  // The first `rows` rows of a file.
  //
  // error    Error(io); Error(invalid_argument): other columns, fewer rows
  [[nodiscard]] static Result<RunLog> read(const std::filesystem::path& path, std::int64_t rows);

 private:
  std::string text_;
  std::int64_t rows_ = 0, last_step_ = -1;
};

// Step and validation loss of each evaluation in a log.
//
// error    Error(io); Error(invalid_argument): other columns, text where a number must be
[[nodiscard]] Result<std::vector<std::pair<std::int64_t, double>>> read_validation_curve(
    const std::filesystem::path& path);

// A number as the log writes it.
[[nodiscard]] std::string log_number(double value);

}  // namespace phasor::lab
