// Golden kind attention_backward: the gradient of sum(output * d_output) by q, k, v and every
// trained table, whatever the encoding.
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "conform/attend.hpp"
#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "conform/rotary.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::tools {
namespace {

// Dense float32 gradients like a view.
struct Gradient {
  std::vector<float> values;
  core::HeadsView view;

  explicit Gradient(core::ConstHeadsView like)
      : values(static_cast<std::size_t>(like.batch * like.tokens * like.heads * like.head_dim)),
        view(core::heads_view(values.data(), like.batch, like.tokens, like.heads, like.head_dim)) {}
  Gradient(const Gradient&) = delete;
  Gradient& operator=(const Gradient&) = delete;
};

void compare_gradient(Comparison& comparison, const std::string& name, const Gradient& gradient) {
  comparison.result(name, computed_heads(gradient.view, {"batch", "seq", "head", "dim"}));
}

// A gradient with the layout of its table, and so of the input that the table is.
encodings::TableGradient like_table(const encodings::Table& table, float* data) {
  return {data, table.heads, table.rows, table.dim, table.head_stride, table.row_stride};
}

void attention_backward(const Case& golden, Comparison& comparison) {
  const CaseHeads heads(golden, "q", "k", "v");
  encodings::AttentionShape shape = heads.shape();
  const CaseEncoding encoding = encoding_of(golden, member<std::string>(golden, "encoding"), shape);

  attention::AttentionOptions options;
  options.window = optional_member<std::int64_t>(golden, "window");
  // A window of these cases is 0 <= i - j < window: it looks back only.
  options.causality = optional_member<bool>(golden, "causal").value_or(false) || options.window
                          ? attention::Causality::bottom_right
                          : attention::Causality::none;
  if (const auto* spec = std::get_if<encodings::RopeSpec>(&encoding.encoding);
      spec != nullptr && golden.inputs.contains("position_ids")) {
    const core::Positions positions = case_positions(golden.input("position_ids"), "position_ids",
                                                     *spec, heads.q().batch, shape.query_tokens);
    shape.context = encodings::context_for(*spec, optional_member<std::int64_t>(golden, "seq_len"),
                                           positions.largest());
    options.query_positions = options.key_positions = positions;
  }
  const encodings::ScoreTerms terms = terms_of(golden, encoding, shape);
  if (terms.rotation)
    comparison.scalar("attention_scaling", terms.rotation->frequencies.amplitude());

  Attended attended = attend_heads(terms, heads.q(), heads.k(), heads.v(), options);
  compare_output(golden, comparison, "output", attended);

  CaseArray d_output = golden.input("d_output");
  Gradient d_q(heads.q()), d_k(heads.k()), d_v(heads.v());
  attention::AttentionGradients gradients{d_q.view, d_k.view, d_v.view, {}};
  std::vector<std::vector<float>> d_tables;
  std::vector<encodings::TableGradient> table_views;
  for (const TrainedInput& trained : encoding.trained) {
    const CaseArray& input = golden.input(trained.input);
    std::vector<float>& values =
        d_tables.emplace_back(static_cast<std::size_t>(input.data.size()), 0.0F);
    table_views.push_back(
        like_table(table_of(input, trained.input, {"head", "dim"}), values.data()));
    for (const auto term : trained.terms) gradients.terms.*term = table_views.back();
  }
  const auto* const kerple = std::get_if<encodings::Kerple>(&encoding.encoding);
  std::vector<float> d_rows;
  if (kerple != nullptr) {
    const encodings::Table& rows = terms.bias->table;
    d_rows.resize(static_cast<std::size_t>(rows.heads * rows.rows));
    gradients.terms.bias = like_table(rows, d_rows.data());
  }
  attention::attend_backward(
      terms, heads.q(), heads.k(), heads.v(),
      {attended.output_view(), attended.log_sum_exp.data(), heads_of(d_output, "d_output")},
      gradients, options);
  if (kerple != nullptr) {
    encodings::kerple_backward(*kerple, gradients.terms.bias, table_views[0], table_views[1]);
  }
  compare_gradient(comparison, "d_q", d_q);
  compare_gradient(comparison, "d_k", d_k);
  compare_gradient(comparison, "d_v", d_v);
  for (std::size_t at = 0; at < encoding.trained.size(); ++at) {
    const std::string& name = encoding.trained[at].input;
    const CaseArray& input = golden.input(name);
    comparison.result(
        "d_" + name,
        {{d_tables[at].begin(), d_tables[at].end()}, input.data.shape, input.dims, {}});
  }
}

}  // namespace

void add_backward_kinds(Kinds& kinds) { kinds["attention_backward"] = attention_backward; }

}  // namespace phasor::tools
