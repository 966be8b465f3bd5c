#include "phasor/lab/internal/network.hpp"

#include <algorithm>
#include <utility>

#include "lab/nn/head.hpp"
#include "lab/nn/ops.hpp"
#include "lab/nn/parameters.hpp"
#include "lab/nn/stack.hpp"
#include "phasor/lab/internal/random.hpp"

namespace phasor::lab {
namespace {

void require_count(std::string_view what, std::size_t got, std::int64_t expected) {
  if (got == static_cast<std::size_t>(expected)) return;
  refuse(ErrorCode::shape_mismatch,
         message("batch: ", what, " must have ", expected, " numbers, got ", got));
}

void require_below(std::string_view what, std::span<const std::int32_t> values, std::int64_t count,
                   std::int32_t least = 0) {
  for (const std::int32_t value : values) {
    if (value >= least && value < count) continue;
    refuse(ErrorCode::out_of_range,
           message("batch: ", what, " must be in [", least, ", ", count, "), got ", value));
  }
}

void require_mask(std::string_view what, std::span<const std::uint8_t> mask, std::int64_t count) {
  if (!mask.empty()) require_count(what, mask.size(), count);
}

}  // namespace

template <class T>
struct Network<T>::State {
  ModelSpec spec;
  Workers workers;
  ParameterList list;
  std::size_t words = kAbsent, types = kAbsent;
  std::size_t first_of_decoder = 0, first_of_head = 0;  // in the one array
  NormAt embedding_norm;
  std::optional<Stack<T>> encoder, decoder;
  std::optional<HeadOf<T>> head;
  std::vector<T> values, gradients;
  std::vector<T> embedded, summed, source_embedded, d_hidden, d_memory;
  std::vector<Target> targets;

  explicit State(const ModelSpec& model, const NetworkOptions& options)
      : spec(model), workers(options.threads, options.times) {
    validate(spec);
    add_parameters();
    values.assign(list.count(), T{0});
    gradients.assign(list.count(), T{0});
  }

  void add_parameters() {
    const auto embedding = [&](const std::string& name, std::int64_t rows) {
      return list.add(name + ".weight", {rows, spec.hidden}, kEmbedding);
    };
    switch (spec.architecture) {
      case Architecture::encoder:
        words = embedding("roformer.embeddings.word_embeddings", spec.vocabulary);
        types = embedding("roformer.embeddings.token_type_embeddings", spec.token_types);
        embedding_norm = list.norm("roformer.embeddings.LayerNorm", spec.hidden, Bias::own);
        encoder.emplace(spec, Mask::none, CrossAttention::none,
                        StackNames{"roformer.encoder.layer.", "roformer.encoding.", ""}, list);
        break;
      case Architecture::decoder:
        words = embedding("model.embed_tokens", spec.vocabulary);
        decoder.emplace(spec, Mask::causal, CrossAttention::none,
                        StackNames{"model.layers.", "model.encoding.", "model.norm"}, list);
        break;
      case Architecture::encoder_decoder:
        words = embedding("shared", spec.vocabulary);
        encoder.emplace(spec, Mask::none, CrossAttention::none,
                        StackNames{"encoder.layers.", "encoder.encoding.", "encoder.norm"}, list);
        first_of_decoder = list.count();
        decoder.emplace(spec, Mask::causal, CrossAttention::present,
                        StackNames{"decoder.layers.", "decoder.encoding.", "decoder.norm"}, list);
        break;
    }
    first_of_head = list.count();
    head.emplace(spec, words, list);
  }

  [[nodiscard]] Numbers<T> numbers() { return {values.data(), gradients.data()}; }

