// Linear attention in C, and its state.
#include <optional>
#include <string_view>

#include "capi/arguments.hpp"
#include "capi/attention_options.hpp"
#include "capi/edge.hpp"
#include "capi/handles.hpp"
#include "phasor/attention/linear.hpp"
#include "phasor/phasor.h"

struct phasor_linear_state {
  phasor::attention::LinearState state;
};

namespace phasor::capi {
namespace {

attention::LinearOptions to_linear_options(const phasor_linear_options* given,
                                           const core::ConstHeadsView& k, std::string_view where) {
  const phasor_linear_options from = take_options(given, phasor_linear_options{}, where);
  static_assert(static_cast<int>(attention::FeatureMap::elu_plus_one) == PHASOR_ELU_PLUS_ONE);
  static_assert(static_cast<int>(attention::FeatureMap::softmax_exp) == PHASOR_SOFTMAX_EXP);
  static_assert(static_cast<int>(attention::FeatureMap::favor) == PHASOR_FAVOR);
  static_assert(static_cast<int>(attention::Rotates::features) == PHASOR_ROTATES_FEATURES);
  static_assert(static_cast<int>(attention::Rotates::inputs) == PHASOR_ROTATES_INPUTS);
  attention::LinearOptions options;
  options.causality = to_causality(from.causality, where);
  options.features = choice(from.features, attention::FeatureMap::favor, where, "features");
  options.feature_count = from.feature_count;
  options.seed = from.seed;
  options.rotates = choice(from.rotates, attention::Rotates::inputs, where, "rotates");
  options.threads = to_threads(from.threads, where);
  options.isa = to_isa(from.isa, where);
  options.query_positions = optional_positions_of(from.query_positions, where, "query_positions");
  options.key_positions = optional_positions_of(from.key_positions, where, "key_positions");
  if (k.batch >= 0 && k.tokens >= 0) {
    need_elements(from.key_padding, from.key_padding_count, k.batch * k.tokens, where,
                  "key_padding");
  }
  options.key_padding = {from.key_padding, from.key_padding_count};
  return options;
}

std::optional<core::Rotary> rotary_of(const phasor_rope* rope) {
  return rope == nullptr ? std::nullopt : std::optional<core::Rotary>(rope->rotary);
}

void attend(const phasor_rope* rope, const phasor_heads* q, const phasor_heads* k,
            const phasor_heads* v, const phasor_heads* out, const phasor_linear_options* options,
            attention::LinearState* state, std::string_view where) {
  const core::ConstHeadsView queries = to_view(q, where, "q"), keys = to_view(k, where, "k");
  attention::linear_attend(rotary_of(rope), queries, keys, to_view(v, where, "v"),
                           to_view(out, where, "out"), to_linear_options(options, keys, where),
                           state);
}

}  // namespace
}  // namespace phasor::capi

using namespace phasor;  // NOLINT(google-build-using-namespace): the functions below belong to no
                         // namespace
using namespace phasor::capi;  // NOLINT(google-build-using-namespace)

phasor_status phasor_linear_attend(const phasor_rope* rope, const phasor_heads* q,
                                   const phasor_heads* k, const phasor_heads* v,
                                   const phasor_heads* out, const phasor_linear_options* options) {
  return guarded([&] { attend(rope, q, k, v, out, options, nullptr, "phasor_linear_attend"); });
}

phasor_status phasor_linear_attend_backward(const phasor_rope* rope, const phasor_heads* q,
                                            const phasor_heads* k, const phasor_heads* v,
                                            const phasor_heads* d_out, const phasor_heads* d_q,
                                            const phasor_heads* d_k, const phasor_heads* d_v,
                                            const phasor_linear_options* options) {
  constexpr std::string_view kWhere = "phasor_linear_attend_backward";
  return guarded([&] {
    const core::ConstHeadsView queries = to_view(q, kWhere, "q"), keys = to_view(k, kWhere, "k");
    attention::linear_attend_backward(rotary_of(rope), queries, keys, to_view(v, kWhere, "v"),
                                      to_view(d_out, kWhere, "d_out"), to_view(d_q, kWhere, "d_q"),
                                      to_view(d_k, kWhere, "d_k"), to_view(d_v, kWhere, "d_v"),
                                      to_linear_options(options, keys, kWhere));
  });
}

phasor_status phasor_linear_state_create(int64_t batch, int64_t key_heads, int64_t head_dim,
                                         int64_t value_dim, phasor_linear_state** out) {
  return guarded([&] {
    need(out, "phasor_linear_state_create", "out");
    hand_over(attention::LinearState(batch, key_heads, head_dim, value_dim), out);
  });
}

phasor_status phasor_linear_state_fork(const phasor_linear_state* state,
                                       phasor_linear_state** out) {
  return guarded([&] {
    need(state, "phasor_linear_state_fork", "state");
    need(out, "phasor_linear_state_fork", "out");
    hand_over(attention::LinearState(state->state), out);
  });
}

phasor_status phasor_linear_state_reset(phasor_linear_state* state) {
  return guarded([&] {
    need(state, "phasor_linear_state_reset", "state");
    state->state.reset();
  });
}

int64_t phasor_linear_state_tokens(const phasor_linear_state* state) {
  return state == nullptr ? 0 : state->state.tokens();
}

void phasor_linear_state_destroy(phasor_linear_state* state) { delete state; }

phasor_status phasor_linear_continue(phasor_linear_state* state, const phasor_rope* rope,
                                     const phasor_heads* q, const phasor_heads* k,
                                     const phasor_heads* v, const phasor_heads* out,
                                     const phasor_linear_options* options) {
  constexpr std::string_view kWhere = "phasor_linear_continue";
  return guarded([&] {
    need(state, kWhere, "state");
    attend(rope, q, k, v, out, options, &state->state, kWhere);
  });
}
