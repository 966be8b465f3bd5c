// Golden kinds of softmax attention with one encoding each; the cases' notes hold their score
// formulas.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "conform/attend.hpp"
#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::tools {
namespace {

using attention::AttentionOptions;
using encodings::Table;

void compare_attended(const Case& golden, Comparison& comparison, Attended& attended) {
  for (const char* name : {"output", "context", "attn_vec"}) {
    compare_output(golden, comparison, name, attended);
  }
  for (const char* name : {"probs", "attn_prob"}) {
    if (expects(golden, name)) compare_square(comparison, name, attended, attended.probabilities);
  }
}

// Every kind whose tables are inputs of the case and whose queries, keys and values are q, k and v.
void attend_case(const Case& golden, Comparison& comparison, const std::string& encoding_name,
                 attention::Causality causality) {
  const CaseHeads heads(golden, "q", "k", "v");
  const encodings::AttentionShape shape = heads.shape();
  const encodings::ScoreTerms terms =
      terms_of(golden, encoding_of(golden, encoding_name, shape), shape);
  AttentionOptions options;
  options.causality = optional_member<bool>(golden, "causal")
                              .value_or(causality == attention::Causality::bottom_right)
                          ? attention::Causality::bottom_right
                          : attention::Causality::none;
  options.window = optional_member<std::int64_t>(golden, "window");
  std::optional<CaseMask> mask;
  if (golden.inputs.contains("mask")) {
    mask.emplace(golden.input("mask"), "mask", shape, heads.q().batch);
    options.mask = mask->view();
  }
  Attended attended = attend_heads(terms, heads.q(), heads.k(), heads.v(), options);
  // Cases of DeBERTa say that the rows of a query without keys should be ignored: the reference
  // leaves them uniform, attention here gives zeros.
  if (mask && options.mask.kind == attention::Mask::Kind::boolean) {
    attended.left_out = mask->hidden_rows(shape, attended.batch);
  }
  compare_attended(golden, comparison, attended);
  if (golden.truth.contains("scores_f64")) {
    comparison.entry("scores_f64",
                     {{attended.scores.begin(), attended.scores.end()},
                      {attended.batch, attended.heads, attended.queries, attended.keys},
                      {"batch", "head", "query", "key"},
                      {}});
  }
}

// The scores of the first batch row alone: [head, query, key].
std::vector<double> first_scores(const encodings::ScoreTerms& terms, const CaseHeads& heads) {
  const Attended attended = attend_heads(terms, heads.q(), heads.k(), heads.v(), {});
  const auto count = static_cast<std::ptrdiff_t>(attended.heads * attended.queries * attended.keys);
  return {attended.scores.begin(), attended.scores.begin() + count};
}

void t5_attention(const Case& golden, Comparison& comparison) {
  const CaseHeads heads(golden, "q", "k", "v");
  const encodings::AttentionShape shape = heads.shape();
  const auto past = optional_member<std::int64_t>(golden, "past");
  if (past && *past != shape.key_tokens - shape.query_tokens) {
    refuse(ErrorCode::unsupported,
           message(kCaseFile, ": 'past' must be the ", shape.key_tokens - shape.query_tokens,
                   " keys before the first query, got ", *past));
  }
  attend_case(golden, comparison, "t5", attention::Causality::none);
  if (expects(golden, "position_bias")) {
    // Without queries the bias is all that a score has.
    const encodings::ScoreTerms terms = terms_of(golden, encoding_of(golden, "t5", shape), shape);
    comparison.result("position_bias", {first_scores(terms, heads.with_zero_queries()),
                                        {1, shape.heads, shape.query_tokens, shape.key_tokens},
                                        {"1", "head", "query", "key"},
                                        {}});
  }
}

void tupe_attention(const Case& golden, Comparison& comparison) {
  attend_case(golden, comparison, "tupe", attention::Causality::none);
  if (!golden.truth.contains("position_scores_f64")) return;
  const CaseHeads heads(golden, "q", "k", "v");
  const encodings::AttentionShape shape = heads.shape();
  const encodings::ScoreTerms terms = terms_of(golden, encoding_of(golden, "tupe", shape), shape);
  comparison.entry("position_scores_f64", {first_scores(terms, heads.with_zero_queries_and_keys()),
                                           {shape.heads, shape.query_tokens, shape.key_tokens},
                                           {"head", "query", "key"},
                                           {}});
}

struct Waves {
  Computed table;             // [relative, d_model]
  std::vector<double> exact;  // the same in float64
};

// Rows of relative positions first, first - 1, ...: layout [sin | cos].
Waves waves_of(std::int64_t first, std::int64_t rows, std::int64_t d_model) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(rows));
  for (std::int64_t& position : positions) position = first--;
  encodings::Sinusoidal encoding;
  encoding.dim = d_model;
  encoding.variant = encodings::Sinusoidal::Variant::concat;
  std::vector<float> values(positions.size() * static_cast<std::size_t>(d_model));
  Waves waves;
  waves.exact.resize(values.size());
  encodings::sinusoidal_rows(encoding, positions, values.data());
  encodings::sinusoidal_rows(encoding, positions, waves.exact.data());
  waves.table = {{values.begin(), values.end()}, {rows, d_model}, {"relative", "d_model"}, {}};
  return waves;
}

