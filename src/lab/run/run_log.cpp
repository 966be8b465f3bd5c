#include "lab/run/run_log.hpp"

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/file_text.hpp"

namespace phasor::lab {
namespace {

constexpr std::string_view kColumns =
    "step,tokens,loss,learning_rate,gradient_norm,validation_loss,validation_accuracy\n";

}  // namespace

std::string log_number(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 9);
  return {text, end.ptr};
}

RunLog::RunLog() : text_(kColumns) {}

void RunLog::add(const LogRow& row) {
  text_ += message(row.step, ",", row.tokens);
  for (const std::optional<double>& value :
       {row.loss, row.rate, row.gradient_norm, row.validation_loss, row.validation_accuracy}) {
    text_ += ',';
    if (value) text_ += log_number(*value);
  }
  text_ += '\n';
  ++rows_;
  last_step_ = row.step;
}

Result<Done> RunLog::save(const std::filesystem::path& path) const {
  const std::span<const std::byte> piece = std::as_bytes(std::span(text_));
  return io::replace_file(path, std::span(&piece, 1));
}

Result<RunLog> RunLog::read(const std::filesystem::path& path, std::int64_t rows) {
  auto text = io::read_text(path);
  if (!text) return text.error();
  const std::string_view all = *text;
  const auto fail = [&](const std::string& what) {
    return io::in_file(path.string(), Error(ErrorCode::invalid_argument, what));
  };
  if (!all.starts_with(kColumns)) {
    return fail("the first line must be \"" + std::string(kColumns.substr(0, kColumns.size() - 1)) +
                "\"");
  }
  RunLog log;
  std::size_t end = kColumns.size();
  for (; log.rows_ < rows; ++log.rows_) {
    const std::size_t next = all.find('\n', end);
    if (next == std::string_view::npos) {
      return fail(message("must have the ", rows, " rows of its checkpoint, got ", log.rows_));
    }
    const std::string_view row = all.substr(end, next - end);
    if (std::from_chars(row.data(), row.data() + row.size(), log.last_step_).ec != std::errc{}) {
      return fail(
          message("row ", log.rows_ + 1, " must begin with its step, got ", io::in_quotes(row)));
    }
    end = next + 1;
  }
  log.text_ = std::string(all.substr(0, end));
  return log;
}

Result<std::vector<std::pair<std::int64_t, double>>> read_validation_curve(
    const std::filesystem::path& path) {
  auto text = io::read_text(path);
  if (!text) return text.error();
  std::string_view rest = *text;
  const auto fail = [&](const std::string& what) {
    return io::in_file(path.string(), Error(ErrorCode::invalid_argument, what));
  };
  if (!rest.starts_with(kColumns)) return fail("the columns are not those of a log");
  rest.remove_prefix(kColumns.size());
  std::vector<std::pair<std::int64_t, double>> curve;
  for (std::int64_t row = 1; !rest.empty(); ++row) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    constexpr int kValidation = 5;  // its place among the columns
    std::string_view cell = line;
    for (int column = 0; column < kValidation && !cell.empty(); ++column) {
      cell.remove_prefix(std::min(cell.size(), cell.find(',')));
      if (!cell.empty()) cell.remove_prefix(1);
    }
    cell = cell.substr(0, cell.find(','));
    if (cell.empty()) continue;
    std::pair<std::int64_t, double> point;
    const auto is_read = [](std::string_view from, auto& into) {
      return std::from_chars(from.data(), from.data() + from.size(), into).ec == std::errc{};
    };
    if (!is_read(line, point.first) || !is_read(cell, point.second)) {
      return fail(message("row ", row, " must hold numbers, got ", io::in_quotes(line)));
    }
    curve.push_back(point);
  }
  return curve;
}

}  // namespace phasor::lab
