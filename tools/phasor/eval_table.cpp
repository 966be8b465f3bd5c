#include "eval_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace phasor::tools {
namespace {

// Perplexities run from a few to millions.
std::string perplexity_text(double perplexity) {
  return perplexity < 1e5 ? fmt::format("{:.2f}", perplexity) : fmt::format("{:.3g}", perplexity);
}

// Null when there is none.
const EvalCell* find_in_table(const std::vector<EvalCell>& cells, const EvalLine& line,
                              std::int64_t context) {
  for (const EvalCell& cell : cells) {
    if (cell.id.line == line && cell.id.context == context) return &cell;
  }
  return nullptr;
}

// The cell of the lowest perplexity at a context, the first of equals; null without a cell.
const EvalCell* best_cell(const std::vector<EvalCell>& cells, const std::vector<EvalLine>& lines,
                          std::int64_t context) {
  const EvalCell* best = nullptr;
  for (const EvalLine& line : lines) {
    const EvalCell* cell = find_in_table(cells, line, context);
    if (cell && (!best || cell->value.perplexity < best->value.perplexity)) best = cell;
  }
  return best;
}

template <class Value>
std::string table(std::string_view title, const std::vector<EvalCell>& cells,
                  const std::vector<EvalLine>& lines, const std::vector<std::int64_t>& contexts,
                  const Value& value) {
  std::size_t width = 14;
  for (const EvalLine& line : lines) width = std::max(width, line.label().size());
  std::string page = fmt::format("{:<{}}", title, width);
  for (const std::int64_t context : contexts) page += fmt::format(" {:>10}", context);
  page += '\n';
  for (const EvalLine& line : lines) {
    page += fmt::format("{:<{}}", line.label(), width);
    for (const std::int64_t context : contexts) {
      const EvalCell* cell = find_in_table(cells, line, context);
      page += fmt::format(" {:>10}", cell ? perplexity_text(value(cell->value)) : "-");
    }
    page += '\n';
  }
  return page;
}

}  // namespace

std::string eval_page(const std::vector<EvalCell>& cells, const std::vector<EvalLine>& lines,
                      const std::vector<std::int64_t>& contexts) {
  return table("perplexity", cells, lines, contexts,
               [](const models::Perplexity& value) { return value.perplexity; }) +
         "\n" + table("last quarter", cells, lines, contexts, [](const models::Perplexity& value) {
           return std::exp(value.last_quarter_nats);
         });
}

std::string eval_sentence(const std::vector<EvalCell>& cells, const std::vector<EvalLine>& lines,
                          const std::vector<std::int64_t>& contexts) {
  std::string sentence;
  for (std::size_t first = 0; first < contexts.size();) {
    const EvalCell* best = best_cell(cells, lines, contexts[first]);
    std::size_t last = first;
    while (best && last + 1 < contexts.size()) {
      const EvalCell* next = best_cell(cells, lines, contexts[last + 1]);
      if (!next || !(next->id.line == best->id.line)) break;
      ++last;
    }
    if (best) {
      const EvalCell* longest = best_cell(cells, lines, contexts[last]);
      const EvalCell* plain = find_in_table(cells, {.scaling = "none"}, contexts[last]);
      sentence += sentence.empty() ? "Lowest perplexity: " : "; ";
      sentence += first == last ? fmt::format("{} at {}", best->id.line.label(), contexts[first])
                                : fmt::format("{} from {} to {}", best->id.line.label(),
                                              contexts[first], contexts[last]);
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
