// The attention of a golden case: its heads, its mask, the call, and the results under the names
// and axes that the case expects.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conform/case.hpp"
#include "conform/terms.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::tools {

// Queries, keys and values of a case, whatever the order of their axes.
class CaseHeads {
 public:
  CaseHeads(const Case& golden, const std::string& q, const std::string& k, const std::string& v);
  CaseHeads(CaseArray q, CaseArray k, CaseArray v);
  // The views of a copy would point into the first.
  CaseHeads(const CaseHeads&) = delete;
  CaseHeads& operator=(const CaseHeads&) = delete;

  [[nodiscard]] core::ConstHeadsView q() const noexcept { return q_view_; }
  [[nodiscard]] core::ConstHeadsView k() const noexcept { return k_view_; }
  [[nodiscard]] core::ConstHeadsView v() const noexcept { return v_view_; }
  [[nodiscard]] encodings::AttentionShape shape() const;
  // The same with zeros for queries, or for both: what remains of a score is its position part.
  [[nodiscard]] CaseHeads with_zero_queries() const;
  [[nodiscard]] CaseHeads with_zero_queries_and_keys() const;

 private:
  CaseArray q_, k_, v_;
  core::HeadsView q_view_, k_view_, v_view_;  // into the arrays above, which keep their memory
};

// What attention gives for a case.
struct Attended {
  std::int64_t batch = 0, heads = 0, queries = 0, keys = 0, value_dim = 0;
  std::vector<float> output;                                 // [batch, query, head, dim]
  std::vector<float> log_sum_exp;                            // [batch, head, query]
  std::vector<float> scores, capped, masked, probabilities;  // [batch, head, query, key]
  std::vector<std::uint8_t> left_out;  // [batch, query]: rows to leave out of the comparison, or
                                       // empty

  [[nodiscard]] core::HeadsView output_view();
};
[[nodiscard]] Attended attend_heads(const encodings::ScoreTerms& terms, core::ConstHeadsView q,
                                    core::ConstHeadsView k, core::ConstHeadsView v,
                                    const attention::AttentionOptions& options);

// The encoding of a case resolved for its heads, with the case's own scale where it is another.
[[nodiscard]] encodings::ScoreTerms terms_of(const Case& golden, const CaseEncoding& encoding,
                                             const encodings::AttentionShape& shape);

// A mask of the case (bool: not 0 is seen; float: added), its axes found by name.
class CaseMask {
 public:
  CaseMask(const CaseArray& array, const std::string& name, const encodings::AttentionShape& shape,
           std::int64_t batch);
  CaseMask(const CaseMask&) = delete;
  CaseMask& operator=(const CaseMask&) = delete;
  [[nodiscard]] attention::Mask view() const noexcept { return mask_; }
  // [batch, query]: 1 where no head of the query sees a key. Boolean masks only.
  [[nodiscard]] std::vector<std::uint8_t> hidden_rows(const encodings::AttentionShape& shape,
                                                      std::int64_t batch) const;

 private:
  std::vector<std::uint8_t> booleans_;
  std::vector<float> floats_;
  attention::Mask mask_;
};
// Strides of the axes batch, head, query and key; axes of length 1 under any name are broadcast.
[[nodiscard]] attention::Mask mask_strides(const CaseArray& array, const std::string& name);

[[nodiscard]] Computed computed_heads(core::ConstHeadsView view,
                                      const std::vector<std::string>& dims);
// `name` is an output with the axes batch, seq (or query), head and dim, or head*dim in one.
void compare_output(const Case& golden, Comparison& comparison, const std::string& name,
                    Attended& attended);
// `name` has the axes batch, head, query and key in any order.
void compare_square(Comparison& comparison, const std::string& name, const Attended& attended,
                    const std::vector<float>& values);

// Whether an output or a truth of that name is expected.
[[nodiscard]] bool expects(const Case& golden, const std::string& name);

}  // namespace phasor::tools
