// One call of forward: its steps are checked, sequences get the rotations of the context, and are restored
// if anything fails.
#include <algorithm>

#include "models/decoder/state.hpp"

namespace phasor::models {
namespace {

void check_step(const Decoder::State& state, std::span<const Step> steps, std::size_t index,
                const Sequence::State* sequence) {
  const Step& step = steps[index];
  if (sequence->decoder != &state) {
    refuse(message("forward: the sequence of step ", index, " belongs to another decoder"));
  }
  if (step.ids.empty()) {
    refuse(message("forward: step ", index, " has no tokens; it needs at least 1"));
  }
  for (std::size_t other = 0; other < index; ++other) {
    if (steps[other].sequence == step.sequence) {
      refuse(message("forward: steps ", other, " and ", index, " have the same sequence"));
    }
  }
  const std::int64_t vocabulary = state.settings.facts.vocabulary;
  for (const std::int64_t id : step.ids) {
    if (id < 0 || id >= vocabulary) {
      throw Error(ErrorCode::out_of_range,
                  message("forward: token ids must be from 0 to ", vocabulary - 1, ", got ", id));
    }
  }
  const std::size_t needed = sequence->ids.size() + step.ids.size();
  const std::int64_t limit = state.settings.facts.position_limit;
  if (limit > 0 && needed > static_cast<std::size_t>(limit)) {
    throw Error(ErrorCode::out_of_range,
                message("forward: model_type ", state.settings.facts.model_type,
                        " has learned positions for ", limit, " tokens, got ", needed));
  }
  if (needed > static_cast<std::size_t>(sequence->options.capacity)) {
    throw Error(ErrorCode::out_of_range,
                message("forward: a sequence must hold at most its capacity of ",
                        sequence->options.capacity, " tokens, got ", needed));
  }
}

[[nodiscard]] bool same_rotation(const encodings::ScoreTerms& a, const encodings::ScoreTerms& b) {
  if (a.rotation.has_value() != b.rotation.has_value()) return false;
  if (!a.rotation) return true;
  const core::Frequencies& left = a.rotation->frequencies;
  const core::Frequencies& right = b.rotation->frequencies;
  return left.amplitude() == right.amplitude() &&
         std::equal(left.values().begin(), left.values().end(), right.values().begin(),
                    right.values().end());
}

// Whether resolve() gives the same numbers for two contexts.
[[nodiscard]] bool resolves_alike(const encodings::RopeSpec& rope, std::optional<std::int64_t> a,
                                  std::int64_t b) {
  if (!encodings::depends_on_context(rope)) return true;
  if (a && *a == b) return true;
  if (!encodings::depends_on_context(rope.scaling)) return false;  // xPos's centre
  // A dynamic scaling treats all short contexts the same, LongRoPE all short and all long ones.
  const std::int64_t original = encodings::original_length(rope.scaling).value_or(0);
  const bool was_long = a && *a > original, is_long = b > original;
  if (was_long != is_long || rope.xpos) return false;
  return !is_long || std::holds_alternative<encodings::LongRopeScaling>(rope.scaling);
}

// What the context of this call changes for a sequence, if anything: see Decoder::forward. The
// sequence stays as it is.
void find_change(std::int64_t context, Run& run) {
  const Sequence::State& sequence = *run.sequence;
  const bool alike = std::all_of(sequence.rope.begin(), sequence.rope.end(), [&](const auto& rope) {
    return !rope || resolves_alike(*rope, sequence.context, context);
  });
  if (alike) return;
  ContextChange& change = run.change.emplace();
  change.rotations = resolve_rotations(sequence.rope, *sequence.decoder, context);
  bool again = false;
  for (std::size_t g = 0; g < change.rotations.terms.size(); ++g) {
    const bool changed = !same_rotation(change.rotations.terms[g], sequence.rotations.terms[g]);
    change.changed.push_back(changed);
    again =
        again ||
        (changed && std::holds_alternative<encodings::LongRopeScaling>(sequence.rope[g]->scaling));
  }
  run.rotations = &change.rotations;
  if (!again || sequence.ids.empty()) return;
  for (std::size_t layer = 0; layer < sequence.caches.size(); ++layer)
    change.caches.push_back(make_cache(sequence, change.rotations, layer));
  run.caches = &change.caches;
  if (run.owners != nullptr) {
    change.owners = TokenOwners(*sequence.options.share, sequence.options.first_position,
                                sequence.options.capacity);
    run.owners = &change.owners;
  }
  change.ids.assign(sequence.ids.begin(), sequence.ids.end());
  change.ids.insert(change.ids.end(), run.asked.begin(), run.asked.end());
  run.ids = change.ids;
  run.skip = static_cast<std::int64_t>(sequence.ids.size());
}

// Rotates the keys of a dynamic scaling to the new frequencies.
void apply_change(Run& run, int threads) {
  if (!run.change || !run.change->caches.empty()) return;
  ContextChange& change = *run.change;
  for (std::size_t& layer = change.rerotated; layer < run.caches->size(); ++layer) {
    const std::size_t group = run.sequence->decoder->layers[layer].group;
    if (change.changed[group])
      (*run.caches)[layer].rerotate(*change.rotations.terms[group].rotation, std::nullopt, threads);
  }
}

// Divides the tokens of a shared context among its ranks.
void divide(Run& run) {
  const auto tokens = static_cast<std::int64_t>(run.ids.size());
  run.computed = {0, tokens};
  if (run.owners == nullptr) return;
  run.had_own = static_cast<std::int64_t>(run.owners->own_positions().size());
  run.blocks = run.owners->blocks(tokens);
  run.everywhere = !run.owners->divides(tokens);
  if (!run.everywhere)
    run.computed = run.blocks[static_cast<std::size_t>(run.sequence->options.share->rank())];
  run.owners->append(run.blocks);
}

void commit(Run& run, std::int64_t context) noexcept {
  Sequence::State& sequence = *run.sequence;
  sequence.ids.insert(sequence.ids.end(), run.asked.begin(), run.asked.end());  // has the room
  sequence.context = context;
  if (!run.change) return;
  std::swap(sequence.rotations, run.change->rotations);
  if (run.change->caches.empty()) return;
  sequence.caches.swap(run.change->caches);
  std::swap(sequence.owners, run.change->owners);
}

// Restores the sequence as it was before the call.
void roll_back(Run& run) noexcept {
  Sequence::State& sequence = *run.sequence;
  std::int64_t had = run.had;
  if (run.owners != nullptr) {
    sequence.owners.truncate(had);
    had = static_cast<std::int64_t>(sequence.owners.own_positions().size());
  }
  for (std::size_t layer = 0; layer < sequence.caches.size(); ++layer) {
    attention::KVCache& cache = sequence.caches[layer];
    const bool rerotated = run.change && layer < run.change->rerotated &&
                           run.change->changed[sequence.decoder->layers[layer].group];
    if (rerotated) cache.undo_rerotate();
    if (cache.tokens() > had) cache.truncate(had);
  }
}

}  // namespace

void Decoder::forward(std::span<const Step> steps, const ForwardOptions& options,
                      ForwardResult& into) {
  if (steps.empty()) refuse("forward: steps is empty; at least 1 is needed");
  std::vector<Run>& runs = state_->work.runs;
  runs.clear();
  std::size_t context = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Sequence::State* const sequence = steps[i].sequence->state_.get();
    check_step(*state_, steps, i, sequence);
    if (sequence->rope != steps.front().sequence->state_->rope) {
      refuse(message("forward: the sequences of steps 0 and ", i,
                     " have different RoPE scalings; call forward for each"));
    }
    if (sequence->options.share != steps.front().sequence->state_->options.share) {
      refuse(message("forward: the sequences of steps 0 and ", i,
                     " are shared by different ranks; call forward for each"));
    }
    Run& run = runs.emplace_back();
    run.sequence = sequence;
    if (sequence->options.share != nullptr) run.owners = &sequence->owners;
    run.caches = &sequence->caches;
    run.rotations = &sequence->rotations;
    run.ids = run.asked = steps[i].ids;
    run.had = static_cast<std::int64_t>(sequence->ids.size());
    context = std::max(context, sequence->ids.size() + steps[i].ids.size());
  }
  const auto length = static_cast<std::int64_t>(context);
  try {
    for (Run& run : runs) find_change(length, run);
    for (Run& run : runs) apply_change(run, state_->compute.threads);
    for (Run& run : runs) divide(run);
    run_layers(*state_, options, into);
  } catch (...) {
    for (Run& run : runs) roll_back(run);
    runs.clear();
    throw;
  }
  for (Run& run : runs) commit(run, length);
  runs.clear();  // with the caches that were replaced
}

ForwardResult Decoder::forward(std::span<const Step> steps, const ForwardOptions& options) {
  ForwardResult result;
  forward(steps, options, result);
  return result;
}

}  // namespace phasor::models
