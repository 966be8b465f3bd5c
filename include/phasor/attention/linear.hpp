// Linear attention with rotation, RoFormer (17)-(19): no softmax over keys, so that the sums over
// the past are a state of fixed size.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "phasor/attention/softmax.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "phasor/export.h"

namespace phasor::attention {

enum class FeatureMap : std::uint8_t {
  elu_plus_one,  // phi(x) = elu(x) + 1, for queries and keys
  softmax_exp,   // queries: softmax over the features; keys: exp
  // Performer's positive orthogonal random features (FAVOR+): M numbers from the head_dim = d of x,
  //   phi(x)_i = exp(w_i . x' - |x'|^2 / 2) / sqrt(M),   x' = x d^(-1/4),   w_i = favor_weights()
  // so that the mean of phi(q) . phi(k) over W is exp(q . k / sqrt(d)): (18) approximates softmax
  // attention, with an error that falls as 1 / sqrt(M).
  favor,
};
[[nodiscard]] PHASOR_API std::string_view name_of(FeatureMap features) noexcept;

// What the rotary rotates.
enum class Rotates : std::uint8_t {
  features,  // phi(q) and phi(k), in the numerator: RoFormer (19)
  // q and k before the map, in numerator and denominator: o_m = sum_n phi(R_m q_m) . phi(R_n k_n) v_n /
  // sum_n phi(R_m q_m) . phi(R_n k_n). With FeatureMap::favor it approximates softmax attention with
  // RoPE. PairLayout::interleaved_to_half rotates like interleaved: features keep their order.
  inputs,
};
[[nodiscard]] PHASOR_API std::string_view name_of(Rotates rotates) noexcept;

// The largest M of FeatureMap::favor.
inline constexpr std::int64_t kMaxFeatureCount = 65536;

// W [feature_count, head_dim] of FeatureMap::favor. Each block of head_dim rows is orthogonal, a random
// rotation: rows of Gaussian numbers made orthogonal one after the other (Gram-Schmidt). Each row has
// the length of an independent Gaussian vector; the last block is cut. More features of one seed begin
// with the same rows. Computed in float64 from a counter-based generator and rounded to float32, which
// every machine does alike.
//
// throws   Error(invalid_argument | out_of_range) unless 1 <= feature_count <= kMaxFeatureCount and
//          head_dim >= 1; std::bad_alloc
// cost     about 2 feature_count head_dim^2 multiplications
[[nodiscard]] PHASOR_API std::vector<float> favor_weights(std::int64_t feature_count,
                                                          std::int64_t head_dim,
                                                          std::uint64_t seed);

struct LinearOptions {
  Causality causality = Causality::none;
  FeatureMap features = FeatureMap::elu_plus_one;
  // None: keys at 0, 1, ... (with a state: after its tokens), queries aligned bottom-right as in
  // Causality::bottom_right.
  std::optional<core::Positions> query_positions = std::nullopt, key_positions = std::nullopt;
  // [batch, keys]: 0 leaves the key out of both sums; positions do not change.
  std::span<const std::uint8_t> key_padding = {};
  // As core::RotateOptions; the work is divided by (batch row, head). Results have the same bits with
  // any number of threads.
  int threads = 0;
  core::InstructionSet isa = core::InstructionSet::best;
  // FeatureMap::favor: M, and the seed of W. A program keeps its last eight W of
  // up to 16 MiB.
  std::int64_t feature_count = 0;
  std::uint64_t seed = 0;
  Rotates rotates = Rotates::features;
};

// The sums over the keys so far, for each batch row and key head: sum_n (R_n phi(k_n)) v_n^T
// [head_dim, value_dim] and sum_n phi(k_n) [head_dim]; head_dim is the width of phi, which is the
// feature_count of FeatureMap::favor. Each float32 sum keeps its rounding error (Kahan summation), so
// that the error does not grow with the number of tokens. Keys of FeatureMap::softmax_exp and favor are
// kept as exp(...) 2^-e with one growing e per key head, which cancels in (19): exp(200) does not
// overflow. A copy is a fork: both continue from the same past.
class PHASOR_API LinearState {
 public:
  // throws   Error(shape_mismatch) unless batch >= 0 and the other sizes are positive
  LinearState(std::int64_t batch, std::int64_t key_heads, std::int64_t head_dim,
              std::int64_t value_dim);

