// Golden kinds of decoders: hidden states, logits, padded batches, greedy tokens.
#include "conform/models.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "phasor/config/internal/families.hpp"
#include "phasor/core/error.hpp"
#include "phasor/models/decoder.hpp"

namespace phasor::tools {
using models::Decoder;
using models::Step;

std::vector<std::int64_t> integers_of(const CaseArray& array) {
  const Computed values = computed_from(array);
  return {values.values.begin(), values.values.end()};
}

Computed floats(const std::vector<float>& values, std::vector<std::int64_t> shape) {
  return {{values.begin(), values.end()}, std::move(shape), {}, {}};
}

Greedy greedy(Decoder& decoder, const std::vector<std::vector<std::int64_t>>& prompts,
              std::int64_t count) {
  std::vector<models::Sequence> sequences;
  std::vector<std::vector<std::int64_t>> next = prompts;
  for (const auto& prompt : prompts) {
    sequences.push_back(
        decoder.sequence({.capacity = static_cast<std::int64_t>(prompt.size()) + count}));
  }
  Greedy out;
  out.ids.resize(prompts.size());
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<Step> steps;
    for (std::size_t row = 0; row < prompts.size(); ++row) {
      steps.push_back({&sequences[row], next[row]});
    }
    const std::vector<float> logits = decoder.forward(steps).logits;
    const auto vocabulary = static_cast<std::size_t>(decoder.facts().vocabulary);
    for (std::size_t row = 0; row < prompts.size(); ++row) {
      const auto first = logits.begin() + static_cast<std::ptrdiff_t>(row * vocabulary);
      const std::int64_t id =
          std::max_element(first, first + static_cast<std::ptrdiff_t>(vocabulary)) - first;
      out.ids[row].push_back(id);
      next[row] = {id};
    }
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
  }
  return out;
}

Computed tokens_of(const Greedy& result) {
  Computed out;
  for (const auto& row : result.ids) out.values.insert(out.values.end(), row.begin(), row.end());
  out.shape = {static_cast<std::int64_t>(result.ids.size()),
               static_cast<std::int64_t>(result.ids.front().size())};
  return out;
}

namespace {

bool wants(const Case& golden, const std::string& name) {
  return golden.outputs.contains(name) || golden.truth.contains(name);
}

// One sequence: `prefix`input_ids -> logits of every token, hidden states, greedy tokens.
void compare_single(Decoder& decoder, const Case& golden, const std::string& prefix,
                    Comparison& comparison) {
  const std::vector<std::int64_t> ids = integers_of(golden.input(prefix + "input_ids"));
  const auto tokens = static_cast<std::int64_t>(ids.size());
  models::Sequence sequence = decoder.sequence({.capacity = tokens});
  const Step step{&sequence, ids};
  const models::ForwardResult result =
      decoder.forward({&step, 1}, {models::LogitsOf::every_token, models::HiddenStates::collect});
  if (wants(golden, prefix + "hidden_states")) {
    comparison.result(
        prefix + "hidden_states",
        floats(result.hidden_states, {decoder.facts().layers + 1, tokens, decoder.facts().hidden}));
  }
  if (wants(golden, prefix + "logits")) {
    comparison.result(prefix + "logits",
                      floats(result.logits, {tokens, decoder.facts().vocabulary}));
  }
  const std::string generated = prefix + "generated";
  if (!wants(golden, generated)) return;
  const std::int64_t count = golden.outputs.at(generated).data.shape.back();
  const Greedy tokens_out = greedy(decoder, {ids}, count);
  comparison.result(generated, tokens_of(tokens_out));
  if (wants(golden, generated + "_logits")) {
    comparison.result(generated + "_logits",
                      floats(tokens_out.logits, {count, decoder.facts().vocabulary}));
  }
}

void compare_padded(Decoder& decoder, const Case& golden, Comparison& comparison) {
  const CaseArray& ids = golden.input("padded_input_ids");
  const std::int64_t batch = ids.data.shape.front();
  const std::int64_t columns = ids.data.shape.back();
  const std::vector<std::int64_t> mask = integers_of(golden.input("padded_attention_mask"));
  const models::MaskedBatch rows =
      models::unpad(integers_of(ids), std::vector<std::uint8_t>(mask.begin(), mask.end()), batch);
  std::vector<models::Sequence> sequences;
  std::vector<Step> steps;
  for (std::size_t b = 0; b < rows.rows.size(); ++b) {
    sequences.push_back(decoder.sequence({.capacity = columns}));
  }
  for (std::size_t b = 0; b < rows.rows.size(); ++b) {
    steps.push_back({&sequences[b], rows.rows[b]});
  }
  const std::vector<float> logits =
      decoder.forward(steps, {models::LogitsOf::every_token, models::HiddenStates::leave}).logits;
  const auto vocabulary = static_cast<std::size_t>(decoder.facts().vocabulary);
  Computed got;
  got.shape = {batch, columns, decoder.facts().vocabulary};
  got.values.resize(mask.size() * vocabulary);
  got.left_out.assign(got.values.size(), 1);
  auto from = logits.begin();
  for (std::size_t b = 0; b < rows.slots.size(); ++b) {
    for (const std::int64_t slot : rows.slots[b]) {
      const std::size_t at =
          (b * static_cast<std::size_t>(columns) + static_cast<std::size_t>(slot)) * vocabulary;
      std::copy_n(from, vocabulary, got.values.begin() + static_cast<std::ptrdiff_t>(at));
      std::fill_n(got.left_out.begin() + static_cast<std::ptrdiff_t>(at), vocabulary,
                  std::uint8_t{0});
      from += static_cast<std::ptrdiff_t>(vocabulary);
    }
  }
  comparison.result("padded_logits", got);
  if (wants(golden, "padded_generated")) {
    comparison.result("padded_generated",
                      tokens_of(greedy(decoder, rows.rows,
                                       golden.outputs.at("padded_generated").data.shape.back())));
  }
}

void compare_decoder(const Case& golden, Comparison& comparison) {
  const auto folder = member<std::string>(golden, "model_dir");
  Decoder decoder = Decoder::load(golden.directory / folder).value_or_throw();
  compare_single(decoder, golden, "", comparison);
  compare_padded(decoder, golden, comparison);
  for (const std::string prefix : {"long_", "switch_"}) {
    if (golden.inputs.contains(prefix + "input_ids")) {
      compare_single(decoder, golden, prefix, comparison);
    }
  }
}

}  // namespace

void add_model_kinds(Kinds& kinds) {
  kinds["model_gemma3"] = compare_decoder;  // of model_type gemma3_text
  for (const config::Family& family : config::families()) {
    if (family.decoder) kinds[message("model_", family.model_type)] = compare_decoder;
  }
}

}  // namespace phasor::tools
