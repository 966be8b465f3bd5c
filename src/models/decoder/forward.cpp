// The layers of every family, written once; the table of families says which of them a family has.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/decoder/state.hpp"

namespace phasor::models {
namespace {

[[nodiscard]] float* sized(std::vector<float>& memory, std::int64_t count) {
  if (memory.size() < static_cast<std::size_t>(count)) {
    memory.resize(static_cast<std::size_t>(count));
  }
  return memory.data();
}

class Forward {
 public:
  explicit Forward(Decoder::State& state)
      : state_(state),
        facts_(state.settings.facts),
        family_(*state.settings.family),
        work_(state.work),
        runs_(state.work.runs),
        share_(runs_.front().sequence->options.share) {
    for (Run& run : runs_) {
      run.first_row = tokens_;
      tokens_ += run.count();
    }
    if (work_.rotations.size() < runs_.size()) work_.rotations.resize(runs_.size());
    if (share_ != nullptr) {
      const std::size_t needed = runs_.size() * static_cast<std::size_t>(share_->ranks());
      if (work_.share.rotations.size() < needed) work_.share.rotations.resize(needed);
    }
    query_width_ = facts_.heads * facts_.head_dim;
    key_width_ = facts_.key_heads * facts_.head_dim;
  }

  void run(const ForwardOptions& options, ForwardResult& result) {
    result.logits.clear();
    result.hidden_states.clear();
    result.rows.clear();
    embed();
    for (std::size_t layer = 0; layer < state_.layers.size(); ++layer) {
      if (options.hidden == HiddenStates::collect) collect(work_.x.data(), result);
      run_layer(layer);
      require_finite({layer, state_.layers.size()},
                     {work_.x.data(), static_cast<std::size_t>(tokens_ * facts_.hidden)},
                     static_cast<std::size_t>(facts_.hidden), state_.compute.isa);
    }
    const bool every = options.hidden == HiddenStates::collect;
    const std::vector<std::int64_t>& rows =
        find_rows(every ? LogitsOf::every_token : options.logits, work_.rows);
    float* const normed = final_rows(rows);
    if (every) {
      result.hidden_states.insert(result.hidden_states.end(), normed,
                                  normed + static_cast<std::int64_t>(rows.size()) * facts_.hidden);
    }
    make_logits(options.logits, rows, normed, result);
    if (share_ != nullptr) share_results(options, result);
  }

 private:
  // The embedding's rows, times sqrt(hidden) for Gemma, plus learned positions, normalised for BLOOM.
  void embed() {
    float* const x = sized(work_.x, tokens_ * facts_.hidden);
    const auto scale = static_cast<float>(state_.settings.embedding_scale);
    for (const Run& run : runs_) {
      for (std::int64_t i = 0; i < run.count(); ++i) {
        const std::span<float> row(x + (run.first_row + i) * facts_.hidden,
                                   static_cast<std::size_t>(facts_.hidden));
        const std::int64_t token = run.computed.first + i;
        state_.embedding.row(run.ids[static_cast<std::size_t>(token)], row);
        if (scale != 1.0F) {
          for (float& value : row) value *= scale;
        }
        if (!state_.positions.empty()) add_position(run.first_token() + token, row);
      }
    }
    if (!state_.embedding_norm.weight.empty()) normalise(state_.embedding_norm, all_rows(), x, x);
  }

  void add_position(std::int64_t position, std::span<float> row) {
    const std::span<float> learned(sized(work_.normed, facts_.hidden), row.size());
    state_.positions.row(position, learned);
    add_to(row, learned.data(), state_.compute.isa);
  }

  // Calls body(first, count) for ranges of rows, on as many threads as gain.
  template <class Body>
  void for_ranges(std::int64_t rows, std::int64_t width, const Body& body) const {
    const int threads = state_.compute.threads;
    const std::int64_t worth =
        rows * width * static_cast<std::int64_t>(sizeof(float)) / core::kThreadBytes;
    const auto parts = static_cast<int>(
        std::clamp<std::int64_t>(worth, 1, threads == 0 ? core::available_threads() : threads));
    auto run = [&](int part, int count) {
      const std::int64_t first = rows * part / count;
      body(first, rows * (part + 1) / count - first);
    };
    core::run_parts(
        parts,
        [](void* call, int part, int count) { (*static_cast<decltype(run)*>(call))(part, count); },
        &run);
  }

