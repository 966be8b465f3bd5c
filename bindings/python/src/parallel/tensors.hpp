// q, k and v of a rank, and the shapes that a plan was made for.
#pragma once

#include <string>

#include "arrays.hpp"
#include "phasor/attention/linear.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::python {

// This rank's shards [batch, tokens, heads, head_dim], or without batch.
struct Tensors {
  // throws   Error(shape_mismatch) unless k and v have the same batch, tokens and heads
  Tensors(const char* of, nb::handle of_q, nb::handle of_k, nb::handle of_v)
      : names{std::string(of) + ": q", std::string(of) + ": k", std::string(of) + ": v"},
        q(of_q, names[0].c_str()),
        k(of_k, names[1].c_str()),
        v(of_v, names[2].c_str()),
        q_view(heads_of(q, Order::tokens_first)),
        k_view(heads_of(k, Order::tokens_first)),
        v_view(heads_of(v, Order::tokens_first)) {
    if (q_view.batch == k_view.batch && k_view.batch == v_view.batch &&
        k_view.tokens == v_view.tokens && k_view.heads == v_view.heads &&
        q_view.head_dim == k_view.head_dim) {
      return;
    }
    refuse(ErrorCode::shape_mismatch,
           message(of,
                   ": q, k and v must have one batch, q and k one head_dim, k and v the same "
                   "tokens and heads, got ",
                   q.text(), ", ", k.text(), " and ", v.text()));
  }

  std::string names[3];
  Array q, k, v;
  core::ConstHeadsView q_view, k_view, v_view;
};

// The sizes of this rank's tensors.
struct TensorShapes {
  std::int64_t batch = 0, queries = 0, keys = 0, heads = 0, key_heads = 0, head_dim = 0,
               value_dim = 0;
  core::DType arithmetic = core::DType::f32;

  TensorShapes() = default;
  explicit TensorShapes(const Tensors& of)
      : batch(of.q_view.batch),
        queries(of.q_view.tokens),
        keys(of.k_view.tokens),
        heads(of.q_view.heads),
        key_heads(of.k_view.heads),
        head_dim(of.q_view.head_dim),
        value_dim(of.v_view.head_dim),
        arithmetic(of.q_view.dtype == core::DType::f64 ? core::DType::f64 : core::DType::f32) {}
  bool operator==(const TensorShapes&) const = default;

  // throws   Error(shape_mismatch) for tensors of other sizes than these
  void check(const Tensors& given) const {
    const TensorShapes got(given);
    if (got == *this) return;
    refuse(ErrorCode::shape_mismatch,
           message("the plan is for q ", text(queries, heads, head_dim), ", k ",
                   text(keys, key_heads, head_dim), " and v ", text(keys, key_heads, value_dim),
                   arithmetic == core::DType::f64 ? " of float64" : " of float32 or less", ", got ",
                   given.q.text(), ", ", given.k.text(), " and ", given.v.text()));
  }
  [[nodiscard]] attention::AttentionSizes sizes() const {
    return {batch, queries, keys, heads, key_heads, head_dim, value_dim, arithmetic};
  }

 private:
  [[nodiscard]] std::string text(std::int64_t tokens, std::int64_t of_heads,
                                 std::int64_t dim) const {
    const std::int64_t shape[] = {batch, tokens, of_heads, dim};
    return core::shape_text(shape);
  }
};

// An array of the output's shape.
//
// throws   Error(shape_mismatch)
[[nodiscard]] inline core::ConstHeadsView output_like(const Array& array, const Tensors& in) {
  const core::ConstHeadsView view = heads_of(array, Order::tokens_first);
  const core::ConstHeadsView& q = in.q_view;
  if (view.batch == q.batch && view.tokens == q.tokens && view.heads == q.heads &&
      view.head_dim == in.v_view.head_dim) {
    return view;
  }
  refuse(ErrorCode::shape_mismatch,
         message(array.where(), " must be [", q.batch, ", ", q.tokens, ", ", q.heads, ", ",
                 in.v_view.head_dim, "], got ", array.text()));
}

}  // namespace phasor::python
