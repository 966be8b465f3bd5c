#include <algorithm>
#include <cmath>
#include <utility>

#include "phasor/models/internal/layer_ops.hpp"
#include "phasor/models/roformer.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::models {
namespace {

// The text in the vocabulary: piece() omits the "##" of a piece inside a word.
[[nodiscard]] std::string token_text(const text::Tokenizer& tokenizer, std::int64_t id) {
  std::string text = tokenizer.piece(id);
  return tokenizer.find(text) == id ? text : "##" + text;
}

// Ids beyond the tokenizer's vocabulary (a padded embedding) count in the probabilities but are not
// returned.
[[nodiscard]] std::vector<Filling::Choice> choices_of(std::span<const float> logits,
                                                      const text::Tokenizer& tokenizer,
                                                      std::int64_t count) {
  const double sum = log_sum_exp(logits);
  std::vector<std::int64_t> order(
      std::min(logits.size(), static_cast<std::size_t>(tokenizer.size())));
  for (std::size_t id = 0; id < order.size(); ++id) order[id] = static_cast<std::int64_t>(id);
  const auto logit_of = [&](std::int64_t id) { return logits[static_cast<std::size_t>(id)]; };
  const auto wanted = order.begin() + std::min(count, static_cast<std::int64_t>(order.size()));
  std::partial_sort(order.begin(), wanted, order.end(), [&](std::int64_t a, std::int64_t b) {
    return logit_of(a) != logit_of(b) ? logit_of(a) > logit_of(b) : a < b;
  });
  std::vector<Filling::Choice> choices;
  for (auto id = order.begin(); id != wanted; ++id) {
    const double logit = logit_of(*id);
    choices.push_back({*id, token_text(tokenizer, *id), std::exp(logit - sum), logit});
  }
  return choices;
}

}  // namespace

std::vector<Filling> fill(RoFormer& model, const text::Tokenizer& tokenizer, std::string_view text,
                          std::int64_t count) {
  if (model.facts().head != RoFormerHead::masked_lm) {
    refuse("fill: the model has no masked-LM head");
  }
  if (!tokenizer.specials().mask) refuse("fill: the vocabulary has no [MASK] token");
  if (tokenizer.size() > model.facts().vocabulary) {
    refuse(message("fill: the tokenizer must have at most the model's ", model.facts().vocabulary,
                   " tokens, got ", tokenizer.size()));
  }
  if (count < 1) refuse(message("fill: count must be at least 1, got ", count));
  const text::PairIds row = text::encode_pair(tokenizer, text);
  std::vector<std::int64_t> slots;
  for (std::size_t slot = 0; slot < row.ids.size(); ++slot) {
    if (row.ids[slot] == *tokenizer.specials().mask)
      slots.push_back(static_cast<std::int64_t>(slot));
  }
  if (slots.empty()) refuse("fill: the text has no [MASK]");
  const RoFormerResult result =
      model.forward({.ids = row.ids, .token_types = row.token_types, .logit_slots = slots});
  const auto width = static_cast<std::size_t>(model.facts().vocabulary);
  std::vector<Filling> fillings;
  for (std::size_t mask = 0; mask < slots.size(); ++mask) {
    const auto logits = std::span(result.logits).subspan(mask * width, width);
    fillings.push_back({slots[mask], choices_of(logits, tokenizer, count)});
  }
  return fillings;
}

}  // namespace phasor::models
