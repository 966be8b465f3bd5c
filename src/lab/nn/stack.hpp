// A stack of transformer layers, forward and backward.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/nn/ops.hpp"
#include "lab/nn/parameters.hpp"
#include "lab/nn/plans.hpp"
#include "lab/nn/position.hpp"

namespace phasor::lab {

// The names of a stack's parameters, up to the number of the layer.
struct StackNames {
  std::string layers;    // "model.layers."
  std::string encoding;  // "model.encoding."
  std::string final_norm;
};

template <class T>
class Stack {
 public:
  Stack(const ModelSpec& spec, Mask mask, CrossAttention cross, const StackNames& names,
        ParameterList& parameters);

  [[nodiscard]] PositionEncoding& position() noexcept { return position_; }
  [[nodiscard]] const PositionEncoding& position() const noexcept { return position_; }
  // Plans for another encoding have to be made again.
  void forget_plans() noexcept { plans_.forget(); }

  // x [rows, tokens, hidden] is copied. The result is valid until the next call; backward() belongs to
  // the last forward() of Pass::train.
  //
  // input    its spans must stay valid until backward() has returned
  const T* forward(const Workers& workers, const Numbers<T>& numbers, const StackInput<T>& input,
                   const T* x);
  // d [rows, tokens, hidden]: the gradient of the result becomes that of x. d_memory, if there is a
  // memory, is added to.
  void backward(const Workers& workers, const Numbers<T>& numbers, const StackInput<T>& input, T* d,
                T* d_memory);

 private:
  struct LayerWeights {
    LinearAt qkv, attention_out, cross_query, cross_key_value, cross_out, feed_in, feed_out;
    NormAt attention_norm, cross_norm, feed_norm;
  };
  // What a branch of a layer keeps: its input, and what its norm wrote (before: the normed input;
  // after: the sum that is normed).
  struct BranchState {
    std::vector<T> x, normed;
  };
  struct LayerState {
    BranchState attention, cross, feed;
    std::vector<T> qkv, context, cross_query, cross_key_value, cross_context, feed_in, activated;
    std::vector<T> log_sums, cross_log_sums;
  };
  void add_layer(const ModelSpec& spec, const std::string& prefix, ParameterList& parameters);
  void resize(const StackInput<T>& input);

  // y = the branch of its input; and from dy, d_input.
  void attend(const LayerWeights& layer, std::size_t index, LayerState& state, const T* in, T* y);
  void attend_backward(const LayerWeights& layer, std::size_t index, LayerState& state, const T* in,
                       const T* dy, T* d_in);
  void cross_attend(const LayerWeights& layer, LayerState& state, const T* in, T* y);
  void cross_attend_backward(const LayerWeights& layer, LayerState& state, const T* in, const T* dy,
                             T* d_in);
  void feed(const LayerWeights& layer, LayerState& state, const T* in, T* y);
  void feed_backward(const LayerWeights& layer, LayerState& state, const T* in, const T* dy,
                     T* d_in);

  template <class Body>
  void run_branch(const NormAt& norm, BranchState& state, std::uint64_t place, T* out,
                  const Body& body);
  template <class Body>
  void run_branch_backward(const NormAt& norm, BranchState& state, std::uint64_t place, T* d,
                           const Body& body);

  void apply(const LinearAt& linear, std::int64_t rows, const T* x, T* y);
  // Adds the gradients of the weights; d_x, if wanted, is overwritten or added to.
  void apply_backward(const LinearAt& linear, std::int64_t rows, const T* x, const T* dy, T* d_x,
                      Add add = Add::no);
  [[nodiscard]] models::Dropout dropout(std::uint64_t place) const;
  // Of number 0 of this call's rows, among those of the whole batch.
  [[nodiscard]] std::int64_t first_index() const noexcept {
    return input_.first_row * input_.tokens * spec_.hidden;
  }
  // After the backward pass of a branch, whose parameters begin with its norm or its first matrix.
  void final_from(const NormAt& norm, const LinearAt& first) const;

  ModelSpec spec_;
  Mask mask_;
  CrossAttention cross_;
  NormKind norm_kind_;
  bool norm_first_;
  PositionEncoding position_;
  std::vector<LayerWeights> weights_;
  NormAt final_norm_;
  std::vector<LayerState> states_;
  std::vector<T> out_, normed_out_;         // of the last layer, and after the final norm
  std::vector<T> y_, d_branch_, d_normed_;  // scratch [rows, tokens, hidden]
  std::vector<T> d_wide_, d_wider_;         // scratch of the widest
  KeptPlans<T> plans_;

  // Of the call.
  const Workers* workers_ = nullptr;
  Numbers<T> numbers_;
  StackInput<T> input_;
  Plans<T>* plan_ = nullptr;
  T* d_memory_ = nullptr;
  std::int64_t count_ = 0;  // rows * tokens
};

}  // namespace phasor::lab
