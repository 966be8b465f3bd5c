#include "phasor/models/roformer.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "models/roformer/parts.hpp"
#include "models/weight_reader.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/models/internal/layer_ops.hpp"

namespace phasor::models {

struct RoFormer::State {
  config::ModelConfig config;
  RoFormerSettings settings;
  RoFormerWeights weights;
  ComputeOptions options;
};

namespace {

[[nodiscard]] std::size_t size_of(std::int64_t rows, std::int64_t width) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
}

void require_size(std::string_view what, std::size_t got, std::size_t expected) {
  if (got == expected) return;
  refuse(ErrorCode::shape_mismatch,
         message("roformer: ", what, " must have ", expected, " elements, got ", got));
}

void require_range(std::string_view what, std::span<const std::int64_t> values,
                   std::int64_t count) {
  for (const std::int64_t value : values) {
    if (value >= 0 && value < count) continue;
    refuse(ErrorCode::out_of_range,
           message("roformer: ", what, " must be in [0, ", count, "), got ", value));
  }
}

void require_a_token_in_each_row(const RoFormerInput& input, std::int64_t tokens) {
  for (std::int64_t row = 0; row < input.batch && !input.mask.empty(); ++row) {
    const auto slots = input.mask.subspan(size_of(row, tokens), static_cast<std::size_t>(tokens));
    if (std::any_of(slots.begin(), slots.end(), [](std::uint8_t slot) { return slot != 0; })) {
      continue;
    }
    refuse(message("roformer: row ", row, " has only padding"));
  }
}

// The tokens of a row.
[[nodiscard]] std::int64_t checked_tokens(const RoFormerFacts& facts, const RoFormerInput& input) {
  if (input.batch < 1) {
    refuse(message("roformer: batch must be at least 1, got ", input.batch));
  }
  if (input.ids.empty()) {
    refuse("roformer: ids is empty");
  }
  const auto all = static_cast<std::int64_t>(input.ids.size());
  if (all % input.batch != 0) {
    refuse(ErrorCode::shape_mismatch, message("roformer: ids must have ", input.batch,
                                              " rows of the same length, got ", all, " ids"));
  }
  const std::int64_t tokens = all / input.batch;
  if (tokens > facts.trained_length) {
    refuse(ErrorCode::out_of_range,
           message("roformer: a row must have at most max_position_embeddings ",
                   facts.trained_length, " tokens, got ", tokens));
  }
  if (!input.token_types.empty()) {
    require_size("token_types", input.token_types.size(), input.ids.size());
  }
  if (!input.mask.empty()) require_size("mask", input.mask.size(), input.ids.size());
  require_range("an id", input.ids, facts.vocabulary);
  require_range("a token type", input.token_types, facts.token_types);
  require_range("a slot of logits", input.logit_slots, tokens);
  require_a_token_in_each_row(input, tokens);
  return tokens;
}

// One call: the buffers of its tokens, and the layers.
class Pass {
 public:
  Pass(const RoFormerSettings& settings, const RoFormerWeights& weights,
       const ComputeOptions& options, const RoFormerInput& input, std::int64_t tokens)
      : settings_(settings),
        weights_(weights),
        options_(options),
        input_(input),
        tokens_(tokens),
        rows_(input.batch * tokens),
        terms_(encodings::resolve(settings.rope, {.heads = settings.facts.heads,
                                                  .key_heads = settings.facts.heads,
                                                  .head_dim = settings.facts.head_dim,
                                                  .value_dim = settings.facts.head_dim,
                                                  .query_tokens = tokens,
                                                  .key_tokens = tokens})) {}

  [[nodiscard]] RoFormerResult run(HiddenStates hidden) {
    RoFormerResult result;
    const auto collect = [&] {
      if (hidden == HiddenStates::leave) return;
      result.hidden_states.insert(result.hidden_states.end(), x_.begin(), x_.end());
    };
    if (hidden == HiddenStates::collect) {
      result.hidden_states.reserve(size_of(rows_ * (settings_.facts.layers + 1), width()));
    }
    embed();
    collect();
    for (std::size_t layer = 0; layer < weights_.layers.size(); ++layer) {
      attend(weights_.layers[layer]);
      feed_forward(weights_.layers[layer]);
      require_finite({layer, weights_.layers.size()}, x_, static_cast<std::size_t>(width()),
                     options_.isa);
      collect();
    }
    result.logits = logits();
    result.last_hidden_state = std::move(x_);
    return result;
  }