  void normalise(const Norm& norm, const Rows& rows, const float* x, float* out) const {
    for_ranges(rows.tokens, rows.width, [&](std::int64_t first, std::int64_t count) {
      normalise_rows(norm, {count, rows.width, rows.stride}, x + first * rows.stride,
                     out + first * rows.stride);
    });
  }
  void normalise_rows(const Norm& norm, const Rows& rows, const float* x, float* out) const {
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

  void add(float* branch) {
    const auto scale = static_cast<float>(state_.settings.residual_scale);
    for_ranges(tokens_, facts_.hidden, [&](std::int64_t first, std::int64_t count) {
      float* const rows = branch + first * facts_.hidden;
      const std::int64_t size = count * facts_.hidden;
      if (scale != 1.0F) {
        for (std::int64_t i = 0; i < size; ++i) rows[i] *= scale;
      }
      add_to({work_.x.data() + first * facts_.hidden, static_cast<std::size_t>(size)}, rows,
             state_.compute.isa);
    });
  }

  void run_layer(std::size_t index) {
    const LayerWeights& layer = state_.layers[index];
    const std::int64_t size = tokens_ * facts_.hidden;
    float* const x = work_.x.data();
    float* const normed = sized(work_.normed, size);
    float* const branch = sized(work_.branch, size);
    const bool before = state_.settings.block != Block::after;
    if (before) normalise(layer.attention_norm, all_rows(), x, normed);
    attend(index, before ? normed : x, branch);
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
      case Block::after:
        normalise(layer.after_attention, all_rows(), branch, branch);
        add(branch);
        break;
    }
    feed_forward(layer, before ? normed : x, branch);
    if (!layer.after_feed_forward.weight.empty()) {
      normalise(layer.after_feed_forward, all_rows(), branch, branch);
    }
    add(branch);
  }

  // Queries and keys, normalised before rotation: over all heads (OLMo 2) or each head (Qwen 3, Gemma 3,
  // Cohere).
  void normalise_heads(const Norm& norm, std::int64_t heads, float* x) const {
    const std::int64_t d = facts_.head_dim;
    if (family_.query_key_norm == QueryKeyNorm::whole) {
      return normalise(norm, {tokens_, heads * d, heads * d}, x, x);
    }
    if (family_.query_key_norm != QueryKeyNorm::layer_if_present) {
      return normalise(norm, {tokens_ * heads, d, d}, x, x);
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      layer_norm({tokens_, d, heads * d}, x + head * d, norm.weight.data() + head * d, nullptr,
                 state_.settings.epsilon, x + head * d, state_.compute.isa);
    }
  }