  void check(const Batch& batch) const {
    if (batch.rows < 1 || batch.tokens < 1) {
      refuse(message("batch: rows and tokens must be at least 1, got ", batch.rows, " and ",
                     batch.tokens));
    }
    const std::int64_t count = batch.rows * batch.tokens;
    require_count("ids", batch.ids.size(), count);
    require_below("an id", batch.ids, spec.vocabulary);
    require_mask("mask", batch.mask, count);
    if (!batch.token_types.empty()) require_count("token_types", batch.token_types.size(), count);
    require_below("a token type", batch.token_types, spec.token_types);
    const bool per_token = spec.head == Head::language_model;
    if (!batch.labels.empty()) {
      require_count("labels", batch.labels.size(), per_token ? count : batch.rows);
      require_below("a label", batch.labels, per_token ? spec.vocabulary : spec.labels, kNoLabel);
    }
    if (encoder && !decoder) encoder->position().require_tokens(batch.tokens);
    if (decoder) decoder->position().require_tokens(batch.tokens);
    if (encoder && decoder) {
      require_count("source_ids", batch.source_ids.size(), batch.rows * batch.source_tokens);
      if (batch.source_tokens < 1) refuse("batch: source_tokens must be at least 1, got 0");
      require_below("a source id", batch.source_ids, spec.vocabulary);
      require_mask("source_mask", batch.source_mask, batch.rows * batch.source_tokens);
      encoder->position().require_tokens(batch.source_tokens);
    }
  }

  // Dropout of the embeddings, and the keys of the stacks.
  enum Site : std::uint64_t { source_embedding, target_embedding, encoder_layers, decoder_layers };
  [[nodiscard]] static std::uint64_t key_of(const TrainOptions& options, Site site) {
    return Random(options.seed, Stream::dropout, options.step).at(site);
  }
  [[nodiscard]] models::Dropout dropout(Pass pass, const TrainOptions& options, Site site) const {
    if (pass == Pass::evaluate) return {};
    return {spec.dropout, key_of(options, site)};
  }

  // x = dropped(norm(words + types + positions)); `sum` keeps what is normed.
  void embed(Pass pass, const TrainOptions& options, const PositionEncoding& position,
             std::int64_t rows, std::int64_t tokens, std::span<const std::int32_t> ids,
             std::span<const std::int32_t> token_types, Site site, std::vector<T>& x) {
    const std::int64_t count = rows * tokens, hidden = spec.hidden;
    x.resize(static_cast<std::size_t>(count * hidden));
    T* to = x.data();
    if (types != kAbsent) {
      summed.resize(x.size());
      to = summed.data();
    }
    gather(workers, ids, hidden, values.data() + words, to, Add::no);
    if (types != kAbsent) {
      const std::vector<std::int32_t> zeros(token_types.empty() ? ids.size() : 0);
      gather(workers, token_types.empty() ? std::span<const std::int32_t>(zeros) : token_types,
             hidden, values.data() + types, to, Add::yes);
    }
    position.add_to_input(workers, numbers(), rows, tokens, to);
    if (types != kAbsent) {
      normalise(workers, NormKind::layer, count, hidden, to, numbers().at(embedding_norm.weight),
                numbers().at(embedding_norm.bias), x.data());
    }
    if (const models::Dropout dropped = dropout(pass, options, site); dropped.rate > 0.0) {
      drop<T>(workers, dropped, options.first_row * tokens * hidden, count * hidden, x.data(),
              nullptr, x.data());
    }
  }

  void embed_backward(const TrainOptions& options, const PositionEncoding& position,
                      std::int64_t rows, std::int64_t tokens, std::span<const std::int32_t> ids,
                      std::span<const std::int32_t> token_types, Site site, T* d) {
    const std::int64_t count = rows * tokens, hidden = spec.hidden;
    const Numbers<T> all = numbers();
    if (const models::Dropout dropped = dropout(Pass::train, options, site); dropped.rate > 0.0) {
      drop<T>(workers, dropped, options.first_row * tokens * hidden, count * hidden, d, nullptr, d);
    }
    if (types != kAbsent) {
      normalise_backward<T>(workers, NormKind::layer, count, hidden, summed.data(),
                            all.at(embedding_norm.weight), d, nullptr, d,
                            all.gradient(embedding_norm.weight), all.gradient(embedding_norm.bias));
      const std::vector<std::int32_t> zeros(token_types.empty() ? ids.size() : 0);
      scatter_add(workers, token_types.empty() ? std::span<const std::int32_t>(zeros) : token_types,
                  hidden, d, all.gradient(types));
    }
    position.add_to_input_backward(workers, all, rows, tokens, d);
    scatter_add(workers, ids, hidden, d, all.gradient(words));
  }

