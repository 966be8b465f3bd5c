#include "phasor/models/t5.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "models/t5/parts.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::models {
namespace {

[[nodiscard]] std::int64_t count_of_ids(std::span<const std::int64_t> ids) {
  return static_cast<std::int64_t>(ids.size());
}

void check_t5_ids(std::string_view what, std::span<const std::int64_t> ids,
                  std::int64_t vocabulary) {
  if (ids.empty()) refuse(message("t5: ", what, " has no tokens; it needs at least 1"));
  for (const std::int64_t id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    refuse(ErrorCode::out_of_range,
           message("t5: token ids must be from 0 to ", vocabulary - 1, ", got ", id, " in ", what));
  }
}

// The terms of a layer's self-attention: RoFormer (8), with q.k unscaled.
[[nodiscard]] encodings::ScoreTerms self_terms(const T5Facts& facts, const std::vector<float>& bias,
                                               encodings::BucketRange range, std::int64_t tokens) {
  return encodings::resolve(
      encodings::T5{encodings::rows_then_heads(bias.data(), facts.buckets, facts.heads, 1),
                    facts.max_distance, range},
      {.heads = facts.heads,
       .key_heads = facts.heads,
       .head_dim = facts.head_dim,
       .value_dim = facts.head_dim,
       .query_tokens = tokens,
       .key_tokens = tokens});
}

// What both stacks do with `tokens` rows of x.
class T5Pass {
 public:
  T5Pass(T5Model::State& state, const T5Stack& stack, std::int64_t tokens)
      : state_(state),
        facts_(state.settings.facts),
        work_(state.work),
        stack_(stack),
        tokens_(tokens),
        width_(facts_.heads * facts_.head_dim) {}

  void embed(std::span<const std::int64_t> ids) {
    fit(work_.x, facts_.hidden);
    const auto hidden = static_cast<std::size_t>(facts_.hidden);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      state_.weights.embedding.row(ids[i], std::span(work_.x).subspan(i * hidden, hidden));
    }
  }

  // Rows of x, after the stack's final norm.
  [[nodiscard]] std::span<const float> final_rows(std::int64_t first, std::int64_t count) {
    normalise(stack_.final_norm, first, count);
    return std::span(work_.normed)
        .first(static_cast<std::size_t>(count) * static_cast<std::size_t>(facts_.hidden));
  }

  // q, k and v of normalised rows; q alone for cross-attention, whose keys are those of the input.
  void project(const T5Attention& attention) {
    project(attention,
            std::array{into(attention.query, work_.query), into(attention.key, work_.key),
                       into(attention.value, work_.value)});
  }
  void project_query(const T5Attention& attention) {
    project(attention, std::array{into(attention.query, work_.query)});
  }
  void add_attended(const T5Attention& attention) { add_product(attention.output, work_.attended); }

  // x += down f(up N x), or down (f(gate N x) * up N x).
  void feed_forward(const T5Layer& layer) {
    normalise(layer.feed_forward_norm, 0, tokens_);
    const bool gated = !layer.gate.empty();
    std::array<Product, 2> products = {into(layer.up, work_.up), {}};
    if (gated) products[1] = into(layer.gate, work_.gate);
    multiply(std::span(products).first(gated ? 2 : 1), work_.normed.data(), tokens_, facts_.hidden,
             state_.compute);
    const Activation f = state_.settings.activation;
    if (gated) {
      activate_gate(f, work_.gate, work_.up.data(), state_.compute.isa);
    } else {
      activate(f, work_.up, state_.compute.isa);
    }
    add_product(layer.down, gated ? work_.gate : work_.up);
  }

  void check_layer(std::size_t layer) const {
    require_finite({layer, stack_.layers.size()}, work_.x, static_cast<std::size_t>(facts_.hidden),
                   state_.compute.isa);
  }

  [[nodiscard]] core::HeadsView heads(std::vector<float>& x) const noexcept {
    return core::heads_view(x.data(), 1, tokens_, facts_.heads, facts_.head_dim);
  }