  // Queries times a factor that grows with their position (Ministral 3).
  void scale_queries(const encodings::QueryScale& scale, const Run& run, std::int64_t first,
                     float* query) const {
    for (std::int64_t i = 0; i < run.count(); ++i) {
      const auto factor =
          static_cast<float>(encodings::query_scale_at(scale, static_cast<double>(first + i)));
      float* const row = query + (run.first_row + i) * query_width_;
      for (std::int64_t c = 0; c < query_width_; ++c) row[c] *= factor;
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
    if (state_.settings.scale_by_layer) {
      options.scale = state_.settings.softmax_scale / static_cast<double>(index + 1);
    }
    options.threads = state_.compute.threads;
    options.isa = state_.compute.isa;
    options.workspace = &work_.attention;
    for (std::size_t at = 0; at < runs_.size(); ++at) {
      const Run& run = runs_[at];
      attention::KVCache& cache = (*run.caches)[index];
      options.rotations = &work_.rotations[at];
      const std::int64_t next = run.owners == nullptr ? cache.next_position()
                                                      : run.sequence->options.first_position +
                                                            run.first_token() + run.computed.first;
      if (group.query_scale) scale_queries(*group.query_scale, run, next, query);
      options.angles = run.sequence->options.angles;
      const auto rows_of_run = [&](const float* rows) {
        return core::heads_view(rows + run.first_row * key_width_, 1, run.count(), facts_.key_heads,
                                facts_.head_dim);
      };
      if (run.owners != nullptr) {
        if (keeps(run))
          cache.append(rows_of_run(key), rows_of_run(value), core::positions_from(next),
                       state_.compute.threads, options.rotations);
        attend_shared(
            run,
            {cache, run.rotations->terms[layer.group], options, facts_.heads, facts_.head_dim, at},
            query + run.first_row * query_width_, attended + run.first_row * query_width_,
            work_.share);
        continue;
      }
      cache.append(rows_of_run(key), rows_of_run(value), std::nullopt, state_.compute.threads,
                   options.rotations);
      cache.attend(run.rotations->terms[layer.group],
                   core::heads_view(const_cast<const float*>(query) + run.first_row * query_width_,
                                    1, run.count(), facts_.heads, facts_.head_dim),
                   core::heads_view(attended + run.first_row * query_width_, 1, run.count(),
                                    facts_.heads, facts_.head_dim),
                   options);
    }
    const Product output = layer.output.into(out);
    multiply({&output, 1}, attended, tokens_, query_width_, state_.compute);
  }

  // down(f(gate x) * up x), or down(f(up x)) without a gate.
  void run_expert(const Expert& expert, const float* x, std::int64_t tokens, float* out) {
    const std::int64_t size = tokens * facts_.intermediate;
    float* const up = sized(work_.up, size);
    const auto for_parts = [&](const auto& body) {
      for_ranges(tokens, facts_.intermediate, [&](std::int64_t first, std::int64_t count) {
        body(first * facts_.intermediate, static_cast<std::size_t>(count * facts_.intermediate));
      });
    };
    float* inner = up;
    if (expert.gate.matrix.empty()) {
      const Product product = expert.up.into(up);
      multiply({&product, 1}, x, tokens, facts_.hidden, state_.compute);
      for_parts([&](std::int64_t first, std::size_t count) {
        activate(state_.settings.activation, {up + first, count}, state_.compute.isa);
      });
    } else {
      inner = sized(work_.gate, size);
      const Product products[] = {expert.gate.into(inner), expert.up.into(up)};
      multiply(products, x, tokens, facts_.hidden, state_.compute);
      for_parts([&](std::int64_t first, std::size_t count) {
        activate_gate(state_.settings.activation, {inner + first, count}, up + first,
                      state_.compute.isa);
      });
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
    std::vector<ExpertShare>& shares = work_.shares;
    shares.clear();
    std::vector<std::int64_t>& order = work_.expert_order;
    order.resize(static_cast<std::size_t>(facts_.experts));
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
        shares.push_back({expert, t, static_cast<float>(weight)});
      }
    }
    std::fill(out, out + tokens_ * hidden, 0.0F);
    std::vector<ExpertShare>& taken = work_.taken;
    for (std::int64_t e = 0; e < facts_.experts; ++e) {
      taken.clear();
      for (const ExpertShare& share : shares) {
        if (share.expert == e) taken.push_back(share);
      }
      if (taken.empty()) continue;
      const auto count = static_cast<std::int64_t>(taken.size());
      float* const gathered = sized(work_.gathered, count * hidden);
      float* const result = sized(work_.expert_out, count * hidden);
      for (std::int64_t i = 0; i < count; ++i) {
        std::copy_n(x + taken[static_cast<std::size_t>(i)].token * hidden, hidden,
                    gathered + i * hidden);
      }
      run_expert(layer.experts[static_cast<std::size_t>(e)], gathered, count, result);
      for (std::int64_t i = 0; i < count; ++i) {
        const ExpertShare& share = taken[static_cast<std::size_t>(i)];
        for (std::int64_t c = 0; c < hidden; ++c) {
          out[share.token * hidden + c] += share.weight * result[i * hidden + c];
        }
      }
    }
  }

  // Whether this rank keeps the keys and values of the tokens that it has computed.
  [[nodiscard]] bool keeps(const Run& run) const {
    return !run.everywhere || run.blocks[static_cast<std::size_t>(share_->rank())].count > 0;
  }

