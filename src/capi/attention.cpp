// Softmax attention in C, and encodings from JSON.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "capi/arguments.hpp"
#include "capi/attention_options.hpp"
#include "capi/edge.hpp"
#include "capi/handles.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/config/encoding.hpp"
#include "phasor/phasor.h"

namespace phasor::capi {
namespace {

// Checks the counts of the output arrays: one value per batch row, head and query, or per batch row,
// head, query and key. attention checks the sizes themselves.
void check_extras(const phasor_attend_options& options, const core::ConstHeadsView& q,
                  const core::ConstHeadsView& k, std::string_view where) {
  if (q.batch < 0 || q.heads < 0 || q.tokens < 0 || k.tokens < 0) return;
  std::int64_t rows = 0, scores = 0;
  if (__builtin_mul_overflow(q.batch, q.heads, &rows) ||
      __builtin_mul_overflow(rows, q.tokens, &rows) ||
      __builtin_mul_overflow(rows, k.tokens, &scores)) {
    throw Error(ErrorCode::invalid_argument,
                message(where, ": q and k must have fewer than 2^63 scores, got ", q.batch, " x ",
                        q.heads, " x ", q.tokens, " x ", k.tokens));
  }
  if (options.log_sum_exp != nullptr) {
    need_count(options.log_sum_exp_count, rows, where, "log_sum_exp_count");
  }
  if (options.wide_log_sum_exp != nullptr) {
    need_count(options.wide_log_sum_exp_count, rows, where, "wide_log_sum_exp_count");
  }
  if (options.scores != nullptr || options.capped_scores != nullptr ||
      options.masked_scores != nullptr || options.probabilities != nullptr) {
    need_count(options.score_count, scores, where, "score_count");
  }
}

struct Inputs {
  core::ConstHeadsView q, k, v;
};
Inputs to_inputs(const phasor_heads* q, const phasor_heads* k, const phasor_heads* v,
                 std::string_view where) {
  return {to_view(q, where, "q"), to_view(k, where, "k"), to_view(v, where, "v")};
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
    const phasor_attend_options given = attend_options(options, kWhere);
    const Inputs in = to_inputs(q, k, v, kWhere);
    const attention::AttentionOptions chosen = to_options(given, in.q, in.k, kWhere);
    const encodings::ScoreTerms terms =
        terms_of(encoding, attention::attention_shape(in.q, in.k, in.v, chosen));
    const core::HeadsView target = to_view(out, kWhere, "out");
    check_extras(given, in.q, in.k, kWhere);
    attention::attend(terms, in.q, in.k, in.v, target, chosen,
                      {.log_sum_exp = given.log_sum_exp,
                       .scores = given.scores,
                       .capped_scores = given.capped_scores,
                       .masked_scores = given.masked_scores,
                       .probabilities = given.probabilities,
                       .wide_log_sum_exp = given.wide_log_sum_exp});
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
    const phasor_attend_options given = attend_options(options, kWhere);
    const Inputs in = to_inputs(q, k, v, kWhere);
    const attention::AttentionOptions chosen = to_options(given, in.q, in.k, kWhere);
    const encodings::ScoreTerms terms =
        terms_of(encoding, attention::attention_shape(in.q, in.k, in.v, chosen));
    const attention::AttentionForward forward{to_view(out, kWhere, "out"), given.log_sum_exp,
                                              to_view(d_out, kWhere, "d_out"),
                                              given.wide_log_sum_exp};
    const attention::AttentionGradients gradients{
        to_view(d_q, kWhere, "d_q"), to_view(d_k, kWhere, "d_k"), to_view(d_v, kWhere, "d_v"), {}};
    if (in.q.dtype == core::DType::f64) {
      need(given.wide_log_sum_exp, kWhere, "wide_log_sum_exp");
    } else {
      need(given.log_sum_exp, kWhere, "log_sum_exp");
    }
    check_extras(given, in.q, in.k, kWhere);
    attention::attend_backward(terms, in.q, in.k, in.v, forward, gradients, chosen);
  });
}
