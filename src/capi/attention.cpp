// Attention in C: encodings from JSON, softmax and linear attention.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "capi/arguments.hpp"
#include "capi/edge.hpp"
#include "capi/handles.hpp"
#include "phasor/attention/linear.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/config/encoding.hpp"
#include "phasor/phasor.h"

struct phasor_encoding {
  phasor::config::LoadedEncoding loaded;
};

namespace phasor::capi {
namespace {

attention::Causality to_causality(phasor_causality causality, std::string_view where) {
  static_assert(static_cast<int>(attention::Causality::none) == PHASOR_NOT_CAUSAL);
  static_assert(static_cast<int>(attention::Causality::bottom_right) == PHASOR_CAUSAL);
  return choice(causality, attention::Causality::bottom_right, where, "causality");
}

phasor_attend_options taken(const phasor_attend_options* given, std::string_view where) {
  if (given == nullptr) return {};
  // A program of before float64 ends its options with the segments.
  return take_struct(given, phasor_attend_options{},
                     offsetof(phasor_attend_options, wide_log_sum_exp), where, "options");
}

attention::AttentionOptions to_options(const phasor_attend_options& from, std::string_view where) {
  attention::AttentionOptions options;
  options.causality = to_causality(from.causality, where);
  if (from.window != 0) options.window = from.window;
  if (from.scale != 0.0) options.scale = from.scale;
  options.soft_cap = from.soft_cap;
  options.threads = to_threads(from.threads, where);
  options.isa = to_isa(from.isa, where);
  need_array(from.query_segments, from.query_segment_count, where, "query_segments");
  need_array(from.key_segments, from.key_segment_count, where, "key_segments");
  options.query_segments = {from.query_segments, from.query_segment_count};
  options.key_segments = {from.key_segments, from.key_segment_count};
  return options;
}

// q, k and v as they came, and what the encoding comes down to for them.
struct Inputs {
  core::ConstHeadsView q, k, v;
  encodings::ScoreTerms terms;
};
Inputs to_inputs(const phasor_encoding* encoding, const phasor_heads* q, const phasor_heads* k,
                 const phasor_heads* v, std::string_view where) {
  Inputs inputs{to_view(q, where, "q"), to_view(k, where, "k"), to_view(v, where, "v"), {}};
  if (encoding == nullptr) {
    inputs.terms = encodings::resolve(encodings::NoEncoding{}, {q->heads, k->heads, q->head_dim,
                                                                v->head_dim, q->tokens, k->tokens});
  } else {
    inputs.terms = config::resolve(
        encoding->loaded, {q->heads, k->heads, q->head_dim, v->head_dim, q->tokens, k->tokens});
  }
  return inputs;
}

// One value for each batch row, head and query, where there is an array; the sizes are checked by
// attention itself.
void check_log_sum_exp(const phasor_attend_options& options, const phasor_heads& q,
                       std::string_view where) {
  if (q.batch < 0 || q.heads < 0 || q.tokens < 0) return;
  const std::int64_t wanted = q.batch * q.heads * q.tokens;
  if (options.log_sum_exp != nullptr) {
    need_count(options.log_sum_exp_count, wanted, where, "log_sum_exp_count");
  }
  if (options.wide_log_sum_exp != nullptr) {
    need_count(options.wide_log_sum_exp_count, wanted, where, "wide_log_sum_exp_count");
  }
}

}  // namespace
}  // namespace phasor::capi

using namespace phasor;  // NOLINT(google-build-using-namespace): the functions below belong to no
                         // namespace
using namespace phasor::capi;  // NOLINT(google-build-using-namespace)

phasor_status phasor_encoding_parse(const char* json, const char* folder, phasor_encoding** out) {
  constexpr std::string_view kWhere = "phasor_encoding_parse";
  return guarded([&] {
    need(json, kWhere, "json");
    need(out, kWhere, "out");
    hand_over(config::parse_encoding(json, folder == nullptr ? "." : folder).value_or_throw(), out);
  });
}

