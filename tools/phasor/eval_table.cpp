#include "eval_table.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/file.hpp"

namespace phasor::tools {
namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// from_chars reads "nan" as well, which is how missing numbers are written.
template <class T>
bool read_number(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<EvalCell> parse_row(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, ',');
  if (fields.size() != split(kEvalHeader, ',').size()) return std::nullopt;
  EvalCell cell;
  cell.model = fields[0];
  cell.scaling = fields[1];
  models::Perplexity& value = cell.value;
  const bool read =
      read_number(fields[2], cell.factor) && read_number(fields[3], value.context) &&
      read_number(fields[4], cell.stride) && read_number(fields[5], value.windows) &&
      read_number(fields[6], value.scored) && read_number(fields[7], value.nats) &&
      read_number(fields[8], value.standard_error) && read_number(fields[9], value.perplexity) &&
      read_number(fields[10], value.last_quarter_nats) && read_number(fields[11], value.seconds);
  if (!read) return std::nullopt;
  return cell;
}

// Perplexities run from a few to millions.
std::string perplexity_text(double perplexity) {
  return perplexity < 1e5 ? fmt::format("{:.2f}", perplexity) : fmt::format("{:.3g}", perplexity);
}

}  // namespace

std::string eval_csv(const std::vector<EvalCell>& cells) {
  std::string text(kEvalHeader);
  text += '\n';
  for (const EvalCell& cell : cells) {
    const models::Perplexity& value = cell.value;
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{:.3f}\n", cell.model, cell.scaling,
                        cell.factor, value.context, cell.stride, value.windows, value.scored,
                        value.nats, value.standard_error, value.perplexity, value.last_quarter_nats,
                        value.seconds);
  }
  return text;
}

std::vector<EvalCell> read_eval_csv(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  const std::string text = io::read_text(path).value_or_throw();
  std::vector<EvalCell> cells;
  std::size_t number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (number == 1 && line != kEvalHeader)
      refuse(ErrorCode::io, message(path, " is not a CSV file of phasor eval: unknown header"));
    if (number == 1 || line.empty()) continue;
    const std::optional<EvalCell> cell = parse_row(line);
    if (!cell)
      refuse(ErrorCode::io, message(path, ": line ", number,
                                    " is not a row of phasor eval: ", line.substr(0, 60)));
    // A model whose weights are not finite had such rows before it was refused. They run again.
    if (std::isfinite(cell->value.nats)) cells.push_back(*cell);
  }
  return cells;
}

const EvalCell* find_cell(const std::vector<EvalCell>& cells, std::string_view scaling,
                          std::int64_t context, std::int64_t stride) {
  for (const EvalCell& cell : cells) {
    if (cell.scaling == scaling && cell.value.context == context &&
        (stride == 0 || cell.stride == stride))
      return &cell;
  }
  return nullptr;
}

const EvalCell* best_cell(const std::vector<EvalCell>& cells,
                          const std::vector<std::string>& scalings, std::int64_t context) {
  const EvalCell* best = nullptr;
  for (const std::string& scaling : scalings) {
    const EvalCell* cell = find_cell(cells, scaling, context, 0);
    if (cell && (!best || cell->value.perplexity < best->value.perplexity)) best = cell;
  }
  return best;
}

namespace {

template <class Value>
std::string table(std::string_view title, const std::vector<EvalCell>& cells,
                  const std::vector<std::string>& scalings,
                  const std::vector<std::int64_t>& contexts, const Value& value) {
  std::string page = fmt::format("{:<14}", title);
  for (const std::int64_t context : contexts) page += fmt::format(" {:>10}", context);
  page += '\n';
  for (const std::string& scaling : scalings) {
    page += fmt::format("{:<14}", scaling);
    for (const std::int64_t context : contexts) {
      const EvalCell* cell = find_cell(cells, scaling, context, 0);
      page += fmt::format(" {:>10}", cell ? perplexity_text(value(cell->value)) : "-");
    }
    page += '\n';
  }
  return page;
}

}  // namespace

std::string eval_page(const std::vector<EvalCell>& cells, const std::vector<std::string>& scalings,
                      const std::vector<std::int64_t>& contexts) {
  return table("perplexity", cells, scalings, contexts,
               [](const models::Perplexity& value) { return value.perplexity; }) +
         "\n" +
         table("last quarter", cells, scalings, contexts,
               [](const models::Perplexity& value) { return std::exp(value.last_quarter_nats); });
}

std::string eval_sentence(const std::vector<EvalCell>& cells,
                          const std::vector<std::string>& scalings,
                          const std::vector<std::int64_t>& contexts) {
  std::string sentence;
  for (std::size_t first = 0; first < contexts.size();) {
    const EvalCell* best = best_cell(cells, scalings, contexts[first]);
    std::size_t last = first;
    while (best && last + 1 < contexts.size()) {
      const EvalCell* next = best_cell(cells, scalings, contexts[last + 1]);
      if (!next || next->scaling != best->scaling) break;
      ++last;
    }
    if (best) {
      const EvalCell* longest = best_cell(cells, scalings, contexts[last]);
      const EvalCell* plain = find_cell(cells, "none", contexts[last], 0);
      sentence += sentence.empty() ? "Lowest perplexity: " : "; ";
      sentence += first == last ? fmt::format("{} at {}", best->scaling, contexts[first])
                                : fmt::format("{} from {} to {}", best->scaling, contexts[first],
                                              contexts[last]);
      sentence += fmt::format(" ({}", perplexity_text(longest->value.perplexity));
      if (first != last) sentence += fmt::format(" at {}", contexts[last]);
      if (plain && plain != longest)
        sentence += fmt::format(", none {}", perplexity_text(plain->value.perplexity));
      sentence += ")";
    }
    first = last + 1;
  }
  return sentence + ".";
}

}  // namespace phasor::tools