  [[nodiscard]] StackInput<T> source_input(const Batch& batch, Pass pass,
                                           const TrainOptions& options) const {
    if (!decoder) {
      return {.rows = batch.rows,
              .tokens = batch.tokens,
              .mask = batch.mask,
              .segments = batch.token_types,
              .pass = pass,
              .dropout_key = key_of(options, encoder_layers),
              .first_row = options.first_row,
              .final_from = &options.final_from};
    }
    return {.rows = batch.rows,
            .tokens = batch.source_tokens,
            .mask = batch.source_mask,
            .pass = pass,
            .dropout_key = key_of(options, encoder_layers),
            .first_row = options.first_row,
            .final_from = &options.final_from};
  }
  [[nodiscard]] StackInput<T> target_input(const Batch& batch, Pass pass,
                                           const TrainOptions& options, const T* memory) const {
    StackInput<T> input{.rows = batch.rows,
                        .tokens = batch.tokens,
                        .mask = batch.mask,
                        .pass = pass,
                        .dropout_key = key_of(options, decoder_layers),
                        .first_row = options.first_row,
                        .final_from = &options.final_from};
    if (encoder) {
      input.memory = memory;
      input.memory_tokens = batch.source_tokens;
      input.memory_mask = batch.source_mask;
    }
    return input;
  }

  // The last hidden states [rows, tokens, hidden]. `memory` becomes the encoder's output, if there are
  // both stacks.
  const T* forward(const Batch& batch, Pass pass, const TrainOptions& options, const T*& memory) {
    check(batch);
    memory = nullptr;
    if (!decoder) {
      embed(pass, options, encoder->position(), batch.rows, batch.tokens, batch.ids,
            batch.token_types, target_embedding, embedded);
      return encoder->forward(workers, numbers(), source_input(batch, pass, options),
                              embedded.data());
    }
    if (encoder) {
      embed(pass, options, encoder->position(), batch.rows, batch.source_tokens, batch.source_ids,
            {}, source_embedding, source_embedded);
      memory = encoder->forward(workers, numbers(), source_input(batch, pass, options),
                                source_embedded.data());
    }
    embed(pass, options, decoder->position(), batch.rows, batch.tokens, batch.ids, {},
          target_embedding, embedded);
    return decoder->forward(workers, numbers(), target_input(batch, pass, options, memory),
                            embedded.data());
  }

  void find_targets(const Batch& batch) {
    targets.clear();
    const std::int64_t step = spec.head == Head::language_model ? 1 : batch.tokens;
    for (std::size_t i = 0; i < batch.labels.size(); ++i) {
      if (batch.labels[i] == kNoLabel) continue;
      targets.push_back(
          {static_cast<std::int32_t>(static_cast<std::int64_t>(i) * step), batch.labels[i]});
    }
  }

  Loss evaluate(const Batch& batch, std::span<float> each) {
    const T* memory = nullptr;
    const T* const hidden = forward(batch, Pass::evaluate, {}, memory);
    find_targets(batch);
    return head->loss(workers, numbers(), hidden, targets, {}, nullptr, each);
  }

