// A sequence: token ids, and one cache of keys and values for each layer.
#include <cstring>

#include "models/decoder/state.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/models/context_share.hpp"

namespace phasor::models {
namespace {

void require(bool holds, std::int64_t tokens, std::string_view what, std::int64_t got) {
  if (holds) return;
  throw Error(ErrorCode::out_of_range,
              message("sequence: ", what, " must be from 0 to ", tokens, " tokens, got ", got));
}

// A first position or angles change nothing without RoPE; a scaling that reads the context would read
// one with the first position in it.
void check_positions_can_move(const Sequence::State& state, const SequenceOptions& options) {
  const bool exact = options.angles == core::AngleMode::exact;
  if (options.first_position < 0) {
    throw Error(
        ErrorCode::out_of_range,
        message("sequence: first_position must not be negative, got ", options.first_position));
  }
  if (options.first_position == 0 && exact) return;
  const std::string wanted = exact ? message("a first position of ", options.first_position)
                                   : message(core::name_of(options.angles), " angles");
  bool rotates = false;
  for (const std::optional<encodings::RopeSpec>& rope : state.rope) {
    if (!rope) continue;
    rotates = true;
    if (encodings::depends_on_context(*rope)) {
      throw Error(ErrorCode::unsupported, message("sequence: ", wanted,
                                                  " needs frequencies that do not depend on the "
                                                  "context, got ",
                                                  encodings::name_of(rope->scaling), " scaling"));
    }
  }
  for (const config::LayerGroup& group : state.decoder->config.groups) {
    if (!group.query_scale || options.first_position == 0) continue;
    throw Error(ErrorCode::unsupported,
                message("sequence: ", wanted,
                        " needs queries that are not scaled by their position, got beta ",
                        group.query_scale->beta));
  }
  if (!rotates) {
    throw Error(ErrorCode::unsupported,
                message("sequence: ", wanted, " needs a model with RoPE, got ",
                        state.decoder->settings.facts.model_type));
  }
}

[[nodiscard]] std::int64_t capacity_of_rank(const SequenceOptions& options) {
  if (options.share == nullptr) return options.capacity;
  return share_of_capacity(options.capacity, options.share->ranks());
}

// What the ranks of a shared context must have in common.
void agree(const Sequence::State& state) {
  const SequenceOptions& options = state.options;
  const DecoderFacts& facts = state.decoder->settings.facts;
  std::string text =
      message(facts.model_type, ", ", facts.layers, " layers, ", facts.parameters,
              " parameters, capacity ", options.capacity, ", cache ", core::name_of(*options.cache),
              ", first position ", options.first_position, ", ", core::name_of(options.angles),
              " angles, precision ", name_of(state.decoder->compute.precision));
  for (const std::optional<encodings::RopeSpec>& rope : state.rope) {
    if (rope) text += message(", ", config::plain_spec_json(*rope));
  }
  options.share->agree("the sequence", text);
}

}  // namespace

attention::KVCache make_cache(const Sequence::State& state, const GroupRotations& rotations,
                              std::size_t layer) {
  const DecoderFacts& facts = state.decoder->settings.facts;
  return attention::KVCache({.batch = 1,
                             .key_heads = facts.key_heads,
                             .head_dim = facts.head_dim,
                             .value_dim = facts.head_dim,
                             .capacity = capacity_of_rank(state.options),
                             .dtype = *state.options.cache,
                             .rotary = rotations.terms[state.decoder->layers[layer].group].rotation,
                             .mode = state.options.mode,
                             .first_position = state.options.first_position,
                             .angles = state.options.angles});
}

GroupRotations resolve_rotations(const std::vector<std::optional<encodings::RopeSpec>>& rope,
                                 const Decoder::State& decoder,
                                 std::optional<std::int64_t> context) {
  const DecoderSettings& settings = decoder.settings;
  GroupRotations rotations;
  for (std::size_t g = 0; g < rope.size(); ++g) {
    encodings::ScoreTerms terms;
    if (rope[g]) terms.rotation = encodings::resolve(*rope[g], context);
    if (settings.family->positions == Positions::alibi)
      terms.slopes = encodings::alibi_slopes(settings.facts.heads);
    const double scale = decoder.config.groups[g].softmax_scale;
    terms.scale = scale > 0.0 ? scale : settings.softmax_scale;
    rotations.terms.push_back(std::move(terms));
  }
  return rotations;
}

Sequence::Sequence(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sequence::~Sequence() = default;
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;

std::span<const std::int64_t> Sequence::ids() const noexcept { return state_->ids; }
std::int64_t Sequence::capacity() const noexcept { return state_->options.capacity; }
std::int64_t Sequence::next_position() const noexcept {
  if (state_->options.share != nullptr)
    return state_->options.first_position + static_cast<std::int64_t>(state_->ids.size());
  return state_->caches.front().next_position();
}

std::size_t Sequence::bytes() const noexcept {
  const DecoderFacts& facts = state_->decoder->settings.facts;
  const std::int64_t copies = state_->options.mode == attention::CacheMode::drift_free ? 3 : 2;
  return static_cast<std::size_t>(facts.layers * facts.key_heads * facts.head_dim * copies *
                                  capacity_of_rank(state_->options)) *
         core::size_of(*state_->options.cache);
}

const attention::KVCache& Sequence::cache(std::int64_t layer) const {
  const auto layers = static_cast<std::int64_t>(state_->caches.size());
  if (layer < 0 || layer >= layers) {
    throw Error(ErrorCode::out_of_range,
                message("sequence: layer must be from 0 to ", layers - 1, ", got ", layer));
  }
  return state_->caches[static_cast<std::size_t>(layer)];
}

void Sequence::truncate(std::int64_t tokens) {
  const auto count = static_cast<std::int64_t>(state_->ids.size());
  require(tokens >= 0 && tokens <= count, count, "truncate", tokens);
  std::int64_t kept = tokens;
  if (state_->options.share != nullptr) {
    state_->owners.truncate(tokens);
    kept = static_cast<std::int64_t>(state_->owners.own_positions().size());
  }
  for (attention::KVCache& cache : state_->caches) cache.truncate(kept);
  state_->ids.resize(static_cast<std::size_t>(tokens));
}

void Sequence::shift(std::int64_t keep, std::int64_t drop) {
  const auto count = static_cast<std::int64_t>(state_->ids.size());
  require(keep >= 0 && keep <= count, count, "shift's kept tokens", keep);
  require(drop >= 0 && drop <= count - keep, count - keep, "shift's dropped tokens", drop);
  if (state_->decoder->settings.family->positions == Positions::learned && drop > 0) {
    throw Error(ErrorCode::unsupported,
                message("sequence: a model_type ", state_->decoder->settings.facts.model_type,
                        " cannot shift: its positions are learned rows of the input"));
  }
  if (state_->options.share != nullptr) {
    throw Error(ErrorCode::unsupported,
                message("sequence: a context shared by ", state_->options.share->ranks(),
                        " ranks cannot shift"));
  }
  core::throw_if_cancelled();
  const core::CancellationScope finishes(nullptr);  // all layers or none
  // Only a rotation can fail, and what makes it fail (the number of threads, a pool that does not
  // start) does so in the first layer, before a key is written.
  for (attention::KVCache& cache : state_->caches) {
    cache.shift(keep + drop, cache.tokens(), -drop, state_->decoder->compute.threads);
    cache.evict(keep, keep + drop);
  }
  state_->ids.erase(state_->ids.begin() + keep, state_->ids.begin() + keep + drop);
}

Sequence Sequence::fork(std::int64_t capacity) const {
  const auto count = static_cast<std::int64_t>(state_->ids.size());
  if (capacity < count || capacity < 1) {
    throw Error(ErrorCode::out_of_range, message("sequence: a fork of ", count,
                                                 " tokens does not fit a capacity of ", capacity));
  }
  auto state = std::make_unique<State>();
  state->decoder = state_->decoder;
  state->options = state_->options;
  state->options.capacity = capacity;
  state->rope = state_->rope;
  state->rotations = state_->rotations;
  state->context = state_->context;
  state->ids.reserve(static_cast<std::size_t>(capacity));
  state->ids = state_->ids;
  state->owners = state_->owners;
  for (std::size_t layer = 0; layer < state_->caches.size(); ++layer) {
    // After truncate() a rank may have more than its share.
    state->caches.push_back(state_->caches[layer].fork(
        std::max(capacity_of_rank(state->options), state_->caches[layer].tokens())));
  }
  return Sequence(std::move(state));
}

Sequence Decoder::sequence(const SequenceOptions& options) const {
  if (options.capacity < 1) {
    throw Error(ErrorCode::invalid_argument,
                message("sequence: capacity must be at least 1 token, got ", options.capacity));
  }
  auto state = std::make_unique<Sequence::State>();
  state->decoder = state_.get();
  state->options = options;
  state->options.cache = options.cache.value_or(
      state_->compute.precision == Precision::fast ? core::DType::f16 : core::DType::f32);
  for (const config::LayerGroup& group : state_->config.groups) {
    state->rope.push_back(group.rope);
    if (group.rope && options.scaling) state->rope.back()->scaling = *options.scaling;
  }
  if (options.scaling && state_->settings.family->positions != Positions::rotary) {
    throw Error(ErrorCode::invalid_argument,
                message("sequence: model_type ", state_->settings.facts.model_type,
                        " does not rotate: it takes no scaling of RoPE, got ",
                        encodings::name_of(*options.scaling)));
  }
  check_positions_can_move(*state, options);
  if (options.share != nullptr) {
    agree(*state);
    state->owners = TokenOwners(*options.share, options.first_position, options.capacity);
  }
  state->rotations = resolve_rotations(state->rope, *state_, std::nullopt);
  state->ids.reserve(static_cast<std::size_t>(options.capacity));
  for (std::size_t layer = 0; layer < state_->layers.size(); ++layer) {
    state->caches.push_back(make_cache(*state, state->rotations, layer));
  }
  return Sequence(std::move(state));
}

}  // namespace phasor::models
