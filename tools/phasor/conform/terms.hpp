// From the description of a golden case to the encoding that its attention has, and to the inputs
// whose gradients it asks for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "conform/case.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::tools {

// A trained table of a case, read in place: the axes head and dim by their names, the one other
// axis as rows.
//
// dims     the names of the axes where the case does not give them
// throws   Error(unsupported) when it is not float32, when dim is not the last axis, or when more
//          than one axis has another name
[[nodiscard]] encodings::Table table_of(const CaseArray& array, const std::string& name,
                                        const std::vector<std::string>& dims = {});

// An input with a gradient, and the terms of the score that it is a table of; none for KERPLE, whose
// rows are computed from its inputs.
struct TrainedInput {
  std::string input;
  std::vector<encodings::TableGradient encodings::ScoreTermGradients::*> terms;
};

struct CaseEncoding {
  encodings::Encoding encoding;
  std::vector<TrainedInput> trained;
  // DeBERTa's cases give what the score is divided by, the others its factor.
  enum class Scale : std::uint8_t { factor, divisor };
  Scale scale = Scale::factor;
};

// `name` is one of none, rope, xpos, t5, alibi, kerple, shaw, bert_relative, transformer_xl,
// conformer_relative, deberta_v1, deberta_v2 and tupe. Tables point into `golden`.
//
// throws   Error: unknown name, a missing table or key, sizes that contradict each other
[[nodiscard]] CaseEncoding encoding_of(const Case& golden, const std::string& name,
                                       const encodings::AttentionShape& shape);

}  // namespace phasor::tools