// y = x W^T in double, W [rows, columns] from row `first_row` on, rounded once to float.
std::vector<float> project(const std::vector<double>& x, const std::vector<double>& weight,
                           std::size_t first_row, std::size_t rows, std::size_t columns) {
  std::vector<float> y;
  for (std::size_t at = 0; at < x.size(); at += columns) {
    for (std::size_t row = first_row; row < first_row + rows; ++row) {
      y.push_back(static_cast<float>(
          std::inner_product(x.begin() + static_cast<std::ptrdiff_t>(at),
                             x.begin() + static_cast<std::ptrdiff_t>(at + columns),
                             weight.begin() + static_cast<std::ptrdiff_t>(row * columns), 0.0)));
    }
  }
  return y;
}

CaseArray seq_batch_heads(const std::vector<float>& values, std::int64_t batch, std::int64_t heads,
                          std::int64_t dim) {
  CaseArray array;
  const auto tokens = static_cast<std::int64_t>(values.size()) / (batch * heads * dim);
  array.data = io::make_npy(io::NpyType::f32, {tokens, batch, heads, dim});
  std::copy(values.begin(), values.end(), array.data.as<float>());
  array.dims = {"seq", "batch", "head", "dim"};
  return array;
}

// The case gives the layer's input, its memories and its weights: queries, keys, values and
// relative rows are made from them here.
void transformer_xl_attention(const Case& golden, Comparison& comparison) {
  const CaseArray& x = golden.input("x");
  const Table u = table_of(golden.input("u_bias"), "u_bias");
  const Table v = table_of(golden.input("v_bias"), "v_bias");
  const std::int64_t batch = x.data.shape.at(1), d_model = x.data.shape.at(2);
  const auto width = static_cast<std::size_t>(u.heads * u.dim);
  const auto columns = static_cast<std::size_t>(d_model);
  const std::vector<double> queries = io::to_doubles(x.data).value_or_throw();
  std::vector<double> context;
  if (golden.inputs.contains("mems"))
    context = io::to_doubles(golden.input("mems").data).value_or_throw();
  context.insert(context.end(), queries.begin(), queries.end());
  const std::vector<double> weight =
      io::to_doubles(golden.input("qkv_weight").data).value_or_throw();
  const CaseHeads heads(
      seq_batch_heads(project(queries, weight, 0, width, columns), batch, u.heads, u.dim),
      seq_batch_heads(project(context, weight, width, width, columns), batch, u.heads, u.dim),
      seq_batch_heads(project(context, weight, 2 * width, width, columns), batch, u.heads, u.dim));
  const encodings::AttentionShape shape = heads.shape();

  const Waves waves = waves_of(shape.key_tokens - 1, shape.key_tokens, d_model);
  comparison.result("pos_emb", waves.table);
  const std::vector<float> rows =
      project(waves.exact, io::to_doubles(golden.input("r_weight").data).value_or_throw(), 0, width,
              columns);
  encodings::TransformerXl relative;
  relative.rows = encodings::rows_then_heads(rows.data(), shape.key_tokens, u.heads, u.dim);
  relative.u = u;
  relative.v = v;
  relative.first_distance = shape.key_tokens - 1;
  AttentionOptions options;
  options.causality = attention::Causality::bottom_right;
  Attended attended = attend_heads(terms_of(golden, {relative, {}}, shape), heads.q(), heads.k(),
                                   heads.v(), options);
  compare_attended(golden, comparison, attended);
}

