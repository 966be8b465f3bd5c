// The layers of every family, written once; decoder_families.cpp says which of them a family takes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/call.hpp"
#include "models/decoder_state.hpp"

namespace phasor::models {
namespace {

// Tokens of one sequence in this call.
struct Run {
  Sequence::State* sequence = nullptr;
  std::vector<std::int64_t> ids;  // to compute
  std::int64_t skip = 0;          // of them, the first that nobody asked for: computed again
  std::int64_t first_row = 0;     // of the call's activations
  std::int64_t had = 0;           // tokens in the caches before

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(ids.size()); }
};

[[nodiscard]] float* sized(std::vector<float>& memory, std::int64_t count) {
  if (memory.size() < static_cast<std::size_t>(count)) {
    memory.resize(static_cast<std::size_t>(count));
  }
  return memory.data();
}

class Forward {
 public:
  Forward(Decoder::State& state, std::vector<Run> runs)
      : state_(state),
        facts_(state.settings.facts),
        family_(*state.settings.family),
        work_(state.work),
        runs_(std::move(runs)) {
    for (Run& run : runs_) {
      run.first_row = tokens_;
      tokens_ += run.count();
    }
    query_width_ = facts_.heads * facts_.head_dim;
    key_width_ = facts_.key_heads * facts_.head_dim;
  }

  [[nodiscard]] ForwardResult run(const ForwardOptions& options) {
    ForwardResult result;
    embed();
    for (std::size_t layer = 0; layer < state_.layers.size(); ++layer) {
      if (options.hidden == HiddenStates::collect) collect(work_.x.data(), result);
      run_layer(layer);
    }
    const bool every = options.hidden == HiddenStates::collect;
    const std::vector<std::int64_t> rows =
        every ? asked_rows(LogitsOf::every_token) : asked_rows(options.logits);
    float* const normed = final_rows(rows);
    if (every) {
      result.hidden_states.insert(result.hidden_states.end(), normed,
                                  normed + static_cast<std::int64_t>(rows.size()) * facts_.hidden);
    }
    make_logits(options.logits, rows, normed, result);
    return result;
  }

 private:
  // The embedding's rows, times sqrt(hidden) for Gemma.
  void embed() {
    float* const x = sized(work_.x, tokens_ * facts_.hidden);
    const auto scale = static_cast<float>(state_.settings.embedding_scale);
    for (const Run& run : runs_) {
      for (std::int64_t i = 0; i < run.count(); ++i) {
        const std::span<float> row(x + (run.first_row + i) * facts_.hidden,
                                   static_cast<std::size_t>(facts_.hidden));
        state_.embedding.row(run.ids[static_cast<std::size_t>(i)], row);
        if (scale != 1.0F) {
          for (float& value : row) value *= scale;
        }
      }
    }
  }

  void normalise(const Norm& norm, const Rows& rows, const float* x, float* out) const {
    const double epsilon = state_.settings.epsilon;
    const core::InstructionSet isa = state_.compute.isa;
    switch (family_.norm) {
      case NormKind::rms:
        return rms_norm(rows, x, norm.weight.data(), 0.0F, epsilon, out, isa);
      case NormKind::rms_from_one:
        return rms_norm(rows, x, norm.weight.data(), 1.0F, epsilon, out, isa);
      case NormKind::layer:
        return layer_norm(rows, x, norm.weight.data(), norm.bias.data(), epsilon, out, isa);
      case NormKind::layer_without_bias:
        return layer_norm(rows, x, norm.weight.data(), nullptr, epsilon, out, isa);
    }
  }

  [[nodiscard]] Rows all_rows() const { return {tokens_, facts_.hidden, facts_.hidden}; }

  void add(const float* branch) {
    add_to({work_.x.data(), static_cast<std::size_t>(tokens_ * facts_.hidden)}, branch,
           state_.compute.isa);
  }