  // Rows of the activations that the caller asked for, in order.
  const std::vector<std::int64_t>& find_rows(LogitsOf logits,
                                             std::vector<std::int64_t>& rows) const {
    rows.clear();
    for (const Run& run : runs_) {
      const TokenBlock asked = asked_of(run, share_ == nullptr ? 0 : share_->rank(), logits);
      const std::int64_t first = run.first_row + asked.first - run.computed.first;
      for (std::int64_t row = first; row < first + asked.count; ++row) rows.push_back(row);
    }
    return rows;
  }

  // Tokens of a run whose rows a rank gives.
  [[nodiscard]] static TokenBlock asked_of(const Run& run, int rank, LogitsOf logits) {
    TokenBlock block = run.given(static_cast<std::size_t>(rank));
    if (logits == LogitsOf::every_token) return block;
    const std::int64_t end = block.first + block.count;
    const bool last = logits == LogitsOf::last_token && block.count > 0 &&
                      end == static_cast<std::int64_t>(run.ids.size());
    return {last ? end - 1 : end, last ? 1 : 0};
  }

  // Gives the rows that ranks have computed to those that asked for them.
  void share_results(const ForwardOptions& options, ForwardResult& result) {
    if (options.rows == RowsOn::own_rank) {
      for (const Run& run : runs_) {
        const TokenBlock asked = asked_of(run, share_->rank(), options.logits);
        result.rows.push_back({asked.first - run.skip, asked.count});
      }
      return;
    }
    gather_rows(options.logits, facts_.vocabulary, 1, options.rows, result.logits);
    if (options.hidden == HiddenStates::collect)
      gather_rows(LogitsOf::every_token, facts_.hidden, facts_.layers + 1, options.rows,
                  result.hidden_states);
  }

  // values [arrays, rows of this rank, width] become [arrays, rows of all runs, width].
  void gather_rows(LogitsOf which, std::int64_t width, std::int64_t arrays, RowsOn on,
                   std::vector<float>& values) {
    const bool receives = on == RowsOn::every_rank || share_->rank() == 0;
    const int to = on == RowsOn::every_rank ? ContextShare::kEveryRank : 0;
    const std::vector<float> mine = std::move(values);
    values.clear();
    std::span<const float> left(mine);
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(share_->ranks()));
    for (std::int64_t array = 0; array < arrays; ++array) {
      for (const Run& run : runs_) {
        std::int64_t all = 0;
        for (int rank = 0; rank < share_->ranks(); ++rank) {
          std::int64_t& size = sizes[static_cast<std::size_t>(rank)];
          size = asked_of(run, rank, which).count * width;
          all += size;
        }
        const auto own = static_cast<std::size_t>(sizes[static_cast<std::size_t>(share_->rank())]);
        const std::size_t before = values.size();
        if (receives) values.resize(before + static_cast<std::size_t>(all));
        for (std::int64_t& size : sizes) size *= std::int64_t{sizeof(float)};
        share_->gather(std::as_bytes(left.first(own)), sizes, to,
                       std::as_writable_bytes(std::span(values).subspan(before)));
        left = left.subspan(own);
      }
    }
  }

  void collect(const float* x, ForwardResult& result) const {
    for (const std::int64_t row : find_rows(LogitsOf::every_token, work_.rows)) {
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
    const std::vector<std::int64_t>& asked = find_rows(logits, work_.asked_rows);
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
    if (scale != 1.0F || cap != 0.0) {
      for (float& logit : result.logits) {
        logit *= scale;
        if (cap != 0.0)
          logit = static_cast<float>(cap * std::tanh(static_cast<double>(logit) / cap));
      }
    }
    require_finite({state_.layers.size(), state_.layers.size()}, result.logits,
                   static_cast<std::size_t>(facts_.vocabulary), state_.compute.isa);
  }

  Decoder::State& state_;
  const DecoderFacts& facts_;
  const DecoderFamily& family_;
  Workspace& work_;
  std::vector<Run>& runs_;
  ContextShare* share_;
  std::int64_t tokens_ = 0, query_width_ = 0, key_width_ = 0;
};

}  // namespace

void run_layers(Decoder::State& state, const ForwardOptions& options, ForwardResult& into) {
  Forward(state).run(options, into);
}

}  // namespace phasor::models
