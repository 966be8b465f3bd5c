// Decoders in C: tokens in, logits or an answer out.
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "capi/arguments.hpp"
#include "capi/edge.hpp"
#include "capi/handles.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/models/generate.hpp"
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
  const phasor_model_options from = take_options(given, phasor_model_options{}, where);
  models::ComputeOptions options;
  options.precision = choice(from.precision, models::Precision::fast, where, "precision");
  options.threads = to_threads(from.threads, where);
  options.isa = to_isa(from.isa, where);
  return options;
}

phasor_generate_options default_generate_options() {
  const models::GenerateOptions defaults;
  phasor_generate_options options{};
  options.struct_size = sizeof(options);
  options.when_full = PHASOR_WINDOW_REFUSE;
  options.tokens = defaults.tokens;
  options.temperature = defaults.sampler.temperature;
  options.top_k = defaults.sampler.top_k;
  options.top_p = defaults.sampler.top_p;
  options.min_p = defaults.sampler.min_p;
  options.repetition_penalty = defaults.sampler.repetition_penalty;
  options.repetition_window = defaults.sampler.repetition_window;
  options.seed = defaults.sampler.seed;
  options.context = defaults.context;
  options.keep = defaults.keep;
  options.chunk = defaults.chunk;
  return options;
}

models::GenerateOptions to_generate(const phasor_generate_options* given,
                                    const models::Decoder& decoder, std::string_view where) {
  static_assert(static_cast<int>(models::WindowFull::refuse) == PHASOR_WINDOW_REFUSE);
  static_assert(static_cast<int>(models::WindowFull::shift) == PHASOR_WINDOW_SHIFT);
  const phasor_generate_options from = take_options(given, default_generate_options(), where);
  models::GenerateOptions options;
  options.tokens = from.tokens;
  options.sampler = {.temperature = from.temperature,
                     .top_k = from.top_k,
                     .top_p = from.top_p,
                     .min_p = from.min_p,
                     .repetition_penalty = from.repetition_penalty,
                     .repetition_window = from.repetition_window,
                     .seed = from.seed};
  options.stops = models::stop_tokens(decoder, nullptr);
  need_array(from.stops, from.stop_count, where, "stops");
  if (from.stop_count != 0) {
    options.stops.insert(options.stops.end(), from.stops, from.stops + from.stop_count);
  }
  options.context = from.context;
  options.when_full = choice(from.when_full, models::WindowFull::shift, where, "when_full");
  options.keep = from.keep;
  options.chunk = from.chunk;
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
    need(path, kWhere, "path");
    hand_over(models::Decoder::load(path, to_compute(options, kWhere)).value_or_throw(), out);
  });
}

void phasor_model_destroy(phasor_model* model) { delete model; }

int64_t phasor_model_vocabulary(const phasor_model* model) {
  return model == nullptr ? 0 : model->decoder.facts().vocabulary;
}

phasor_status phasor_model_describe(const phasor_model* model, phasor_model_info* info) {
  return guarded([&] {
    constexpr std::string_view kWhere = "phasor_model_describe";
    need(model, kWhere, "model");
    const std::size_t size = size_to_fill(info, kWhere, "info");
    const models::DecoderFacts& facts = model->decoder.facts();
    phasor_model_info filled{};
    filled.layers = facts.layers;
    filled.hidden = facts.hidden;
    filled.vocabulary = facts.vocabulary;
    filled.heads = facts.heads;
    filled.key_heads = facts.key_heads;
    filled.head_dim = facts.head_dim;
    filled.trained_length = facts.trained_length;
    filled.parameters = facts.parameters;
    filled.weight_bytes = static_cast<std::int64_t>(facts.weight_bytes);
    give_struct(filled, size, info);
  });
}

phasor_status phasor_sequence_create(const phasor_model* model, int64_t capacity,
                                     phasor_sequence** out) {
  return guarded([&] {
    constexpr std::string_view kWhere = "phasor_sequence_create";
    need(out, kWhere, "out");
    need(model, kWhere, "model");
    hand_over(model->decoder.sequence({.capacity = capacity}), out);
  });
}

phasor_status phasor_sequence_fork(const phasor_sequence* sequence, int64_t capacity,
                                   phasor_sequence** out) {
  return guarded([&] {
    constexpr std::string_view kWhere = "phasor_sequence_fork";
    need(sequence, kWhere, "sequence");
    need(out, kWhere, "out");
    hand_over(sequence->sequence.fork(capacity), out);
  });
}

void phasor_sequence_destroy(phasor_sequence* sequence) { delete sequence; }

int64_t phasor_sequence_tokens(const phasor_sequence* sequence) {
  return sequence == nullptr ? 0 : std::ssize(sequence->sequence.ids());
}

phasor_status phasor_sequence_truncate(phasor_sequence* sequence, int64_t tokens) {
  return guarded([&] {
    need(sequence, "phasor_sequence_truncate", "sequence");
    sequence->sequence.truncate(tokens);
  });
}

phasor_status phasor_sequence_shift(phasor_sequence* sequence, int64_t keep, int64_t drop) {
  return guarded([&] {
    need(sequence, "phasor_sequence_shift", "sequence");
    sequence->sequence.shift(keep, drop);
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

phasor_status phasor_generate_options_init(phasor_generate_options* options, size_t struct_size) {
  return guarded([&] {
    constexpr std::string_view kWhere = "phasor_generate_options_init";
    need(options, kWhere, "options");
    check_struct_size<phasor_generate_options>(struct_size, kWhere, "options");
    give_struct(default_generate_options(), struct_size, options);
  });
}

phasor_status phasor_generate(phasor_model* model, const int64_t* prompt, size_t prompt_count,
                              const phasor_generate_options* options, phasor_on_token on_token,
                              void* user, phasor_ids** out) {
  return guarded([&] {
    constexpr std::string_view kWhere = "phasor_generate";
    need(model, kWhere, "model");
    need(out, kWhere, "out");
    need_array(prompt, prompt_count, kWhere, "prompt");
    const models::GenerateOptions asked = to_generate(options, model->decoder, kWhere);
    std::function<bool(std::int64_t)> watch;
    if (on_token != nullptr) watch = [&](std::int64_t id) { return on_token(user, id) != 0; };
    models::Generator generator(model->decoder);
    hand_over(std::move(generator.generate({prompt, prompt_count}, asked, watch).ids), out);
  });
}

}  // extern "C"
