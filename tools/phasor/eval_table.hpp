// The results of `phasor eval` as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval_cells.hpp"

namespace phasor::tools {

// Rows: scalings, with angles and offsets that are not the usual ones; columns: contexts. Once for all
// tokens and once for those in the last quarter of their window, where a context that is too long shows
// first.
[[nodiscard]] std::string eval_page(const std::vector<EvalCell>& cells,
                                    const std::vector<EvalLine>& lines,
                                    const std::vector<std::int64_t>& contexts);
// Which row has the lowest perplexity at each context, in one sentence.
[[nodiscard]] std::string eval_sentence(const std::vector<EvalCell>& cells,
                                        const std::vector<EvalLine>& lines,
                                        const std::vector<std::int64_t>& contexts);

}  // namespace phasor::tools
