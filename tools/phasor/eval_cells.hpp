// The cells of `phasor eval`: one perplexity for each scaling, context, offset and kind of angles, kept
// in a CSV file with keys of what they were computed from, and windows of a cell that is not finished.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "phasor/models/internal/perplexity.hpp"

namespace phasor::tools {

// What a cell of a run is computed with.
struct EvalLine {
  std::string scaling;
  std::int64_t offset = 0;  // of every token's position
  core::AngleMode angles = core::AngleMode::exact;

  // "none", "yarn, float32, offset 10000"
  [[nodiscard]] std::string label() const;
  bool operator==(const EvalLine&) const = default;
};

// Keys of the content: the same for all cells of a file.
struct EvalKeys {
  std::string precision;  // "exact" or "fast"
  std::string model;      // Checkpoint::content_key()
  std::string text;       // of the text file, or of the ids that were given
  std::string ids;        // of the token ids that are scored
};

// What identifies a cell in its file.
struct EvalId {
  EvalLine line;
  std::int64_t context = 0, stride = 0;
  std::string scaling_key;  // of the parameters of the scaling
  EvalKeys keys;

  // Whether it is the same place of the table, whatever the keys are.
  [[nodiscard]] bool same_place(const EvalId& other) const {
    return line == other.line && context == other.context && stride == other.stride;
  }
};

struct EvalCell {
  std::string model;  // its name
  EvalId id;
  double factor = 1.0;
  models::Perplexity value;
};

// The finished windows of a cell.
struct EvalPart {
  EvalId id;
  models::PerplexityState state;
};

[[nodiscard]] std::string eval_csv(const std::vector<EvalCell>& cells);
// The cells of a file that eval_csv wrote; none when there is no such file.
//
// throws   Error naming the line: unknown header, a header without keys, a row that does not parse
[[nodiscard]] std::vector<EvalCell> read_eval_csv(const std::string& path);

[[nodiscard]] std::string eval_parts_csv(const std::vector<EvalPart>& parts);
// As read_eval_csv, for a file that eval_parts_csv wrote.
[[nodiscard]] std::vector<EvalPart> read_eval_parts(const std::string& path);

// throws   Error naming the file and the keys if results of `there` are not those of `here`
void check_same_keys(const std::string& path, const EvalKeys& there, const EvalKeys& here);
// The same for the parameters of the scaling of a place of the table.
void check_same_scaling(const std::string& path, const EvalId& there, const EvalId& here);

}  // namespace phasor::tools