// One batch row and some queries of a view.
core::ConstHeadsView part_of(core::ConstHeadsView view, std::int64_t row, std::int64_t first,
                             std::int64_t count) {
  const auto offset = (row * view.batch_stride + first * view.token_stride) *
                      static_cast<std::int64_t>(core::size_of(view.dtype));
  view.data = static_cast<const std::byte*>(view.data) + offset;
  view.batch = 1;
  view.tokens = count;
  return view;
}

// Puts the results for queries [first, first + part.queries) of a batch row into the whole.
void put_part(const Attended& part, std::int64_t row, std::int64_t first, Attended& whole) {
  const std::int64_t width = whole.heads * whole.value_dim;
  std::copy(part.output.begin(), part.output.end(),
            whole.output.begin() + (row * whole.queries + first) * width);
  for (std::int64_t head = 0; head < whole.heads; ++head) {
    const auto from = part.probabilities.begin() + head * part.queries * part.keys;
    std::copy(from, from + part.queries * part.keys,
              whole.probabilities.begin() +
                  ((row * whole.heads + head) * whole.queries + first) * whole.keys);
  }
}

struct Segments {
  std::vector<double> matrix;  // seg_mat: one-hot over its last axis
  attention::Mask strides;

  // Which row of seg_embed each key reads for this query.
  [[nodiscard]] std::vector<std::int32_t> of(std::int64_t row, std::int64_t query,
                                             std::int64_t keys) const {
    std::vector<std::int32_t> segments;
    for (std::int64_t key = 0; key < keys; ++key) {
      const std::int64_t at =
          row * strides.batch_stride + query * strides.query_stride + key * strides.key_stride;
      segments.push_back(matrix.at(static_cast<std::size_t>(at) + 1) != 0.0 ? 1 : 0);
    }
    return segments;
  }
};

Segments segments_of(const CaseArray& array) {
  if (array.dims.empty() || array.dims.back() != "segment" || array.data.shape.back() != 2) {
    refuse(ErrorCode::unsupported, "seg_mat: the last of 'dims' must be segment, with length 2");
  }
  CaseArray pairs = array;
  pairs.data.shape.back() = 1;
  attention::Mask strides = mask_strides(pairs, "seg_mat");
  for (std::int64_t* stride : {&strides.batch_stride, &strides.query_stride, &strides.key_stride})
    *stride *= 2;
  return {io::to_doubles(array.data).value_or_throw(), strides};
}