  Loss train(const Batch& batch, const TrainOptions& options) {
    const T* memory = nullptr;
    const T* const hidden = forward(batch, Pass::train, options, memory);
    find_targets(batch);
    const auto size = static_cast<std::size_t>(batch.rows * batch.tokens * spec.hidden);
    d_hidden.assign(size, T{0});
    const Loss loss = head->loss(workers, numbers(), hidden, targets, options, d_hidden.data(), {});
    // Parameters are in the order of the forward pass, so that gradients are final from the end on.
    const auto final_from = [&](std::size_t first) {
      if (options.final_from) options.final_from(first);
    };
    final_from(first_of_head);
    if (!decoder) {
      encoder->backward(workers, numbers(), source_input(batch, Pass::train, options),
                        d_hidden.data(), nullptr);
      embed_backward(options, encoder->position(), batch.rows, batch.tokens, batch.ids,
                     batch.token_types, target_embedding, d_hidden.data());
      final_from(0);
      return loss;
    }
    if (encoder) {
      d_memory.assign(static_cast<std::size_t>(batch.rows * batch.source_tokens * spec.hidden),
                      T{0});
    }
    decoder->backward(workers, numbers(), target_input(batch, Pass::train, options, memory),
                      d_hidden.data(), d_memory.data());
    embed_backward(options, decoder->position(), batch.rows, batch.tokens, batch.ids, {},
                   target_embedding, d_hidden.data());
    final_from(first_of_decoder);
    if (!encoder) return loss;
    encoder->backward(workers, numbers(), source_input(batch, Pass::train, options),
                      d_memory.data(), nullptr);
    embed_backward(options, encoder->position(), batch.rows, batch.source_tokens, batch.source_ids,
                   {}, source_embedding, d_memory.data());
    final_from(0);
    return loss;
  }
};

template <class T>
Network<T>::Network(const ModelSpec& spec, const NetworkOptions& options)
    : state_(std::make_unique<State>(spec, options)) {}
template <class T>
Network<T>::~Network() = default;
template <class T>
Network<T>::Network(Network&&) noexcept = default;
template <class T>
Network<T>& Network<T>::operator=(Network&&) noexcept = default;

template <class T>
const ModelSpec& Network<T>::spec() const noexcept {
  return state_->spec;
}
template <class T>
const std::vector<Parameter>& Network<T>::layout() const noexcept {
  return state_->list.layout();
}
template <class T>
std::span<T> Network<T>::parameters() noexcept {
  return state_->values;
}
template <class T>
std::span<const T> Network<T>::parameters() const noexcept {
  return state_->values;
}
template <class T>
std::span<T> Network<T>::gradients() noexcept {
  return state_->gradients;
}

template <class T>
void Network<T>::initialise(std::uint64_t seed) {
  const std::vector<Parameter>& layout = state_->list.layout();
  for (std::size_t index = 0; index < layout.size(); ++index) {
    const Initial& initial = state_->list.initial()[index];
    Random random(seed, Stream::initial_weights, index);
    for (std::size_t i = 0; i < layout[index].count; ++i) {
      const double noise = initial.deviation > 0.0 ? initial.deviation * random.normal() : 0.0;
      state_->values[layout[index].first + i] = static_cast<T>(initial.value + noise);
    }
  }
}

template <class T>
Loss Network<T>::train(const Batch& batch, const TrainOptions& options) {
  return state_->train(batch, options);
}

template <class T>
Loss Network<T>::evaluate(const Batch& batch) {
  return state_->evaluate(batch, {});
}

template <class T>
std::vector<float> Network<T>::losses(const Batch& batch) {
  std::vector<float> each(batch.labels.size());
  state_->evaluate(batch, each);
  // Targets are in the order of the labels: spread them out, from the last on.
  std::vector<float> losses(batch.labels.size());
  std::size_t target = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (batch.labels[i] != kNoLabel) losses[i] = each[target++];
  }
  return losses;
}

template <class T>
std::vector<T> Network<T>::logits(const Batch& batch) {
  const T* memory = nullptr;
  const T* const hidden = state_->forward(batch, Pass::evaluate, {}, memory);
  const bool per_token = state_->spec.head == Head::language_model;
  std::vector<std::int32_t> places(
      static_cast<std::size_t>(per_token ? batch.rows * batch.tokens : batch.rows));
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i] =
        static_cast<std::int32_t>(per_token ? i : i * static_cast<std::size_t>(batch.tokens));
  }
  std::vector<T> logits(places.size() * static_cast<std::size_t>(state_->head->classes()));
  state_->head->logits(state_->workers, state_->numbers(), hidden, places, logits.data());
  return logits;
}

template <class T>
void Network<T>::set_test_encoding(const EncodingSpec& encoding) {
  for (std::optional<Stack<T>>* stack : {&state_->encoder, &state_->decoder}) {
    if (!*stack) continue;
    (*stack)->position().replace(encoding);
    (*stack)->forget_plans();
  }
}

template class Network<float>;
template class Network<double>;

}  // namespace phasor::lab
