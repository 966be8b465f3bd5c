// Golden kinds of T5: encoder and decoder, padded inputs, greedy answers.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "conform/models.hpp"
#include "phasor/config/internal/families.hpp"
#include "phasor/models/t5.hpp"

namespace phasor::tools {
namespace {

using models::T5Model;
using IdRows = std::vector<std::vector<std::int64_t>>;

// Greedy answers, each with the logits that it was taken from.
void compare_answers(T5Model& model, const Case& golden, const IdRows& inputs,
                     const std::string& prefix, Comparison& comparison) {
  const std::string name = prefix + "generated";
  const std::int64_t count = golden.outputs.at(name).data.shape.back();
  Greedy out;
  for (const std::vector<std::int64_t>& input : inputs) {
    models::T5Sequence sequence = model.sequence(input, {.capacity = count});
    std::int64_t next = model.facts().start_token;
    std::vector<std::int64_t>& answer = out.ids.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::vector<float> logits = model.forward(sequence, {&next, 1}).logits;
      next = std::max_element(logits.begin(), logits.end()) - logits.begin();
      answer.push_back(next);
      out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    }
  }
  comparison.result(name, tokens_of(out));
  if (golden.outputs.contains(name + "_logits"))
    comparison.result(name + "_logits", floats(out.logits, {count, model.facts().vocabulary}));
}

void compare_t5(const Case& golden, Comparison& comparison) {
  const auto folder = member<std::string>(golden, "model_dir");
  T5Model model = T5Model::load(golden.directory / folder).value_or_throw();
  const models::T5Facts& facts = model.facts();
  const std::vector<std::int64_t> input = integers_of(golden.input("input_ids"));
  const std::vector<std::int64_t> ids = integers_of(golden.input("decoder_input_ids"));
  const auto steps = static_cast<std::int64_t>(ids.size());
  comparison.result(
      "encoder_hidden_states",
      floats(model.encode(input, models::HiddenStates::collect).hidden_states,
             {facts.encoder_layers + 1, static_cast<std::int64_t>(input.size()), facts.hidden}));
  const models::ForwardOptions all{models::LogitsOf::every_token, models::HiddenStates::collect};
  models::T5Sequence sequence = model.sequence(input, {.capacity = steps});
  const models::ForwardResult result = model.forward(sequence, ids, all);
  comparison.result("hidden_states",
                    floats(result.hidden_states, {facts.decoder_layers + 1, steps, facts.hidden}));
  comparison.result("logits", floats(result.logits, {steps, facts.vocabulary}));
  compare_answers(model, golden, {input}, "", comparison);

  const CaseArray& padded = golden.input("padded_input_ids");
  const std::int64_t batch = padded.data.shape.front();
  const std::vector<std::int64_t> mask = integers_of(golden.input("padded_attention_mask"));
  const IdRows rows =
      models::unpad(integers_of(padded), std::vector<std::uint8_t>(mask.begin(), mask.end()), batch)
          .rows;
  const std::vector<std::int64_t> padded_ids =
      integers_of(golden.input("padded_decoder_input_ids"));
  std::vector<float> logits;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    models::T5Sequence one = model.sequence(rows[row], {.capacity = steps});
    const std::vector<float> of_row =
        model
            .forward(one,
                     std::span(padded_ids)
                         .subspan(row * static_cast<std::size_t>(steps),
                                  static_cast<std::size_t>(steps)),
                     all)
            .logits;
    logits.insert(logits.end(), of_row.begin(), of_row.end());
  }
  comparison.result("padded_logits", floats(logits, {batch, steps, facts.vocabulary}));
  compare_answers(model, golden, rows, "padded_", comparison);
}

}  // namespace

void add_t5_kinds(Kinds& kinds) {
  for (const config::Family& family : config::families()) {
    if (family.encoder_decoder) kinds[message("model_", family.model_type)] = compare_t5;
  }
}

}  // namespace phasor::tools
