// Golden kinds of linear attention, RoFormer (19): forward and backward.
#include <optional>
#include <string>
#include <vector>

#include "conform/attend.hpp"
#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "conform/rotary.hpp"
#include "phasor/attention/linear.hpp"

namespace phasor::tools {
namespace {

attention::FeatureMap features_of(const std::string& name) {
  if (name == "elu+1") return attention::FeatureMap::elu_plus_one;
  if (name == "softmax_exp") return attention::FeatureMap::softmax_exp;
  refuse(ErrorCode::unsupported,
         message(kCaseFile, ": 'feature_map' must be elu+1 or softmax_exp, got ", name));
}

core::Rotary rotary_of_case(const Case& golden, const encodings::AttentionShape& shape) {
  io::Json description = golden.json;
  if (!description.contains("config")) description["head_dim"] = shape.head_dim;
  return encodings::resolve(spec_of(description, std::string(kCaseFile)), shape.key_tokens);
}

attention::LinearOptions options_of(const Case& golden) {
  attention::LinearOptions options;
  options.causality = member<bool>(golden, "causal") ? attention::Causality::bottom_right
                                                     : attention::Causality::none;
  options.features = features_of(member<std::string>(golden, "feature_map"));
  return options;
}

void linear_forward(const Case& golden, const CaseHeads& heads, Comparison& comparison) {
  const encodings::AttentionShape shape = heads.shape();
  Attended attended{heads.q().batch,
                    shape.heads,
                    shape.query_tokens,
                    shape.key_tokens,
                    shape.value_dim,
                    {},
                    {},
                    {},
                    {},
                    {},
                    {},
                    {}};
  attended.output.resize(static_cast<std::size_t>(attended.batch * attended.heads *
                                                  attended.queries * attended.value_dim));
  attention::linear_attend(rotary_of_case(golden, shape), heads.q(), heads.k(), heads.v(),
                           attended.output_view(), options_of(golden));
  compare_output(golden, comparison, "output", attended);
}

void rope_linear_attention(const Case& golden, Comparison& comparison) {
  linear_forward(golden, CaseHeads(golden, "q", "k", "v"), comparison);
}

void linear_attention_backward(const Case& golden, Comparison& comparison) {
  const CaseHeads heads(golden, "q", "k", "v");
  linear_forward(golden, heads, comparison);
  CaseArray d_output = golden.input("d_output");
  CaseArray d_q = golden.input("q"), d_k = golden.input("k"), d_v = golden.input("v");
  attention::linear_attend_backward(rotary_of_case(golden, heads.shape()), heads.q(), heads.k(),
                                    heads.v(), heads_of(d_output, "d_output"), heads_of(d_q, "d_q"),
                                    heads_of(d_k, "d_k"), heads_of(d_v, "d_v"), options_of(golden));
  comparison.result("d_q", computed_from(d_q));
  comparison.result("d_k", computed_from(d_k));
  comparison.result("d_v", computed_from(d_v));
}

}  // namespace

void add_linear_kinds(Kinds& kinds) {
  kinds["rope_linear_attention"] = rope_linear_attention;
  kinds["linear_attention_backward"] = linear_attention_backward;
}

}  // namespace phasor::tools