 private:
  void project(const T5Attention& attention, std::span<const Product> products) {
    normalise(attention.norm, 0, tokens_);
    multiply(products, work_.normed.data(), tokens_, facts_.hidden, state_.compute);
    fit(work_.attended, width_);
  }
  void fit(std::vector<float>& memory, std::int64_t width) const {
    memory.resize(static_cast<std::size_t>(tokens_) * static_cast<std::size_t>(width));
  }
  [[nodiscard]] Product into(const Matrix& matrix, std::vector<float>& out) const {
    fit(out, matrix.rows());
    return {&matrix, out.data(), matrix.rows(), nullptr};
  }
  void add_product(const Matrix& matrix, const std::vector<float>& x) {
    const Product product = into(matrix, work_.branch);
    multiply({&product, 1}, x.data(), tokens_, matrix.columns(), state_.compute);
    add_to(work_.x, work_.branch.data(), state_.compute.isa);
  }
  // x / sqrt(mean(x^2) + epsilon) * weight: no mean is taken off, and there is no bias.
  void normalise(const std::vector<float>& weight, std::int64_t first, std::int64_t count) {
    fit(work_.normed, facts_.hidden);
    rms_norm({count, facts_.hidden, facts_.hidden}, work_.x.data() + first * facts_.hidden,
             weight.data(), 0.0F, state_.settings.epsilon, work_.normed.data(), state_.compute.isa);
  }

  T5Model::State& state_;
  const T5Facts& facts_;
  T5Work& work_;
  const T5Stack& stack_;
  std::int64_t tokens_, width_;
};

[[nodiscard]] T5Encoded run_encoder(T5Model::State& state, std::span<const std::int64_t> input,
                                    HiddenStates hidden) {
  const T5Facts& facts = state.settings.facts;
  const T5Stack& stack = state.weights.encoder;
  T5Work& work = state.work;
  const std::int64_t tokens = count_of_ids(input);
  T5Pass pass(state, stack, tokens);
  T5Encoded encoded;
  const auto collect = [&](std::span<const float> rows) {
    if (hidden == HiddenStates::collect)
      encoded.hidden_states.insert(encoded.hidden_states.end(), rows.begin(), rows.end());
  };
  attention::AttentionOptions options;
  options.threads = state.compute.threads;
  options.isa = state.compute.isa;
  std::optional<attention::AttentionPlan> plan;
  pass.embed(input);
  for (std::size_t i = 0; i < stack.layers.size(); ++i) {
    collect(work.x);
    const T5Layer& layer = stack.layers[i];
    if (!plan || stack.bias.size() > 1) {
      plan.emplace(
          self_terms(facts, stack.bias_of(i), encodings::BucketRange::bidirectional, tokens),
          attention::AttentionSizes{.batch = 1,
                                    .queries = tokens,
                                    .keys = tokens,
                                    .heads = facts.heads,
                                    .key_heads = facts.heads,
                                    .head_dim = facts.head_dim,
                                    .value_dim = facts.head_dim},
          options);
    }
    pass.project(layer.self);
    plan->run(pass.heads(work.query), pass.heads(work.key), pass.heads(work.value),
              pass.heads(work.attended));
    pass.add_attended(layer.self);
    pass.feed_forward(layer);
    pass.check_layer(i);
  }
  const std::span<const float> last = pass.final_rows(0, tokens);
  collect(last);
  encoded.last_hidden_state.assign(last.begin(), last.end());
  return encoded;
}