  void run_layer(std::size_t index) {
    const LayerWeights& layer = state_.layers[index];
    const std::int64_t size = tokens_ * facts_.hidden;
    float* const x = work_.x.data();
    float* const normed = sized(work_.normed, size);
    float* const branch = sized(work_.branch, size);
    normalise(layer.attention_norm, all_rows(), x, normed);
    attend(index, normed, branch);
    switch (state_.settings.block) {
      case Block::sequential:
        add(branch);
        normalise(layer.feed_forward_norm, all_rows(), x, normed);
        break;
      case Block::parallel:
        add(branch);
        break;
      case Block::parallel_two:
        normalise(layer.feed_forward_norm, all_rows(), x, normed);
        add(branch);
        break;
      case Block::sandwich:
        normalise(layer.after_attention, all_rows(), branch, branch);
        add(branch);
        normalise(layer.feed_forward_norm, all_rows(), x, normed);
        break;
    }
    feed_forward(layer, normed, branch);
    if (state_.settings.block == Block::sandwich) {
      normalise(layer.after_feed_forward, all_rows(), branch, branch);
    }
    add(branch);
  }

  // Queries and keys of each head, normalised before they turn (Qwen 3, Gemma 3, Cohere).
  void normalise_heads(const Norm& norm, std::int64_t heads, float* x) const {
    const std::int64_t d = facts_.head_dim;
    if (static_cast<std::int64_t>(norm.weight.size()) == d) {
      return normalise(norm, {tokens_ * heads, d, d}, x, x);
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      layer_norm({tokens_, d, heads * d}, x + head * d, norm.weight.data() + head * d, nullptr,
                 state_.settings.epsilon, x + head * d, state_.compute.isa);
    }
  }

  void attend(std::size_t index, const float* normed, float* out) {
    const LayerWeights& layer = state_.layers[index];
    float* const query = sized(work_.query, tokens_ * query_width_);
    float* const key = sized(work_.key, tokens_ * key_width_);
    float* const value = sized(work_.value, tokens_ * key_width_);
    float* const attended = sized(work_.attended, tokens_ * query_width_);
    const Product products[] = {layer.query.into(query), layer.key.into(key),
                                layer.value.into(value)};
    multiply(products, normed, tokens_, facts_.hidden, state_.compute);
    if (!layer.query_norm.weight.empty()) {
      normalise_heads(layer.query_norm, facts_.heads, query);
      normalise_heads(layer.key_norm, facts_.key_heads, key);
    }
    const config::LayerGroup& group = state_.config.groups[layer.group];
    attention::AttentionOptions options;
    options.causality = attention::Causality::bottom_right;
    options.window = group.window;
    options.soft_cap = state_.settings.attention_soft_cap;
    options.threads = state_.compute.threads;
    options.isa = state_.compute.isa;
    for (const Run& run : runs_) {
      attention::KVCache& cache = run.sequence->caches[index];
      append(cache, key + run.first_row * key_width_, value + run.first_row * key_width_,
             run.count());
      cache.attend(run.sequence->turns.terms[layer.group],
                   core::heads_view(const_cast<const float*>(query) + run.first_row * query_width_,
                                    1, run.count(), facts_.heads, facts_.head_dim),
                   core::heads_view(attended + run.first_row * query_width_, 1, run.count(),
                                    facts_.heads, facts_.head_dim),
                   options);
    }
    const Product output = layer.output.into(out);
    multiply({&output, 1}, attended, tokens_, query_width_, state_.compute);
  }

  void append(attention::KVCache& cache, const float* key, const float* value, std::int64_t count) {
    core::ConstHeadsView k = core::heads_view(key, 1, count, facts_.key_heads, facts_.head_dim);
    core::ConstHeadsView v = core::heads_view(value, 1, count, facts_.key_heads, facts_.head_dim);
    const core::DType dtype = cache.spec().dtype;
    if (dtype != core::DType::f32) {
      const auto size = static_cast<std::size_t>(count * key_width_);
      work_.narrow.resize(2 * size);
      const auto storage = dtype == core::DType::f16 ? attention::kernels::Storage::f16
                                                     : attention::kernels::Storage::bf16;
      const auto round = attention::kernels_for(state_.compute.isa).write_rows;
      round(key, key_width_, count, key_width_, storage, work_.narrow.data(), key_width_);
      round(value, key_width_, count, key_width_, storage, work_.narrow.data() + size, key_width_);
      k.data = work_.narrow.data();
      v.data = work_.narrow.data() + size;
      k.dtype = v.dtype = dtype;
    }
    cache.append(k, v, std::nullopt, state_.compute.threads);
  }

