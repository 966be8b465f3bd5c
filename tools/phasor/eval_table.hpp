// The cells of `phasor eval`: one perplexity per scaling and context, kept in a CSV file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/models/internal/perplexity.hpp"

namespace phasor::tools {

struct EvalCell {
  std::string model, scaling;
  double factor = 1.0;
  std::int64_t stride = 0;
  models::Perplexity value;
};

inline constexpr std::string_view kEvalHeader =
    "model,scaling,factor,context,stride,windows,scored_tokens,nats,standard_error,perplexity,"
    "last_quarter_nats,seconds";

[[nodiscard]] std::string eval_csv(const std::vector<EvalCell>& cells);
// The cells of a file that eval_csv wrote; none when there is no such file.
//
// throws   Error naming the line: unknown header, a row that does not parse
[[nodiscard]] std::vector<EvalCell> read_eval_csv(const std::string& path);
// Null when there is none; stride 0 matches any.
[[nodiscard]] const EvalCell* find_cell(const std::vector<EvalCell>& cells,
                                        std::string_view scaling, std::int64_t context,
                                        std::int64_t stride);

// Rows: scalings, columns: contexts; once for all tokens and once for those in the last quarter of
// their window, where a context that is too long shows first.
[[nodiscard]] std::string eval_page(const std::vector<EvalCell>& cells,
                                    const std::vector<std::string>& scalings,
                                    const std::vector<std::int64_t>& contexts);
// Which scaling has the lowest perplexity at each context, in one sentence.
[[nodiscard]] std::string eval_sentence(const std::vector<EvalCell>& cells,
                                        const std::vector<std::string>& scalings,
                                        const std::vector<std::int64_t>& contexts);
// The cell of the lowest perplexity at a context, the first of equals; null without a cell.
[[nodiscard]] const EvalCell* best_cell(const std::vector<EvalCell>& cells,
                                        const std::vector<std::string>& scalings,
                                        std::int64_t context);

}  // namespace phasor::tools