// Runs the decoder's tokens and appends to the caches of self-attention.
void run_decoder(T5Model::State& state, T5Sequence::State& sequence,
                 std::span<const std::int64_t> ids, const ForwardOptions& how,
                 ForwardResult& into) {
  const T5Facts& facts = state.settings.facts;
  const T5Stack& stack = state.weights.decoder;
  T5Work& work = state.work;
  const std::int64_t tokens = count_of_ids(ids);
  T5Pass pass(state, stack, tokens);
  into.logits.clear();
  into.hidden_states.clear();
  const auto collect = [&](std::span<const float> rows) {
    if (how.hidden == HiddenStates::collect)
      into.hidden_states.insert(into.hidden_states.end(), rows.begin(), rows.end());
  };
  attention::AttentionOptions self;
  self.causality = attention::Causality::bottom_right;
  self.threads = state.compute.threads;
  self.isa = state.compute.isa;
  self.workspace = &work.attention;
  attention::AttentionOptions cross = self;
  cross.causality = attention::Causality::none;
  const encodings::ScoreTerms no_terms;  // of scale 1
  pass.embed(ids);
  for (std::size_t i = 0; i < stack.layers.size(); ++i) {
    collect(work.x);
    const T5Layer& layer = stack.layers[i];
    pass.project(layer.self);
    sequence.self[i].append(pass.heads(work.key), pass.heads(work.value), std::nullopt,
                            state.compute.threads);
    sequence.self[i].attend(sequence.self_terms[stack.bias.size() == 1 ? 0 : i],
                            pass.heads(work.query), pass.heads(work.attended), self);
    pass.add_attended(layer.self);
    pass.project_query(*layer.cross);
    sequence.cross[i].attend(no_terms, pass.heads(work.query), pass.heads(work.attended), cross);
    pass.add_attended(*layer.cross);
    pass.feed_forward(layer);
    pass.check_layer(i);
  }
  if (how.hidden == HiddenStates::collect) collect(pass.final_rows(0, tokens));
  if (how.logits == LogitsOf::none) return;
  const std::int64_t first = how.logits == LogitsOf::last_token ? tokens - 1 : 0;
  const std::int64_t rows = tokens - first;
  const float* const normed = pass.final_rows(first, rows).data();
  into.logits.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(facts.vocabulary));
  const Product head{&state.weights.head, into.logits.data(), facts.vocabulary, nullptr};
  multiply({&head, 1}, normed, rows, facts.hidden, state.compute);
  const auto scale = static_cast<float>(state.settings.output_scale);
  if (scale != 1.0F) {
    for (float& logit : into.logits) logit *= scale;
  }
  require_finite({stack.layers.size(), stack.layers.size()}, into.logits,
                 static_cast<std::size_t>(facts.vocabulary), state.compute.isa);
}

}  // namespace

T5Sequence::T5Sequence(std::unique_ptr<State> state) : state_(std::move(state)) {}
T5Sequence::~T5Sequence() = default;
T5Sequence::T5Sequence(T5Sequence&&) noexcept = default;
T5Sequence& T5Sequence::operator=(T5Sequence&&) noexcept = default;

std::span<const std::int64_t> T5Sequence::ids() const noexcept { return state_->ids; }
std::int64_t T5Sequence::input_tokens() const noexcept { return state_->input_tokens; }
std::int64_t T5Sequence::capacity() const noexcept { return state_->capacity; }

void T5Sequence::truncate(std::int64_t tokens) {
  const std::int64_t count = count_of_ids(state_->ids);
  if (tokens < 0 || tokens > count) {
    refuse(ErrorCode::out_of_range,
           message("t5: truncate must be from 0 to ", count, " tokens, got ", tokens));
  }
  for (attention::KVCache& cache : state_->self) cache.truncate(tokens);
  state_->ids.resize(static_cast<std::size_t>(tokens));
}

T5Model::T5Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
T5Model::~T5Model() = default;
T5Model::T5Model(T5Model&&) noexcept = default;
T5Model& T5Model::operator=(T5Model&&) noexcept = default;

Result<T5Model> T5Model::load(const std::filesystem::path& path, const ComputeOptions& options) {
  Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return checkpoint.error();
  return load(std::move(checkpoint).value(), options);
}