  // down(f(gate x) * up x), or down(f(up x)) without a gate.
  void run_expert(const Expert& expert, const float* x, std::int64_t tokens, float* out) {
    const std::int64_t size = tokens * facts_.intermediate;
    float* const up = sized(work_.up, size);
    const auto span = [&](float* data) {
      return std::span<float>(data, static_cast<std::size_t>(size));
    };
    float* inner = up;
    if (expert.gate.matrix.empty()) {
      const Product product = expert.up.into(up);
      multiply({&product, 1}, x, tokens, facts_.hidden, state_.compute);
      activate(state_.settings.activation, span(up), state_.compute.isa);
    } else {
      inner = sized(work_.gate, size);
      const Product products[] = {expert.gate.into(inner), expert.up.into(up)};
      multiply(products, x, tokens, facts_.hidden, state_.compute);
      activate_gate(state_.settings.activation, span(inner), up, state_.compute.isa);
    }
    const Product down = expert.down.into(out);
    multiply({&down, 1}, inner, tokens, facts_.intermediate, state_.compute);
  }

  void feed_forward(const LayerWeights& layer, const float* x, float* out) {
    if (layer.experts.empty()) {
      run_expert(layer.feed_forward, x, tokens_, out);
    } else {
      run_experts(layer, x, out);
    }
  }

  // Softmax over the router's logits; the largest are kept and made to sum to 1 (Mixtral). Tokens
  // are gathered by expert, so that each expert's weights are read once.
  void run_experts(const LayerWeights& layer, const float* x, float* out) {
    const std::int64_t hidden = facts_.hidden;
    float* const logits = sized(work_.router, tokens_ * facts_.experts);
    const Product router = layer.router.into(logits);
    multiply({&router, 1}, x, tokens_, hidden, state_.compute);
    struct Share {
      std::int64_t token;
      float weight;
    };
    std::vector<std::vector<Share>> shares(static_cast<std::size_t>(facts_.experts));
    std::vector<std::int64_t> order(static_cast<std::size_t>(facts_.experts));
    for (std::int64_t t = 0; t < tokens_; ++t) {
      const float* const row = logits + t * facts_.experts;
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + facts_.experts_used, order.end(),
                        [&](std::int64_t a, std::int64_t b) {
                          return row[a] > row[b] || (row[a] == row[b] && a < b);
                        });
      // The denominator over all experts cancels when the kept ones are made to sum to 1.
      double sum = 0.0;
      for (std::int64_t e = 0; e < facts_.experts_used; ++e) {
        sum += std::exp(static_cast<double>(row[order[static_cast<std::size_t>(e)]]) -
                        static_cast<double>(row[order.front()]));
      }
      for (std::int64_t e = 0; e < facts_.experts_used; ++e) {
        const std::int64_t expert = order[static_cast<std::size_t>(e)];
        const double weight =
            std::exp(static_cast<double>(row[expert]) - static_cast<double>(row[order.front()])) /
            sum;
        shares[static_cast<std::size_t>(expert)].push_back({t, static_cast<float>(weight)});
      }
    }
    std::fill(out, out + tokens_ * hidden, 0.0F);
    for (std::size_t e = 0; e < shares.size(); ++e) {
      if (shares[e].empty()) continue;
      const auto count = static_cast<std::int64_t>(shares[e].size());
      float* const gathered = sized(work_.gathered, count * hidden);
      float* const result = sized(work_.expert_out, count * hidden);
      for (std::int64_t i = 0; i < count; ++i) {
        std::copy_n(x + shares[e][static_cast<std::size_t>(i)].token * hidden, hidden,
                    gathered + i * hidden);
      }
      run_expert(layer.experts[e], gathered, count, result);
      for (std::int64_t i = 0; i < count; ++i) {
        const Share& share = shares[e][static_cast<std::size_t>(i)];
        for (std::int64_t c = 0; c < hidden; ++c) {
          out[share.token * hidden + c] += share.weight * result[i * hidden + c];
        }
      }
    }
  }