 private:
  [[nodiscard]] std::int64_t width() const noexcept { return settings_.facts.hidden; }

  void normalise(const LayerNorm& norm, std::vector<float>& x) const {
    const auto features = static_cast<std::int64_t>(norm.weight.size());
    const Rows rows{static_cast<std::int64_t>(x.size()) / features, features, features};
    layer_norm(rows, x.data(), norm.weight.data(), norm.bias.data(), settings_.epsilon, x.data(),
               options_.isa);
  }

  [[nodiscard]] static Product product(const RoFormerLinear& linear, std::vector<float>& out,
                                       std::int64_t rows) {
    out.resize(size_of(rows, linear.weight.rows()));
    return {&linear.weight, out.data(), linear.weight.rows(), linear.bias.data()};
  }
  void apply(const RoFormerLinear& linear, const std::vector<float>& x,
             std::vector<float>& out) const {
    const std::int64_t columns = linear.weight.columns();
    const std::int64_t rows = static_cast<std::int64_t>(x.size()) / columns;
    const Product one = product(linear, out, rows);
    multiply({&one, 1}, x.data(), rows, columns, options_);
  }

  void embed() {
    const std::int64_t embedding = settings_.facts.embedding;
    const auto features = static_cast<std::size_t>(embedding);
    std::vector<float> sum(size_of(rows_, embedding)), type(features);
    for (std::size_t token = 0; token < input_.ids.size(); ++token) {
      const std::span<float> out = std::span(sum).subspan(token * features, features);
      weights_.words.row(input_.ids[token], out);
      weights_.token_types.row(input_.token_types.empty() ? 0 : input_.token_types[token], type);
      add_to(out, type.data(), options_.isa);
    }
    normalise(weights_.embedding_norm, sum);
    if (weights_.project) {
      apply(*weights_.project, sum, x_);
    } else {
      x_ = std::move(sum);
    }
  }

  [[nodiscard]] core::HeadsView heads(std::vector<float>& x) const noexcept {
    return core::heads_view(x.data(), input_.batch, tokens_, settings_.facts.heads,
                            settings_.facts.head_dim);
  }

  // The same for every layer.
  [[nodiscard]] attention::AttentionPlan plan_attention() const {
    const RoFormerFacts& facts = settings_.facts;
    attention::AttentionOptions how;
    how.key_padding = input_.mask;
    if (facts.is_causal) how.causality = attention::Causality::bottom_right;
    how.threads = options_.threads;
    how.isa = options_.isa;
    return {terms_,
            {.batch = input_.batch,
             .queries = tokens_,
             .keys = tokens_,
             .heads = facts.heads,
             .key_heads = facts.heads,
             .head_dim = facts.head_dim,
             .value_dim = facts.head_dim},
            how};
  }

  void attend(const RoFormerLayer& layer) {
    const std::array products = {product(layer.query, q_, rows_), product(layer.key, k_, rows_),
                                 product(layer.value, v_, rows_)};
    multiply(products, x_.data(), rows_, width(), options_);
    if (settings_.rotates_values) {
      core::rotate(*terms_.rotation, core::positions_from(0), heads(v_),
                   {.threads = options_.threads, .isa = options_.isa});
    }
    context_.resize(x_.size());
    if (!plan_) plan_.emplace(plan_attention());
    // RoFormer (16): raw q and k, rotated by their slots inside attention.
    plan_->run(heads(q_), heads(k_), heads(v_), heads(context_));
    apply(layer.attention_output, context_, wide_);
    add_to(x_, wide_.data(), options_.isa);
    normalise(layer.attention_norm, x_);
  }

  void feed_forward(const RoFormerLayer& layer) {
    apply(layer.intermediate, x_, wide_);
    activate(settings_.activation, wide_, options_.isa);
    apply(layer.output, wide_, context_);
    add_to(x_, context_.data(), options_.isa);
    normalise(layer.output_norm, x_);
  }