Result<T5Model> T5Model::load(Checkpoint checkpoint, const ComputeOptions& options) {
  try {
    auto state = std::make_unique<State>();
    state->settings = t5_settings(checkpoint);
    state->weights = t5_weights(checkpoint, state->settings);
    checkpoint.check_unchanged();
    state->compute = options;
    return T5Model(std::move(state));
  } catch (const Error& error) {
    return error;
  }
}

const T5Facts& T5Model::facts() const noexcept { return state_->settings.facts; }

T5Encoded T5Model::encode(std::span<const std::int64_t> input, HiddenStates hidden) {
  check_t5_ids("the input", input, facts().vocabulary);
  return run_encoder(*state_, input, hidden);
}

T5Sequence T5Model::sequence(std::span<const std::int64_t> input,
                             const T5SequenceOptions& options) {
  if (options.capacity < 1) {
    refuse(message("t5: capacity must be at least 1 token, got ", options.capacity));
  }
  const std::vector<float> encoded = encode(input).last_hidden_state;
  const T5Stack& stack = state_->weights.decoder;
  auto state = std::make_unique<T5Sequence::State>();
  state->model = state_.get();
  state->input_tokens = count_of_ids(input);
  state->capacity = options.capacity;
  state->ids.reserve(static_cast<std::size_t>(options.capacity));
  for (const std::vector<float>& bias : stack.bias) {
    state->self_terms.push_back(
        self_terms(facts(), bias, encodings::BucketRange::past_only, options.capacity));
  }
  attention::CacheSpec spec{
      .key_heads = facts().heads,
      .head_dim = facts().head_dim,
      .value_dim = facts().head_dim,
      .capacity = options.capacity,
      .dtype = options.cache.value_or(
          state_->compute.precision == Precision::fast ? core::DType::f16 : core::DType::f32)};
  for (std::size_t i = 0; i < stack.layers.size(); ++i) state->self.emplace_back(spec);
  spec.capacity = state->input_tokens;
  T5Work& work = state_->work;
  for (const T5Layer& layer : stack.layers) {
    const std::size_t size =
        static_cast<std::size_t>(state->input_tokens * facts().heads * facts().head_dim);
    work.key.resize(size);
    work.value.resize(size);
    const std::array products = {
        Product{&layer.cross->key, work.key.data(), layer.cross->key.rows(), nullptr},
        Product{&layer.cross->value, work.value.data(), layer.cross->value.rows(), nullptr}};
    multiply(products, encoded.data(), state->input_tokens, facts().hidden, state_->compute);
    const auto heads = [&](const std::vector<float>& rows) {
      return core::heads_view(rows.data(), 1, state->input_tokens, facts().heads, facts().head_dim);
    };
    state->cross.emplace_back(spec).append(heads(work.key), heads(work.value), std::nullopt,
                                           state_->compute.threads);
  }
  return T5Sequence(std::move(state));
}

void T5Model::forward(T5Sequence& sequence, std::span<const std::int64_t> ids,
                      const ForwardOptions& options, ForwardResult& into) {
  T5Sequence::State& state = *sequence.state_;
  if (state.model != state_.get()) refuse("t5: the sequence belongs to another model");
  check_t5_ids("the decoder's step", ids, facts().vocabulary);
  const std::int64_t had = count_of_ids(state.ids);
  if (had + count_of_ids(ids) > state.capacity) {
    refuse(ErrorCode::out_of_range,
           message("t5: a sequence must hold at most its capacity of ", state.capacity,
                   " tokens, got ", had + count_of_ids(ids)));
  }
  try {
    run_decoder(*state_, state, ids, options, into);
  } catch (...) {
    for (attention::KVCache& cache : state.self) {
      if (cache.tokens() > had) cache.truncate(had);
    }
    throw;
  }
  state.ids.insert(state.ids.end(), ids.begin(), ids.end());  // has the room
}

ForwardResult T5Model::forward(T5Sequence& sequence, std::span<const std::int64_t> ids,
                               const ForwardOptions& options) {
  ForwardResult result;
  forward(sequence, ids, options, result);
  return result;
}

}  // namespace phasor::models