  // Rows of the activations that the caller asked for, in order.
  [[nodiscard]] std::vector<std::int64_t> asked_rows(LogitsOf logits) const {
    std::vector<std::int64_t> rows;
    for (const Run& run : runs_) {
      const std::int64_t end = run.first_row + run.count();
      const std::int64_t first = logits == LogitsOf::every_token  ? run.first_row + run.skip
                                 : logits == LogitsOf::last_token ? end - 1
                                                                  : end;
      for (std::int64_t row = first; row < end; ++row) rows.push_back(row);
    }
    return rows;
  }

  void collect(const float* x, ForwardResult& result) const {
    for (const std::int64_t row : asked_rows(LogitsOf::every_token)) {
      result.hidden_states.insert(result.hidden_states.end(), x + row * facts_.hidden,
                                  x + (row + 1) * facts_.hidden);
    }
  }

  // The final norm of some rows, dense.
  [[nodiscard]] float* final_rows(const std::vector<std::int64_t>& rows) {
    const std::int64_t hidden = facts_.hidden;
    float* const normed = sized(
        work_.normed, std::max<std::int64_t>(1, static_cast<std::int64_t>(rows.size())) * hidden);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      normalise(state_.final_norm, {1, hidden, hidden}, work_.x.data() + rows[i] * hidden,
                normed + static_cast<std::int64_t>(i) * hidden);
    }
    return normed;
  }

  void make_logits(LogitsOf logits, const std::vector<std::int64_t>& rows, float* normed,
                   ForwardResult& result) {
    const std::vector<std::int64_t> asked = asked_rows(logits);
    if (asked.empty()) return;
    const std::int64_t hidden = facts_.hidden;
    // `rows` holds every asked row; with hidden states collected it may hold more.
    auto from = rows.begin();
    for (std::size_t i = 0; i < asked.size(); ++i) {
      from = std::find(from, rows.end(), asked[i]);
      const std::int64_t at = from - rows.begin();
      std::copy_n(normed + at * hidden, hidden, normed + static_cast<std::int64_t>(i) * hidden);
    }
    result.logits.resize(asked.size() * static_cast<std::size_t>(facts_.vocabulary));
    const Product product = state_.head.into(result.logits.data());
    multiply({&product, 1}, normed, static_cast<std::int64_t>(asked.size()), hidden,
             state_.compute);
    const auto scale = static_cast<float>(state_.settings.logit_scale);
    const double cap = state_.settings.final_soft_cap;
    if (scale == 1.0F && cap == 0.0) return;
    for (float& logit : result.logits) {
      logit *= scale;
      if (cap != 0.0) logit = static_cast<float>(cap * std::tanh(static_cast<double>(logit) / cap));
    }
  }

  Decoder::State& state_;
  const DecoderFacts& facts_;
  const DecoderFamily& family_;
  Workspace& work_;
  std::vector<Run> runs_;
  std::int64_t tokens_ = 0, query_width_ = 0, key_width_ = 0;
};