  [[nodiscard]] std::int64_t batch() const noexcept { return batch_; }
  [[nodiscard]] std::int64_t key_heads() const noexcept { return key_heads_; }
  [[nodiscard]] std::int64_t head_dim() const noexcept { return head_dim_; }
  [[nodiscard]] std::int64_t value_dim() const noexcept { return value_dim_; }
  // Tokens of all calls so far, padding included.
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  // The feature map of the earlier calls; none before the first.
  [[nodiscard]] std::optional<FeatureMap> features() const noexcept { return features_; }
  // Memory held, the same for any number of tokens.
  [[nodiscard]] std::int64_t bytes() const noexcept {
    return static_cast<std::int64_t>((sums_.size() + exponents_.size()) * sizeof(float));
  }
  // Back to the state before the first call.
  void reset() noexcept;

 private:
  friend struct LinearStateAccess;
  std::int64_t batch_, key_heads_, head_dim_, value_dim_, tokens_ = 0;
  std::optional<FeatureMap> features_ = std::nullopt;
  // Of the earlier calls: all keys of a state have one map.
  std::int64_t input_dim_ = 0;
  std::uint64_t seed_ = 0;
  Rotates rotates_ = Rotates::features;
  std::vector<float> sums_;       // by batch row and key head
  std::vector<float> exponents_;  // e, by batch row and key head
};

// RoFormer (19):  o_m = sum_n (R_m phi(q_m)) . (R_n phi(k_n)) v_n / sum_n phi(q_m) . phi(k_n)
//
// The numerator is rotated, the denominator is not: it stays positive. Without a rotary this is
// (18); Rotates::inputs rotates q and k instead. Not causal: two products. Causal: chunks of tokens, each against the state so far and
// itself. With `state` the call continues the sequence: keys of earlier calls count, and the new
// keys are added to the state.
//
// shape    q [batch, Nq, heads, d], k [batch, Nk, key_heads, d], v [batch, Nk, key_heads, dv],
//          out [batch, Nq, heads, dv]; heads a multiple of key_heads: query head h reads key head
//          h / (heads / key_heads). f32, f16 or bf16, in any mix: arithmetic is float32. Or all
//          f64: arithmetic is float64
// rotary   for a head_dim of the width that it rotates: that of phi (favor: feature_count), or with
//          Rotates::inputs that of q
// state    needs Causality::bottom_right and Nq = Nk; sizes, feature map, seed and Rotates as in earlier
//          calls; not with f64: its sums are float32
// rows     a query that sees no key, or whose denominator is 0, gets zeros. NaN in q reaches its own
//          row, in k or v the queries that see the key
// range    phi below 2^-100 counts as 0: elu_plus_one at x < -69; softmax_exp's keys more than 55
//          below the largest that the query's key head has seen, its queries 69 below their
//          largest; favor alike, with w_i . x' - |x'|^2 / 2 for the feature, and a key of |x'|^2 >
//          2.2e7 is 0 too. f64: what is below the smallest double, 745 instead of 55 and 69
// error    |out - exact| <= kLinearError * sum_n |R_m phi(q_m)| |R_n phi(k_n)| |v_n| / (the
//          denominator), for any number of tokens, in one call or many; f16 and bf16: then one
//          rounding to nearest even; f64: kLinearErrorF64 instead. favor: times 1 + a, a being the
//          largest |w_i| |x'| + |x'|^2 / 2 of a query or key, whose rounding is an error of the exponent
// throws   Error(invalid_argument | shape_mismatch | unsupported | out_of_range) with the sizes,
//          before out or state is written; out must not overlap an input; unsupported: f64 mixed with
//          another type. std::bad_alloc: the state is unchanged, out holds any numbers
// cost     about 3 d dv multiplications a token and head, d being the width of phi; favor: and d
//          head_dim more; memory as LinearPlan::bytes(). f64: plain loops without vector instructions
PHASOR_API void linear_attend(const std::optional<core::Rotary>& rotary, core::ConstHeadsView q,
                              core::ConstHeadsView k, core::ConstHeadsView v, core::HeadsView out,
                              const LinearOptions& options = {}, LinearState* state = nullptr);

// Feature map, rotation and the sums of a chunk round by a few epsilon(f32) of what is summed; the
// state's Kahan sums make the bound independent of the number of chunks.
inline constexpr double kLinearError = 1e-6;
// A sum over N tokens rounds by N epsilon(f64) / 2 at most, and by sqrt(N) of that if the signs of
// the errors are random: up to 100000 tokens.
inline constexpr double kLinearErrorF64 = 1e-13;

// The gradient of sum(out * d_out), overwritten in d_q, d_k and d_v. With g_m = d_out_m /
// denominator and D_m = o_m . g_m, and sums over m that run over the queries that see n:
//
//   d phi(q_m) = R_m^T sum_n (R_n phi(k_n)) (v_n . g_m) - D_m sum_n phi(k_n)
//   d phi(k_n) = R_n^T sum_m (R_m phi(q_m)) (g_m . v_n) - sum_m D_m phi(q_m)
//   d v_n      = sum_m g_m (R_m phi(q_m) . R_n phi(k_n))
//
// and from phi to x: d x = d phi phi'(x); favor: d x' = sum_i d phi_i phi_i (w_i - x'), the same for a
// query without x', since (19) does not depend on the length of phi(q).
//
// Queries use the sums of the forward pass, keys the mirrored sums from the last token backward;
// nothing of size Nq x Nk and no state per token is kept.
//
// shape    as linear_attend; d_out like out, d_q like q, d_k like k, d_v like v; f32, f16 or bf16,
//          or all f64
// throws   as linear_attend, before a gradient is written; std::bad_alloc: gradients hold any numbers
// memory   two floats per query and head, sixteen bytes per key and key head at most, and two states
//          per key head; f64: q and k three times more
PHASOR_API void linear_attend_backward(const std::optional<core::Rotary>& rotary,
                                       core::ConstHeadsView q, core::ConstHeadsView k,
                                       core::ConstHeadsView v, core::ConstHeadsView d_out,
                                       core::HeadsView d_q, core::HeadsView d_k,
                                       core::HeadsView d_v, const LinearOptions& options = {});

// The sizes of q [batch, queries, heads, head_dim], k [batch, keys, key_heads, head_dim] and
// v [batch, keys, key_heads, value_dim].
struct LinearSizes {
  std::int64_t batch = 1, queries = 0, keys = 0;
  std::int64_t heads = 1, key_heads = 1;
  std::int64_t head_dim = 0, value_dim = 0;
  // f64: every view is f64. Otherwise views are f32, f16 or bf16 in any mix.
  core::DType dtype = core::DType::f32;
};
// throws   Error(invalid_argument | shape_mismatch | unsupported) unless the views fit each other
[[nodiscard]] PHASOR_API LinearSizes linear_sizes(const core::ConstHeadsView& q,
                                                  const core::ConstHeadsView& k,
                                                  const core::ConstHeadsView& v);

// Which calls of a plan have their workspace.
enum class LinearUse : std::uint8_t {
  forward,   // run() without a state
  stream,    // run() with a state
  backward,  // run_backward()
  training,  // forward and backward
};
[[nodiscard]] PHASOR_API std::string_view name_of(LinearUse use) noexcept;

struct LinearPlanParts;

// Linear attention of fixed sizes, made once and run many times: a plan checks sizes, options and
// positions, computes the rows of cos and sin (up to 8 MiB; longer sequences and streams compute them
// chunk by chunk) and owns the workspace. Rotary and positions are copied. options.key_padding is
// not: every run reads it. One run at a time.
class PHASOR_API LinearPlan {
 public:
  // throws   Error(invalid_argument | shape_mismatch | unsupported | out_of_range), std::bad_alloc
  LinearPlan(const std::optional<core::Rotary>& rotary, const LinearSizes& sizes,
             const LinearOptions& options = {}, LinearUse use = LinearUse::forward);
  ~LinearPlan();
  LinearPlan(LinearPlan&&) noexcept;
  LinearPlan& operator=(LinearPlan&&) noexcept;

  [[nodiscard]] const LinearSizes& sizes() const noexcept;
  [[nodiscard]] LinearUse use() const noexcept;
  // Memory held: rows, positions and workspace.
  [[nodiscard]] std::int64_t bytes() const noexcept;

  // As linear_attend() and linear_attend_backward() of the plan's rotary and options.
  //
  // throws   Error(invalid_argument | shape_mismatch | unsupported) before anything is written: views
  //          of other sizes, overlapping outputs, a call that use() does not include; with a state
  //          also Error(out_of_range)
  // cost     no allocation
  void run(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
           const core::ConstHeadsView& v, const core::HeadsView& out);
  void run(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
           const core::ConstHeadsView& v, const core::HeadsView& out, LinearState& state);
  void run_backward(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                    const core::ConstHeadsView& v, const core::ConstHeadsView& d_out,
                    const core::HeadsView& d_q, const core::HeadsView& d_k,
                    const core::HeadsView& d_v);

 private:
  std::unique_ptr<LinearPlanParts> parts_;
};

}  // namespace phasor::attention
