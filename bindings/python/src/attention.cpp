// attention and attention_backward.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <string_view>

#include "arrays.hpp"
#include "attention_call.hpp"
#include "encoding.hpp"
#include "module.hpp"
#include "phasor/attention/softmax.hpp"
#include "without_gil.hpp"

namespace phasor::python {
namespace {

using namespace nb::literals;  // NOLINT(google-build-using-namespace)

// The arguments of both directions.
struct Call {
  Order order;
  Array q, k, v;
  core::ConstHeadsView q_view, k_view, v_view;
  OptionsArgument options;
  EncodingArgument encoding;

  Call(nb::handle of_q, nb::handle of_k, nb::handle of_v, nb::handle of_encoding,
       std::optional<std::int64_t> context, std::string_view order_name,
       const AttentionArguments& arguments)
      : order(order_of(order_name)),
        q(of_q, "attention: q"),
        k(of_k, "attention: k"),
        v(of_v, "attention: v"),
        q_view(heads_of(q, order)),
        k_view(heads_of(k, order)),
        v_view(heads_of(v, order)),
        options(arguments, q_view, k_view.tokens),
        encoding(of_encoding, shape_for(context)) {}

 private:
  [[nodiscard]] encodings::AttentionShape shape_for(std::optional<std::int64_t> context) const {
    encodings::AttentionShape shape =
        attention::attention_shape(q_view, k_view, v_view, options.get());
    shape.context = context;
    return shape;
  }
};

[[nodiscard]] nb::object attend(
    nb::handle q, nb::handle k, nb::handle v, nb::handle encoding, bool causal,
    std::optional<std::int64_t> window, std::optional<std::int64_t> query_offset,
    std::optional<double> scale, double soft_cap, nb::handle mask, nb::handle key_lengths,
    nb::handle key_padding, nb::handle query_boundaries, nb::handle key_boundaries,
    nb::handle query_positions, nb::handle key_positions, nb::handle query_segments,
    nb::handle key_segments, std::optional<std::int64_t> context, std::string_view order_name,
    std::string_view angles, int threads, nb::handle log_sum_exp, nb::handle out) {
  const Call in(q, k, v, encoding, context, order_name,
                {causal, window, scale, soft_cap, mask, key_lengths, key_padding, query_boundaries,
                 key_boundaries, query_positions, key_positions, query_segments, key_segments,
                 angles, threads, query_offset});
  const LogSumExp sums(log_sum_exp, "attention: log_sum_exp", Access::write, in.q_view);
  Output output(out, in.q, output_shape(in.q, in.v_view.head_dim), "attention: out");
  const core::HeadsView target = writable_heads_of(output.array(), in.order);
  attention::AttentionExtras extras;
  extras.log_sum_exp = sums.narrow();
  extras.wide_log_sum_exp = sums.wide();
  without_gil([&] {
    attention::attend(in.encoding.terms(), in.q_view, in.k_view, in.v_view, target,
                      in.options.get(), extras);
  });
  return output.finish();
}

void attend_backward(nb::handle q, nb::handle k, nb::handle v, nb::handle out,
                     nb::handle log_sum_exp, nb::handle d_out, nb::handle d_q, nb::handle d_k,
                     nb::handle d_v, nb::handle d_tables, nb::handle encoding, bool causal,
                     std::optional<std::int64_t> window, std::optional<std::int64_t> query_offset,
                     std::optional<double> scale, double soft_cap, nb::handle mask,
                     nb::handle key_lengths, nb::handle key_padding, nb::handle query_boundaries,
                     nb::handle key_boundaries, nb::handle query_positions,
                     nb::handle key_positions, nb::handle query_segments, nb::handle key_segments,
                     std::optional<std::int64_t> context, std::string_view order_name,
                     std::string_view angles, int threads) {
  const Call in(q, k, v, encoding, context, order_name,
                {causal, window, scale, soft_cap, mask, key_lengths, key_padding, query_boundaries,
                 key_boundaries, query_positions, key_positions, query_segments, key_segments,
                 angles, threads, query_offset});
  const Array out_array(out, "attention_backward: out");
  const Array d_out_array(d_out, "attention_backward: d_out");
  const LogSumExp sums(log_sum_exp, "attention_backward: log_sum_exp", Access::read, in.q_view);
  const Gradient to_q(d_q, "attention_backward: d_q", in.q, in.order);
  const Gradient to_k(d_k, "attention_backward: d_k", in.k, in.order);
  const Gradient to_v(d_v, "attention_backward: d_v", in.v, in.order);
  TableGradients tables(d_tables, in.encoding,
                        in.q_view.dtype == core::DType::f64 ? TableGradients::Arithmetic::f64
                                                            : TableGradients::Arithmetic::f32);
  attention::AttentionForward forward;
  forward.out = heads_of(out_array, in.order);
  forward.d_out = heads_of(d_out_array, in.order);
  forward.log_sum_exp = sums.narrow();
  forward.wide_log_sum_exp = sums.wide();
  const attention::AttentionGradients gradients{to_q.view(), to_k.view(), to_v.view(),
                                                tables.terms()};
  without_gil([&] {
    attention::attend_backward(in.encoding.terms(), in.q_view, in.k_view, in.v_view, forward,
                               gradients, in.options.get());
    tables.finish();
  });
}

}  // namespace

void add_attention(nb::module_& module) {
  module.def("attention", &attend, "q"_a.none(), "k"_a.none(), "v"_a.none(), nb::kw_only(),
             "encoding"_a = nb::none(), "causal"_a = false, "window"_a = nb::none(),
             "query_offset"_a = nb::none(), "scale"_a = nb::none(), "soft_cap"_a = 0.0,
             "mask"_a = nb::none(), "key_lengths"_a = nb::none(), "key_padding"_a = nb::none(),
             "query_boundaries"_a = nb::none(), "key_boundaries"_a = nb::none(),
             "query_positions"_a = nb::none(), "key_positions"_a = nb::none(),
             "query_segments"_a = nb::none(), "key_segments"_a = nb::none(),
             "context"_a = nb::none(), "order"_a = "tokens_first", "angles"_a = "exact",
             "threads"_a = 0, "log_sum_exp"_a = nb::none(), "out"_a = nb::none(),
             "Softmax attention with any encoding, computed in tiles: no N x N matrix.");
  module.def("attention_backward", &attend_backward, "q"_a.none(), "k"_a.none(), "v"_a.none(),
             "out"_a.none(), "log_sum_exp"_a.none(), "d_out"_a.none(), nb::kw_only(),
             "d_q"_a.none(), "d_k"_a.none(), "d_v"_a.none(), "d_tables"_a = nb::none(),
             "encoding"_a = nb::none(), "causal"_a = false, "window"_a = nb::none(),
             "query_offset"_a = nb::none(), "scale"_a = nb::none(), "soft_cap"_a = 0.0,
             "mask"_a = nb::none(), "key_lengths"_a = nb::none(), "key_padding"_a = nb::none(),
             "query_boundaries"_a = nb::none(), "key_boundaries"_a = nb::none(),
             "query_positions"_a = nb::none(), "key_positions"_a = nb::none(),
             "query_segments"_a = nb::none(), "key_segments"_a = nb::none(),
             "context"_a = nb::none(), "order"_a = "tokens_first", "angles"_a = "exact",
             "threads"_a = 0,
             "The gradient of sum(out * d_out), written to d_q, d_k and d_v and added to d_tables "
             "(by member name, each like its table; with several encodings \"index.member\").");
}

}  // namespace phasor::python