  // Rows of the last hidden state: `slots` of each batch row.
  [[nodiscard]] std::vector<float> picked(std::span<const std::int64_t> slots) const {
    std::vector<float> rows;
    rows.reserve(size_of(input_.batch * static_cast<std::int64_t>(slots.size()), width()));
    for (std::int64_t row = 0; row < input_.batch; ++row) {
      for (const std::int64_t slot : slots) {
        const auto first = x_.begin() + (row * tokens_ + slot) * width();
        rows.insert(rows.end(), first, first + width());
      }
    }
    return rows;
  }

  [[nodiscard]] std::vector<float> logits_of(const RoFormerLinear& head,
                                             const std::vector<float>& x) const {
    std::vector<float> logits;
    apply(head, x, logits);
    require_finite({weights_.layers.size(), weights_.layers.size()}, logits, head.bias.size(),
                   options_.isa);
    return logits;
  }

  [[nodiscard]] std::vector<float> logits() const {
    const RoFormerFacts& facts = settings_.facts;
    if (facts.head == RoFormerHead::none) return {};
    if (!facts.has_logits_per_token()) return classify_rows();
    std::vector<float> some;
    if (!input_.logit_slots.empty()) some = picked(input_.logit_slots);
    const std::vector<float>& rows = input_.logit_slots.empty() ? x_ : some;
    if (facts.labels > 0) return logits_of(weights_.labels, rows);
    std::vector<float> transformed;
    apply(weights_.transform, rows, transformed);
    activate(settings_.activation, transformed, options_.isa);
    normalise(weights_.transform_norm, transformed);
    return logits_of(weights_.decoder, transformed);
  }

  [[nodiscard]] std::vector<float> classify_rows() const {
    constexpr std::array<std::int64_t, 1> kFirst = {0};
    std::vector<float> dense;
    apply(weights_.dense, picked(kFirst), dense);
    activate(settings_.activation, dense, options_.isa);
    return logits_of(weights_.labels, dense);
  }

  const RoFormerSettings& settings_;
  const RoFormerWeights& weights_;
  const ComputeOptions& options_;
  const RoFormerInput& input_;
  std::int64_t tokens_, rows_;
  encodings::ScoreTerms terms_;
  std::optional<attention::AttentionPlan> plan_;
  std::vector<float> x_, q_, k_, v_, context_, wide_;
};

}  // namespace

std::string_view name_of(RoFormerHead head) noexcept {
  static constexpr core::EnumNames<RoFormerHead::question_answering> kNames(
      "", "masked_lm", "classification", "causal_lm", "token_classification", "question_answering");
  return kNames[head];
}

RoFormer::RoFormer(std::unique_ptr<State> state) : state_(std::move(state)) {}
RoFormer::~RoFormer() = default;
RoFormer::RoFormer(RoFormer&&) noexcept = default;
RoFormer& RoFormer::operator=(RoFormer&&) noexcept = default;

Result<RoFormer> RoFormer::load(const std::filesystem::path& path, const ComputeOptions& options) {
  Result<Checkpoint> opened = Checkpoint::open(path);
  if (!opened) return opened.error();
  Checkpoint checkpoint = std::move(opened).value();
  try {
    auto state = std::make_unique<State>();
    state->settings = roformer_settings(checkpoint);
    WeightReader reader(checkpoint);
    state->weights = roformer_weights(reader, state->settings);
    checkpoint.check_unchanged();
    state->config = checkpoint.config();
    state->options = options;
    return RoFormer(std::move(state));
  } catch (const Error& error) {
    return error;
  }
}

const RoFormerFacts& RoFormer::facts() const noexcept { return state_->settings.facts; }
const config::ModelConfig& RoFormer::config() const noexcept { return state_->config; }

RoFormerResult RoFormer::forward(const RoFormerInput& input, HiddenStates hidden) {
  const std::int64_t tokens = checked_tokens(facts(), input);
  return Pass(state_->settings, state_->weights, state_->options, input, tokens).run(hidden);
}

}  // namespace phasor::models