void check_step(const Decoder::State& state, std::span<const Step> steps, std::size_t index,
                const Sequence::State* sequence) {
  const Step& step = steps[index];
  if (sequence->decoder != &state) {
    throw Error(ErrorCode::invalid_argument,
                "forward: a step's sequence must be of this decoder, got another's");
  }
  if (step.ids.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "forward: every step must have at least 1 token, got none");
  }
  for (std::size_t other = 0; other < index; ++other) {
    if (steps[other].sequence == step.sequence) {
      throw Error(ErrorCode::invalid_argument,
                  "forward: a sequence must stand in one step, got it twice");
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
  if (needed > static_cast<std::size_t>(sequence->options.capacity)) {
    throw Error(ErrorCode::out_of_range,
                message("forward: a sequence must hold at most its capacity of ",
                        sequence->options.capacity, " tokens, got ", needed));
  }
}

[[nodiscard]] bool same_turn(const encodings::ScoreTerms& a, const encodings::ScoreTerms& b) {
  if (a.turn.has_value() != b.turn.has_value()) return false;
  if (!a.turn) return true;
  const core::Frequencies& left = a.turn->frequencies;
  const core::Frequencies& right = b.turn->frequencies;
  return left.amplitude() == right.amplitude() &&
         std::equal(left.values().begin(), left.values().end(), right.values().begin(),
                    right.values().end());
}

// Brings a sequence to the frequencies of this call's context: see Decoder::forward.
void follow_context(Sequence::State& sequence, std::int64_t context, Run& run, int threads) {
  const bool depends =
      std::any_of(sequence.rope.begin(), sequence.rope.end(),
                  [](const auto& rope) { return rope && encodings::depends_on_context(*rope); });
  if (!depends) return;
  GroupTurns turns = resolve_turns(sequence.rope, sequence.decoder->config, context);
  bool again = false;
  std::vector<bool> changed;
  for (std::size_t g = 0; g < turns.terms.size(); ++g) {
    changed.push_back(!same_turn(turns.terms[g], sequence.turns.terms[g]));
    again = again || (changed[g] && std::holds_alternative<encodings::LongRopeScaling>(
                                        sequence.rope[g]->scaling));
  }
  if (again) {
    for (attention::KVCache& cache : sequence.caches) cache.truncate(0);
    run.ids.insert(run.ids.begin(), sequence.ids.begin(), sequence.ids.end());
    run.skip = static_cast<std::int64_t>(sequence.ids.size());
    run.had = 0;
    sequence.ids.clear();
  }
  for (std::size_t layer = 0; layer < sequence.caches.size(); ++layer) {
    const std::size_t group = sequence.decoder->layers[layer].group;
    if (changed[group]) {
      sequence.caches[layer].rerotate(*turns.terms[group].turn, std::nullopt, threads);
    }
  }
  sequence.turns = std::move(turns);
}

}  // namespace

ForwardResult Decoder::forward(std::span<const Step> steps, const ForwardOptions& options) {
  if (steps.empty()) {
    throw Error(ErrorCode::invalid_argument, "forward: there must be a step, got none");
  }
  std::vector<Run> runs;
  std::size_t context = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Sequence::State* const sequence = steps[i].sequence->state_.get();
    check_step(*state_, steps, i, sequence);
    if (sequence->rope != steps.front().sequence->state_->rope) {
      throw Error(ErrorCode::invalid_argument,
                  "forward: all sequences must have one scaling, got two");
    }
    Run run;
    run.sequence = sequence;
    run.ids.assign(steps[i].ids.begin(), steps[i].ids.end());
    run.had = static_cast<std::int64_t>(sequence->ids.size());
    context = std::max(context, sequence->ids.size() + steps[i].ids.size());
    runs.push_back(std::move(run));
  }
  for (Run& run : runs) {
    follow_context(*run.sequence, static_cast<std::int64_t>(context), run, state_->compute.threads);
  }
  try {
    ForwardResult result = Forward(*state_, runs).run(options);
    for (const Run& run : runs) {
      run.sequence->ids.insert(run.sequence->ids.end(), run.ids.begin(), run.ids.end());
    }
    return result;
  } catch (...) {
    for (const Run& run : runs) {
      for (attention::KVCache& cache : run.sequence->caches) {
        if (cache.tokens() > run.had) cache.truncate(run.had);
      }
    }
    throw;
  }
}

}  // namespace phasor::models