// k_head_r may differ between batch rows, and seg_mat may be any matrix, which segments of tokens
// cannot say. So batch rows are attended one at a time, and with seg_mat the queries too: a lone
// query is at the last key, and the first row's distance makes up for it.
void xlnet_attention(const Case& golden, Comparison& comparison) {
  const CaseHeads heads(golden, "q_head", "k_head", "v_head");
  const encodings::AttentionShape shape = heads.shape();
  CaseArray relative_rows = golden.input("k_head_r");
  const core::HeadsView rows = heads_of(relative_rows, "k_head_r");
  if (expects(golden, "pos_emb")) {
    const std::int64_t d_model = golden.input("r").data.shape.at(0);
    comparison.result("pos_emb", waves_of(shape.key_tokens, rows.tokens, d_model).table);
  }
  const std::vector<std::string> head_dim = {"head", "dim"};
  encodings::Xlnet xlnet;
  xlnet.relative.u = table_of(golden.input("r_w_bias"), "r_w_bias", head_dim);
  xlnet.relative.v = table_of(golden.input("r_r_bias"), "r_r_bias", head_dim);
  std::optional<Segments> segments;
  if (golden.inputs.contains("seg_mat")) {
    segments = segments_of(golden.input("seg_mat"));
    xlnet.segment_rows =
        table_of(golden.input("seg_embed"), "seg_embed", {"segment", "head", "dim"});
    xlnet.segment_bias = table_of(golden.input("r_s_bias"), "r_s_bias", head_dim);
  }
  // The reference subtracts 1e30 where the mask is 1.
  CaseArray added;
  std::optional<CaseMask> mask;
  if (golden.inputs.contains("attn_mask")) {
    added = golden.input("attn_mask");
    float* const values = added.data.as<float>();
    std::transform(values, values + added.data.size(), values,
                   [](float value) { return -1e30F * value; });
    mask.emplace(added, "attn_mask", shape, heads.q().batch);
  }

  Attended whole{heads.q().batch,
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
  const auto count = static_cast<std::size_t>(whole.batch * whole.heads * whole.queries);
  whole.output.resize(count * static_cast<std::size_t>(whole.value_dim));
  whole.probabilities.resize(count * static_cast<std::size_t>(whole.keys));
  const std::int64_t step = segments ? 1 : shape.query_tokens;
  const std::vector<std::int32_t> one_segment(static_cast<std::size_t>(step), 0);
  for (std::int64_t row = 0; row < whole.batch; ++row) {
    const std::int64_t table_row = rows.batch == 1 ? 0 : row;
    xlnet.relative.rows = {static_cast<const float*>(rows.data) + table_row * rows.batch_stride,
                           rows.heads,
                           rows.tokens,
                           rows.head_dim,
                           rows.head_stride,
                           rows.token_stride};
    for (std::int64_t first = 0; first < shape.query_tokens; first += step) {
      xlnet.relative.first_distance = shape.key_tokens + shape.query_tokens - (first + step);
      encodings::AttentionShape part_shape = shape;
      part_shape.query_tokens = step;
      AttentionOptions options;
      std::vector<std::int32_t> key_segments;
      if (segments) {
        key_segments = segments->of(row, first, shape.key_tokens);
        options.query_segments = one_segment;
        options.key_segments = key_segments;
      }
      if (mask) {
        options.mask = mask->view();
        options.mask.data = static_cast<const float*>(options.mask.data) +
                            row * options.mask.batch_stride + first * options.mask.query_stride;
      }
      put_part(attend_heads(terms_of(golden, {xlnet, {}}, part_shape),
                            part_of(heads.q(), row, first, step),
                            part_of(heads.k(), row, 0, shape.key_tokens),
                            part_of(heads.v(), row, 0, shape.key_tokens), options),
               row, first, whole);
    }
  }
  compare_attended(golden, comparison, whole);
}

}  // namespace

void add_score_kinds(Kinds& kinds) {
  const auto add = [&](const char* kind, const char* encoding, attention::Causality causality) {
    kinds[kind] = [=](const Case& golden, Comparison& comparison) {
      attend_case(golden, comparison, encoding, causality);
    };
  };
  add("alibi_attention", "alibi", attention::Causality::bottom_right);
  add("kerple_attention", "kerple", attention::Causality::none);
  add("shaw_relative_kv", "shaw", attention::Causality::none);
  add("shaw_relative_key", "shaw", attention::Causality::none);
  add("bert_relative", "bert_relative", attention::Causality::none);
  add("conformer_relative", "conformer_relative", attention::Causality::none);
  add("deberta_v1", "deberta_v1", attention::Causality::none);
  add("deberta_v2", "deberta_v2", attention::Causality::none);
  kinds["t5_attention"] = t5_attention;
  kinds["tupe_attention"] = tupe_attention;
  kinds["transformer_xl_attention"] = transformer_xl_attention;
  kinds["xlnet_attention"] = xlnet_attention;
}

}  // namespace phasor::tools
