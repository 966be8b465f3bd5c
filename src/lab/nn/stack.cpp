#include "lab/nn/stack.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lab/nn/heads.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/lab/internal/random.hpp"

namespace phasor::lab {
namespace {

template <class T>
T* sized(std::vector<T>& memory, std::int64_t count) {
  memory.resize(static_cast<std::size_t>(count));
  return memory.data();
}

}  // namespace

template <class T>
Stack<T>::Stack(const ModelSpec& spec, Mask mask, CrossAttention cross, const StackNames& names,
                ParameterList& parameters)
    : spec_(spec),
      mask_(mask),
      cross_(cross),
      norm_kind_(spec.style == Style::roformer ? NormKind::layer : NormKind::rms),
      norm_first_(spec.style == Style::llama),
      position_(spec, mask, names.encoding, parameters),
      plans_(spec, mask, cross) {
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    add_layer(spec, message(names.layers, layer, "."), parameters);
  }
  if (norm_first_) final_norm_ = parameters.norm(names.final_norm, spec.hidden, Bias::none);
  states_.resize(weights_.size());
}

template <class T>
void Stack<T>::add_layer(const ModelSpec& spec, const std::string& prefix,
                         ParameterList& parameters) {
  const std::int64_t hidden = spec.hidden, inner = spec.intermediate;
  const Initial matrix = matrix_initial(hidden);
  LayerWeights layer;
  if (spec.style == Style::roformer) {
    const auto linear = [&](const std::vector<std::string>& names, std::int64_t out,
                            std::int64_t in) {
      return parameters.linear(prefix, names, out, in, Bias::own, matrix);
    };
    layer.qkv = linear({"attention.self.query", "attention.self.key", "attention.self.value"},
                       hidden, hidden);
    layer.attention_out = linear({"attention.output.dense"}, hidden, hidden);
    layer.attention_norm =
        parameters.norm(prefix + "attention.output.LayerNorm", hidden, Bias::own);
    layer.feed_in = linear({"intermediate.dense"}, inner, hidden);
    layer.feed_out = linear({"output.dense"}, hidden, inner);
    layer.feed_norm = parameters.norm(prefix + "output.LayerNorm", hidden, Bias::own);
  } else {
    // What is added to the stream starts smaller, so that the sum over all branches keeps its size.
    const Initial added{0.0, matrix.deviation / std::sqrt(2.0 * static_cast<double>(spec.layers))};
    const auto linear = [&](const std::vector<std::string>& names, std::int64_t out,
                            std::int64_t in, const Initial& initial) {
      return parameters.linear(prefix, names, out, in, Bias::none, initial);
    };
    const auto norm = [&](const char* name) {
      return parameters.norm(prefix + name, hidden, Bias::none);
    };
    layer.attention_norm = norm("input_layernorm");
    layer.qkv = linear({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, hidden, hidden,
                       matrix);
    layer.attention_out = linear({"self_attn.o_proj"}, hidden, hidden, added);
    if (cross_ == CrossAttention::present) {
      layer.cross_norm = norm("cross_attention_layernorm");
      layer.cross_query = linear({"cross_attn.q_proj"}, hidden, hidden, matrix);
      layer.cross_key_value =
          linear({"cross_attn.k_proj", "cross_attn.v_proj"}, hidden, hidden, matrix);
      layer.cross_out = linear({"cross_attn.o_proj"}, hidden, hidden, added);
    }
    layer.feed_norm = norm("post_attention_layernorm");
    layer.feed_in = linear({"mlp.gate_proj", "mlp.up_proj"}, inner, hidden, matrix);
    layer.feed_out = linear({"mlp.down_proj"}, hidden, inner, added);
  }
  weights_.push_back(layer);
}

template <class T>
void Stack<T>::resize(const StackInput<T>& input) {
  const std::int64_t hidden = spec_.hidden, inner = spec_.intermediate;
  const std::int64_t wide = norm_first_ ? 2 * inner : inner;
  const std::int64_t memory = input.rows * input.memory_tokens;
  for (LayerState& state : states_) {
    for (BranchState* branch : {&state.attention, &state.cross, &state.feed}) {
      if (branch == &state.cross && cross_ == CrossAttention::none) continue;
      sized(branch->x, count_ * hidden);
      sized(branch->normed, count_ * hidden);
    }
    sized(state.qkv, count_ * 3 * hidden);
    sized(state.context, count_ * hidden);
    sized(state.log_sums, count_ * spec_.heads);
    if (cross_ == CrossAttention::present) {
      sized(state.cross_query, count_ * hidden);
      sized(state.cross_key_value, memory * 2 * hidden);
      sized(state.cross_context, count_ * hidden);
      sized(state.cross_log_sums, count_ * spec_.heads);
    }
    sized(state.feed_in, count_ * wide);
    sized(state.activated, count_ * inner);
  }
  sized(out_, count_ * hidden);
  sized(normed_out_, norm_first_ ? count_ * hidden : 0);
  sized(y_, count_ * hidden);
  if (input.pass == Pass::evaluate) return;
  sized(d_branch_, count_ * hidden);
  sized(d_normed_, count_ * hidden);
  sized(d_wide_, std::max({count_ * wide, count_ * 3 * hidden, memory * 2 * hidden}));
  sized(d_wider_, count_ * std::max(inner, hidden));
}

template <class T>
models::Dropout Stack<T>::dropout(std::uint64_t place) const {
  if (input_.pass == Pass::evaluate) return {};
  return {spec_.dropout, mix(input_.dropout_key + place)};
}

template <class T>
void Stack<T>::final_from(const NormAt& norm, const LinearAt& first) const {
  if (input_.final_from != nullptr && *input_.final_from) {
    (*input_.final_from)(std::min(norm.weight, first.weight));
  }
}

template <class T>
void Stack<T>::apply(const LinearAt& linear, std::int64_t rows, const T* x, T* y) {
  multiply(*workers_, rows, linear.out, linear.in, stored(x, linear.in),
           transposed(numbers_.at(linear.weight), linear.in), y, linear.out, Add::no,
           numbers_.at(linear.bias));
}

template <class T>
void Stack<T>::apply_backward(const LinearAt& linear, std::int64_t rows, const T* x, const T* dy,
                              T* d_x, Add add) {
  multiply(*workers_, linear.out, linear.in, rows, transposed(dy, linear.out), stored(x, linear.in),
           numbers_.gradient(linear.weight), linear.in, Add::yes);
  if (linear.bias != kAbsent) {
    add_columns(*workers_, rows, linear.out, dy, linear.out, numbers_.gradient(linear.bias));
  }
  if (d_x == nullptr) return;
  multiply(*workers_, rows, linear.in, linear.out, stored(dy, linear.out),
           stored(numbers_.at(linear.weight), linear.in), d_x, linear.in, add);
}

template <class T>
void Stack<T>::attend(const LayerWeights& layer, std::size_t index, LayerState& state, const T* in,
                      T* y) {
  apply(layer.qkv, count_, in, state.qkv.data());
  const auto part = [&](std::int64_t which) {
    return heads_of(state.qkv.data(), spec_, input_.rows, input_.tokens, which, 3);
  };
  const core::HeadsView out =
      heads_of(state.context.data(), spec_, input_.rows, input_.tokens, 0, 1);
  {
    const TimedPart timed = workers_->timed(Part::attention);
    if (plan_->linear) {
      plan_->linear->run(part(0), part(1), part(2), out);
    } else {
      plan_->softmax[plan_->softmax.size() == 1 ? 0 : index].run(part(0), part(1), part(2), out,
                                                                 extras_of(state.log_sums));
    }
  }
  apply(layer.attention_out, count_, state.context.data(), y);
}

template <class T>
void Stack<T>::attend_backward(const LayerWeights& layer, std::size_t index, LayerState& state,
                               const T* in, const T* dy, T* d_in) {
  T* const d_context = d_wider_.data();
  T* const d_qkv = d_wide_.data();
  apply_backward(layer.attention_out, count_, state.context.data(), dy, d_context);
  const auto view = [&](T* data, std::int64_t which, std::int64_t parts) {
    return heads_of(data, spec_, input_.rows, input_.tokens, which, parts);
  };
  T* const qkv = state.qkv.data();
  {
    const TimedPart timed = workers_->timed(Part::attention);
    if (plan_->linear) {
      plan_->linear->run_backward(view(qkv, 0, 3), view(qkv, 1, 3), view(qkv, 2, 3),
                                  view(d_context, 0, 1), view(d_qkv, 0, 3), view(d_qkv, 1, 3),
                                  view(d_qkv, 2, 3));
    } else {
      const std::size_t set = plan_->softmax.size() == 1 ? 0 : index;
      attention::AttentionGradients gradients{
          view(d_qkv, 0, 3), view(d_qkv, 1, 3), view(d_qkv, 2, 3), {}};
      if (!plan_->tables.empty()) {
        gradients.terms = position_.gradients(set, plan_->tables[set]);
      }
      plan_->softmax[set].run_backward(
          view(qkv, 0, 3), view(qkv, 1, 3), view(qkv, 2, 3),
          forward_of(view(state.context.data(), 0, 1), view(d_context, 0, 1), state.log_sums),
          gradients);
    }
  }
  apply_backward(layer.qkv, count_, in, d_qkv, d_in);
}

template <class T>
void Stack<T>::cross_attend(const LayerWeights& layer, LayerState& state, const T* in, T* y) {
  const std::int64_t memory = input_.rows * input_.memory_tokens;
  apply(layer.cross_query, count_, in, state.cross_query.data());
  apply(layer.cross_key_value, memory, input_.memory, state.cross_key_value.data());
  const auto side = [&](std::int64_t which) {
    return heads_of(state.cross_key_value.data(), spec_, input_.rows, input_.memory_tokens, which,
                    2);
  };
  {
    const TimedPart timed = workers_->timed(Part::attention);
    plan_->cross->run(heads_of(state.cross_query.data(), spec_, input_.rows, input_.tokens, 0, 1),
                      side(0), side(1),
                      heads_of(state.cross_context.data(), spec_, input_.rows, input_.tokens, 0, 1),
                      extras_of(state.cross_log_sums));
  }
  apply(layer.cross_out, count_, state.cross_context.data(), y);
}

template <class T>
void Stack<T>::cross_attend_backward(const LayerWeights& layer, LayerState& state, const T* in,
                                     const T* dy, T* d_in) {
  const std::int64_t memory = input_.rows * input_.memory_tokens;
  T* const d_context = d_wider_.data();
  T* const d_key_value = d_wide_.data();
  apply_backward(layer.cross_out, count_, state.cross_context.data(), dy, d_context);
  const auto queries = [&](T* data) {
    return heads_of(data, spec_, input_.rows, input_.tokens, 0, 1);
  };
  const auto side = [&](T* data, std::int64_t which) {
    return heads_of(data, spec_, input_.rows, input_.memory_tokens, which, 2);
  };
  T* const d_query = d_in;  // free until the last product
  {
    const TimedPart timed = workers_->timed(Part::attention);
    plan_->cross->run_backward(
        queries(state.cross_query.data()), side(state.cross_key_value.data(), 0),
        side(state.cross_key_value.data(), 1),
        forward_of(queries(state.cross_context.data()), queries(d_context), state.cross_log_sums),
        {queries(d_query), side(d_key_value, 0), side(d_key_value, 1), {}});
  }
  apply_backward(layer.cross_key_value, memory, input_.memory, d_key_value, d_memory_, Add::yes);
  std::copy(d_query, d_query + count_ * spec_.hidden, d_context);
  apply_backward(layer.cross_query, count_, in, d_context, d_in);
}

template <class T>
void Stack<T>::feed(const LayerWeights& layer, LayerState& state, const T* in, T* y) {
  apply(layer.feed_in, count_, in, state.feed_in.data());
  activate(*workers_, norm_first_ ? models::Activation::silu : models::Activation::gelu,
           norm_first_ ? Gate::half : Gate::none, count_, spec_.intermediate, state.feed_in.data(),
           state.activated.data());
  apply(layer.feed_out, count_, state.activated.data(), y);
}

template <class T>
void Stack<T>::feed_backward(const LayerWeights& layer, LayerState& state, const T* in, const T* dy,
                             T* d_in) {
  T* const d_activated = d_wider_.data();
  T* const d_feed = d_wide_.data();
  apply_backward(layer.feed_out, count_, state.activated.data(), dy, d_activated);
  activate_backward(*workers_, norm_first_ ? models::Activation::silu : models::Activation::gelu,
                    norm_first_ ? Gate::half : Gate::none, count_, spec_.intermediate,
                    state.feed_in.data(), d_activated, d_feed);
  apply_backward(layer.feed_in, count_, in, d_feed, d_in);
}

template <class T>
template <class Body>
void Stack<T>::run_branch(const NormAt& norm, BranchState& state, std::uint64_t place, T* out,
                          const Body& body) {
  core::throw_if_cancelled();
  const std::int64_t hidden = spec_.hidden;
  const T* const x = state.x.data();
  T* const normed = state.normed.data();
  const auto normalise_to = [&](const T* from, T* to) {
    normalise(*workers_, norm_kind_, count_, hidden, from, numbers_.at(norm.weight),
              numbers_.at(norm.bias), to);
  };
  if (norm_first_) normalise_to(x, normed);
  body(norm_first_ ? normed : x, y_.data());
  T* const sum = norm_first_ ? out : normed;
  drop(*workers_, dropout(place), first_index(), count_ * hidden, y_.data(), x, sum);
  if (!norm_first_) normalise_to(sum, out);
}

template <class T>
template <class Body>
void Stack<T>::run_branch_backward(const NormAt& norm, BranchState& state, std::uint64_t place,
                                   T* d, const Body& body) {
  core::throw_if_cancelled();
  const std::int64_t hidden = spec_.hidden;
  const T* const x = state.x.data();
  const T* const normed = state.normed.data();
  const auto norm_backward = [&](const T* from, const T* d_out, const T* plus) {
    normalise_backward(*workers_, norm_kind_, count_, hidden, from, numbers_.at(norm.weight), d_out,
                       plus, d, numbers_.gradient(norm.weight), numbers_.gradient(norm.bias));
  };
  if (!norm_first_) norm_backward(normed, d, nullptr);
  const T* dy = d;
  if (const models::Dropout dropped = dropout(place); dropped.rate > 0.0) {
    drop<T>(*workers_, dropped, first_index(), count_ * hidden, d, nullptr, d_branch_.data());
    dy = d_branch_.data();
  }
  body(norm_first_ ? normed : x, dy, d_normed_.data());
  if (norm_first_) {
    norm_backward(x, d_normed_.data(), d);
  } else {
    drop<T>(*workers_, {}, 0, count_ * hidden, d_normed_.data(), d, d);
  }
}

template <class T>
const T* Stack<T>::forward(const Workers& workers, const Numbers<T>& numbers,
                           const StackInput<T>& input, const T* x) {
  workers_ = &workers;
  numbers_ = numbers;
  input_ = input;
  count_ = input.rows * input.tokens;
  plan_ = &plans_.of(workers, numbers, position_, input);
  resize(input);
  std::copy(x, x + count_ * spec_.hidden, states_.front().attention.x.data());
  for (std::size_t index = 0; index < weights_.size(); ++index) {
    const LayerWeights& layer = weights_[index];
    LayerState& state = states_[index];
    T* const next =
        index + 1 < states_.size() ? states_[index + 1].attention.x.data() : out_.data();
    const bool crosses = cross_ == CrossAttention::present;
    run_branch(layer.attention_norm, state.attention, 3 * index,
               crosses ? state.cross.x.data() : state.feed.x.data(),
               [&](const T* in, T* y) { attend(layer, index, state, in, y); });
    if (crosses) {
      run_branch(layer.cross_norm, state.cross, 3 * index + 1, state.feed.x.data(),
                 [&](const T* in, T* y) { cross_attend(layer, state, in, y); });
    }
    run_branch(layer.feed_norm, state.feed, 3 * index + 2, next,
               [&](const T* in, T* y) { feed(layer, state, in, y); });
  }
  if (!norm_first_) return out_.data();
  normalise<T>(workers, norm_kind_, count_, spec_.hidden, out_.data(),
               numbers.at(final_norm_.weight), nullptr, normed_out_.data());
  return normed_out_.data();
}

template <class T>
void Stack<T>::backward(const Workers& workers, const Numbers<T>& numbers,
                        const StackInput<T>& input, T* d, T* d_memory) {
  workers_ = &workers;
  numbers_ = numbers;
  input_ = input;
  d_memory_ = d_memory;
  if (norm_first_) {
    normalise_backward<T>(workers, norm_kind_, count_, spec_.hidden, out_.data(),
                          numbers.at(final_norm_.weight), d, nullptr, d,
                          numbers.gradient(final_norm_.weight), nullptr);
  }
  for (std::size_t index = weights_.size(); index-- > 0;) {
    const LayerWeights& layer = weights_[index];
    LayerState& state = states_[index];
    run_branch_backward(
        layer.feed_norm, state.feed, 3 * index + 2, d,
        [&](const T* in, const T* dy, T* d_in) { feed_backward(layer, state, in, dy, d_in); });
    final_from(layer.feed_norm, layer.feed_in);
    if (cross_ == CrossAttention::present) {
      run_branch_backward(layer.cross_norm, state.cross, 3 * index + 1, d,
                          [&](const T* in, const T* dy, T* d_in) {
                            cross_attend_backward(layer, state, in, dy, d_in);
                          });
      final_from(layer.cross_norm, layer.cross_query);
    }
    run_branch_backward(layer.attention_norm, state.attention, 3 * index, d,
                        [&](const T* in, const T* dy, T* d_in) {
                          attend_backward(layer, index, state, in, dy, d_in);
                        });
    final_from(layer.attention_norm, layer.qkv);
  }
  for (std::size_t set = 0; set < plan_->tables.size(); ++set) {
    position_.compute_tables_backward(workers, numbers, set, input.tokens, plan_->tables[set]);
  }
}

template class Stack<float>;
template class Stack<double>;

}  // namespace phasor::lab
