// Decoders in C.
#include <cstring>
#include <span>

#include "capi/arguments.hpp"
#include "capi/edge.hpp"
#include "capi/handles.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/phasor.h"

struct phasor_model {
  phasor::models::Decoder decoder;
};
struct phasor_sequence {
  phasor::models::Sequence sequence;
};

namespace phasor::capi {
namespace {

models::ComputeOptions to_compute(const phasor_model_options* given, std::string_view where) {
  static_assert(static_cast<int>(models::Precision::exact) == PHASOR_EXACT);
  static_assert(static_cast<int>(models::Precision::fast) == PHASOR_FAST);
  if (given == nullptr) return {};
  const phasor_model_options from =
      take_struct(given, phasor_model_options{}, sizeof(phasor_model_options), where, "options");
  models::ComputeOptions options;
  options.precision = choice(from.precision, models::Precision::fast, where, "precision");
  options.threads = to_threads(from.threads, where);
  options.isa = to_isa(from.isa, where);
  return options;
}

}  // namespace
}  // namespace phasor::capi

using namespace phasor;        // NOLINT(google-build-using-namespace): the C edge of this room
using namespace phasor::capi;  // NOLINT(google-build-using-namespace)

extern "C" {

phasor_status phasor_model_load(const char* path, const phasor_model_options* options,
                                phasor_model** out) {
  return guarded([&] {
    constexpr std::string_view kWhere = "phasor_model_load";
    need(out, kWhere, "out");
    *out = nullptr;
    need(path, kWhere, "path");
    hand_over(models::Decoder::load(path, to_compute(options, kWhere)).value_or_throw(), out);
  });
}

void phasor_model_destroy(phasor_model* model) { delete model; }

int64_t phasor_model_vocabulary(const phasor_model* model) {
  return model == nullptr ? 0 : model->decoder.facts().vocabulary;
}

phasor_status phasor_sequence_create(const phasor_model* model, int64_t capacity,
                                     phasor_sequence** out) {
  return guarded([&] {
    constexpr std::string_view kWhere = "phasor_sequence_create";
    need(out, kWhere, "out");
    *out = nullptr;
    need(model, kWhere, "model");
    hand_over(model->decoder.sequence({.capacity = capacity}), out);
  });
}

void phasor_sequence_destroy(phasor_sequence* sequence) { delete sequence; }

phasor_status phasor_sequence_truncate(phasor_sequence* sequence, int64_t tokens) {
  return guarded([&] {
    need(sequence, "phasor_sequence_truncate", "sequence");
    sequence->sequence.truncate(tokens);
  });
}

phasor_status phasor_model_forward(phasor_model* model, phasor_sequence* sequence,
                                   const int64_t* ids, size_t count, float* logits,
                                   size_t logits_count) {
  return guarded([&] {
    constexpr std::string_view kWhere = "phasor_model_forward";
    need(model, kWhere, "model");
    need(sequence, kWhere, "sequence");
    need_array(ids, count, kWhere, "ids");
    if (logits != nullptr) {
      need_count(logits_count, model->decoder.facts().vocabulary, kWhere, "logits_count");
    }
    const models::Step step{&sequence->sequence, {ids, count}};
    const models::ForwardResult result = model->decoder.forward(
        {&step, 1}, {logits == nullptr ? models::LogitsOf::none : models::LogitsOf::last_token,
                     models::HiddenStates::leave});
    if (logits != nullptr) {
      std::memcpy(logits, result.logits.data(), result.logits.size() * sizeof(float));
    }
  });
}

}  // extern "C"
