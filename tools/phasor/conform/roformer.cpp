// Golden kinds of RoFormer: whole checkpoints, from ids to hidden states and logits.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "phasor/models/roformer.hpp"

namespace phasor::tools {
namespace {

models::RoFormer model_of(const Case& golden) {
  const auto folder = member<std::string>(golden, "model_dir");
  return models::RoFormer::load(golden.directory / folder).value_or_throw();
}

std::vector<std::int64_t> integers_of(const Case& golden, const std::string& name) {
  return io::to_integers(golden.input(name).data).value_or_throw();
}

// The inputs of one call, kept for as long as it runs.
struct Batch {
  std::int64_t rows = 0, tokens = 0;
  std::vector<std::int64_t> ids, token_types;
  std::vector<std::uint8_t> mask;

  [[nodiscard]] models::RoFormerInput view() const {
    return {.batch = rows, .ids = ids, .token_types = token_types, .mask = mask};
  }
};

Batch batch_of(const Case& golden, const std::string& ids) {
  const std::vector<std::int64_t>& shape = golden.input(ids).data.shape;
  if (shape.size() != 2) {
    refuse(ErrorCode::shape_mismatch,
           message("inputs.", ids, " must be [batch, seq], got ", shape.size(), " axes"));
  }
  return {shape[0], shape[1], integers_of(golden, ids), {}, {}};
}

void read_mask(const Case& golden, const std::string& name, Batch& batch) {
  for (const std::int64_t value : integers_of(golden, name)) {
    batch.mask.push_back(value != 0 ? 1 : 0);
  }
}

// One value of left_out per value of a result [batch, seq, width]: slots of padding have no meaning.
Computed masked(const std::vector<float>& values, const Batch& batch) {
  const auto slots = batch.rows * batch.tokens;
  const std::int64_t width = static_cast<std::int64_t>(values.size()) / slots;
  Computed computed{{values.begin(), values.end()}, {batch.rows, batch.tokens, width}, {}};
  computed.left_out.reserve(values.size());
  for (const std::uint8_t kept : batch.mask) {
    computed.left_out.insert(computed.left_out.end(), static_cast<std::size_t>(width),
                             kept != 0 ? 0 : 1);
  }
  return computed;
}

// Slots count up, padding included: RoFormer takes no positions.
void require_slots(const Case& golden, const Batch& batch) {
  const std::vector<std::int64_t> positions = integers_of(golden, "padded_position_ids");
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::int64_t slot = static_cast<std::int64_t>(i) % batch.tokens;
    if (positions[i] == slot) continue;
    refuse(message("inputs.padded_position_ids must be slot numbers, got ", positions[i],
                   " at slot ", slot));
  }
}

void model_roformer(const Case& golden, Comparison& comparison) {
  models::RoFormer model = model_of(golden);
  const Batch batch = batch_of(golden, "input_ids");
  const models::RoFormerResult whole = model.forward(batch.view(), models::HiddenStates::collect);
  const std::int64_t hidden = model.facts().hidden;
  comparison.result("hidden_states", {{whole.hidden_states.begin(), whole.hidden_states.end()},
                                      {model.facts().layers + 1, batch.tokens, hidden},
                                      {}});
  comparison.entry("last_hidden_state_f64",
                   {{whole.last_hidden_state.begin(), whole.last_hidden_state.end()},
                    {batch.tokens, hidden},
                    {}});
  const bool has_logits = model.facts().has_logits_per_token();
  if (has_logits) {
    comparison.result("logits", {{whole.logits.begin(), whole.logits.end()},
                                 {batch.tokens, model.facts().logit_columns()},
                                 {}});
  }
  Batch padded = batch_of(golden, "padded_input_ids");
  read_mask(golden, "padded_attention_mask", padded);
  require_slots(golden, padded);
  const models::RoFormerResult result = model.forward(padded.view());
  if (has_logits) {
    comparison.result("padded_logits", masked(result.logits, padded));
  } else {
    comparison.result("padded_last_hidden_state", masked(result.last_hidden_state, padded));
  }
}

void roformer_classification(const Case& golden, Comparison& comparison) {
  models::RoFormer model = model_of(golden);
  Batch batch = batch_of(golden, "input_ids");
  batch.token_types = integers_of(golden, "token_type_ids");
  read_mask(golden, "attention_mask", batch);
  const models::RoFormerResult result = model.forward(batch.view());
  comparison.result(
      "logits",
      {{result.logits.begin(), result.logits.end()}, {batch.rows, model.facts().labels}, {}});
  comparison.result("last_hidden_state", masked(result.last_hidden_state, batch));
}

}  // namespace

void add_roformer_kinds(Kinds& kinds) {
  kinds["model_roformer"] = model_roformer;
  kinds["roformer_classification"] = roformer_classification;
}

}  // namespace phasor::tools