void phasor_encoding_destroy(phasor_encoding* encoding) { delete encoding; }

phasor_status phasor_attend(const phasor_encoding* encoding, const phasor_heads* q,
                            const phasor_heads* k, const phasor_heads* v, const phasor_heads* out,
                            const phasor_attend_options* options) {
  constexpr std::string_view kWhere = "phasor_attend";
  return guarded([&] {
    const phasor_attend_options given = taken(options, kWhere);
    const Inputs inputs = to_inputs(encoding, q, k, v, kWhere);
    const core::HeadsView target = to_view(out, kWhere, "out");
    check_log_sum_exp(given, *q, kWhere);
    attention::attend(
        inputs.terms, inputs.q, inputs.k, inputs.v, target, to_options(given, kWhere),
        {.log_sum_exp = given.log_sum_exp, .wide_log_sum_exp = given.wide_log_sum_exp});
  });
}

phasor_status phasor_attend_backward(const phasor_encoding* encoding, const phasor_heads* q,
                                     const phasor_heads* k, const phasor_heads* v,
                                     const phasor_heads* out, const phasor_heads* d_out,
                                     const phasor_heads* d_q, const phasor_heads* d_k,
                                     const phasor_heads* d_v,
                                     const phasor_attend_options* options) {
  constexpr std::string_view kWhere = "phasor_attend_backward";
  return guarded([&] {
    need(options, kWhere, "options");
    const phasor_attend_options given = taken(options, kWhere);
    const Inputs inputs = to_inputs(encoding, q, k, v, kWhere);
    const attention::AttentionForward forward{to_view(out, kWhere, "out"), given.log_sum_exp,
                                              to_view(d_out, kWhere, "d_out"),
                                              given.wide_log_sum_exp};
    const attention::AttentionGradients gradients{
        to_view(d_q, kWhere, "d_q"), to_view(d_k, kWhere, "d_k"), to_view(d_v, kWhere, "d_v"), {}};
    if (inputs.q.dtype == core::DType::f64) {
      need(given.wide_log_sum_exp, kWhere, "wide_log_sum_exp");
    } else {
      need(given.log_sum_exp, kWhere, "log_sum_exp");
    }
    check_log_sum_exp(given, *q, kWhere);
    attention::attend_backward(inputs.terms, inputs.q, inputs.k, inputs.v, forward, gradients,
                               to_options(given, kWhere));
  });
}

phasor_status phasor_linear_attend(const phasor_rope* rope, const phasor_heads* q,
                                   const phasor_heads* k, const phasor_heads* v,
                                   const phasor_heads* out, const phasor_linear_options* options) {
  constexpr std::string_view kWhere = "phasor_linear_attend";
  return guarded([&] {
    const phasor_linear_options given =
        options == nullptr ? phasor_linear_options{}
                           : take_struct(options, phasor_linear_options{},
                                         sizeof(phasor_linear_options), kWhere, "options");
    static_assert(static_cast<int>(attention::FeatureMap::elu_plus_one) == PHASOR_ELU_PLUS_ONE);
    static_assert(static_cast<int>(attention::FeatureMap::softmax_exp) == PHASOR_SOFTMAX_EXP);
    attention::LinearOptions choices;
    choices.causality = to_causality(given.causality, kWhere);
    choices.features =
        choice(given.features, attention::FeatureMap::softmax_exp, kWhere, "features");
    choices.threads = to_threads(given.threads, kWhere);
    choices.isa = to_isa(given.isa, kWhere);
    const std::optional<core::Rotary> rotary =
        rope == nullptr ? std::nullopt : std::optional<core::Rotary>(rope->rotary);
    attention::linear_attend(rotary, to_view(q, kWhere, "q"), to_view(k, kWhere, "k"),
                             to_view(v, kWhere, "v"), to_view(out, kWhere, "out"), choices);
  });
}
