// linear_attention, its backward pass and its state; sinusoidal rows; the decay curve.
#include "phasor/attention/linear.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "attention_call.hpp"
#include "busy.hpp"
#include "linear_call.hpp"
#include "module.hpp"
#include "phasor/attention/decay.hpp"
#include "phasor/encodings/encoding.hpp"
#include "spec.hpp"
#include "without_gil.hpp"

namespace phasor::python {
namespace {

using namespace nb::literals;  // NOLINT(google-build-using-namespace)
using encodings::Sinusoidal;

struct PyLinearState {
  attention::LinearState value;
  Busy busy;

  explicit PyLinearState(attention::LinearState state) : value(std::move(state)) {}
};

// The tensors and options that both directions read.
struct LinearCall {
  LinearCall(nb::handle q, nb::handle k, nb::handle v, nb::handle encoding,
             const LinearArguments& arguments, std::optional<std::int64_t> context, Order order,
             std::int64_t past)
      : q(q, "linear_attention: q"),
        k(k, "linear_attention: k"),
        v(v, "linear_attention: v"),
        q_view(heads_of(this->q, order)),
        k_view(heads_of(this->k, order)),
        v_view(heads_of(this->v, order)),
        options(arguments, k_view.batch, k_view.tokens),
        rotary(options.rotary(encoding, context, past + k_view.tokens)) {}

  Array q, k, v;
  core::ConstHeadsView q_view, k_view, v_view;
  LinearOptionsArgument options;
  std::optional<core::Rotary> rotary;
};

[[nodiscard]] nb::object linear_attend(nb::handle q, nb::handle k, nb::handle v,
                                       nb::handle encoding, bool causal, std::string_view features,
                                       std::int64_t feature_count, std::uint64_t seed,
                                       std::string_view rotates, nb::handle key_padding,
                                       nb::handle query_positions, nb::handle key_positions,
                                       std::optional<std::int64_t> context,
                                       std::string_view order_name, int threads,
                                       PyLinearState* state, nb::handle out) {
  const Order order = order_of(order_name);
  const LinearCall call(q, k, v, encoding,
                        {causal, features, feature_count, seed, rotates, key_padding,
                         query_positions, key_positions, threads},
                        context, order, state == nullptr ? 0 : state->value.tokens());
  Output output(out, call.q, output_shape(call.q, call.v_view.head_dim), "linear_attention: out");
  const core::HeadsView target = writable_heads_of(output.array(), order);
  const std::optional<Busy::Writing> writing =
      state == nullptr ? std::nullopt
                       : std::optional<Busy::Writing>(std::in_place, state->busy, "LinearState");
  without_gil([&] {
    attention::linear_attend(call.rotary, call.q_view, call.k_view, call.v_view, target,
                             call.options.get(), state == nullptr ? nullptr : &state->value);
  });
  return output.finish();
}

void linear_attend_backward(nb::handle q, nb::handle k, nb::handle v, nb::handle d_out,
                            nb::handle d_q, nb::handle d_k, nb::handle d_v, nb::handle encoding,
                            bool causal, std::string_view features, std::int64_t feature_count,
                            std::uint64_t seed, std::string_view rotates, nb::handle key_padding,
                            nb::handle query_positions, nb::handle key_positions,
                            std::optional<std::int64_t> context, std::string_view order_name,
                            int threads) {
  const Order order = order_of(order_name);
  const LinearCall call(q, k, v, encoding,
                        {causal, features, feature_count, seed, rotates, key_padding,
                         query_positions, key_positions, threads},
                        context, order, 0);
  const Array from(d_out, "linear_attention_backward: d_out");
  const Array to_q(d_q, "linear_attention_backward: d_q", Access::write);
  const Array to_k(d_k, "linear_attention_backward: d_k", Access::write);
  const Array to_v(d_v, "linear_attention_backward: d_v", Access::write);
  const core::ConstHeadsView d_out_view = heads_of(from, order);
  const core::HeadsView d_q_view = writable_heads_of(to_q, order);
  const core::HeadsView d_k_view = writable_heads_of(to_k, order);
  const core::HeadsView d_v_view = writable_heads_of(to_v, order);
  without_gil([&] {
    attention::linear_attend_backward(call.rotary, call.q_view, call.k_view, call.v_view,
                                      d_out_view, d_q_view, d_k_view, d_v_view, call.options.get());
  });
}

[[nodiscard]] Sinusoidal::Variant variant_of(std::string_view name) {
  if (name == "interleaved") return Sinusoidal::Variant::interleaved;
  if (name == "concat") return Sinusoidal::Variant::concat;
  if (name == "fairseq") return Sinusoidal::Variant::fairseq;
  refuse(message("sinusoidal: variant must be interleaved, concat or fairseq, got ", name));
}

[[nodiscard]] nb::object sinusoidal(nb::handle positions, std::int64_t dim, double base,
                                    std::string_view variant, std::string_view dtype) {
  Sinusoidal encoding;
  encoding.dim = dim;
  encoding.base = base;
  encoding.variant = variant_of(variant);
  encodings::validate(encoding);
  if (dtype != "float32" && dtype != "float64") {
    refuse(message("sinusoidal: dtype must be float32 or float64, got ", dtype));
  }
  Counted<std::int64_t> at(positions, "sinusoidal: positions");
  at.shape.push_back(dim);
  NewArray rows(positions, dtype == "float64" ? Element::f64 : Element::f32, at.shape,
                "sinusoidal: result");
  void* const data = rows.array().writable();
  without_gil([&] {
    if (dtype == "float64") {
      encodings::sinusoidal_rows(encoding, at.values, static_cast<double*>(data));
    } else {
      encodings::sinusoidal_rows(encoding, at.values, static_cast<float*>(data));
    }
  });
  return rows.finish();
}

[[nodiscard]] nb::object decay(nb::handle spec, nb::handle distances,
                               std::optional<std::int64_t> context) {
  PySpec room;
  const core::Frequencies frequencies =
      encodings::resolve_frequencies(spec_of(spec, room, "decay: spec").value, context);
  const Counted<double> at(distances, "decay: distances");
  NewArray curve(distances, Element::f64, at.shape, "decay: result");
  auto* const data = static_cast<double*>(curve.array().writable());
  without_gil(
      [&] { std::ranges::copy(attention::mean_partial_sums(frequencies, at.values), data); });
  return curve.finish();
}

void add_state(nb::module_& module) {
  nb::class_<PyLinearState>(
      module, "LinearState",
      "The sums over the keys so far; linear_attention(state=...) continues from them.",
      nb::is_final())
      .def(
          "__init__",
          [](PyLinearState* self, std::int64_t batch, std::int64_t key_heads, std::int64_t head_dim,
             std::int64_t value_dim) {
            new (self) PyLinearState(attention::LinearState(batch, key_heads, head_dim, value_dim));
          },
          "batch"_a, "key_heads"_a, "head_dim"_a, "value_dim"_a)
      .def_prop_ro("tokens", [](const PyLinearState& self) { return self.value.tokens(); })
      .def_prop_ro("nbytes", [](const PyLinearState& self) { return self.value.bytes(); })
      .def("reset",
           [](PyLinearState& self) {
             const Busy::Writing writing(self.busy, "LinearState");
             self.value.reset();
           })
      .def("fork",
           [](PyLinearState& self) {
             const Busy::Reading reading(self.busy, "LinearState");
             return PyLinearState(self.value);
           })
      .def("__repr__", [](const PyLinearState& self) {
        const attention::LinearState& state = self.value;
        return nb::str(message("LinearState(batch=", state.batch(),
                               ", key_heads=", state.key_heads(), ", head_dim=", state.head_dim(),
                               ", value_dim=", state.value_dim(), "), ", state.tokens(), " tokens")
                           .c_str());
      });
}

}  // namespace

void add_linear(nb::module_& module) {
  add_state(module);
  module.def(
      "linear_attention", &linear_attend, "q"_a.none(), "k"_a.none(), "v"_a.none(), nb::kw_only(),
      "encoding"_a = nb::none(), "causal"_a = false, "features"_a = "elu_plus_one",
      "feature_count"_a = 0, "seed"_a = 0, "rotates"_a = "features", "key_padding"_a = nb::none(),
      "query_positions"_a = nb::none(), "key_positions"_a = nb::none(), "context"_a = nb::none(),
      "order"_a = "tokens_first", "threads"_a = 0, "state"_a.none() = nb::none(),
      "out"_a = nb::none(), "Linear attention with rotation, RoFormer (19).");
  module.def("linear_attention_backward", &linear_attend_backward, "q"_a.none(), "k"_a.none(),
             "v"_a.none(), "d_out"_a.none(), nb::kw_only(), "d_q"_a.none(), "d_k"_a.none(),
             "d_v"_a.none(), "encoding"_a = nb::none(), "causal"_a = false,
             "features"_a = "elu_plus_one", "feature_count"_a = 0, "seed"_a = 0,
             "rotates"_a = "features", "key_padding"_a = nb::none(),
             "query_positions"_a = nb::none(), "key_positions"_a = nb::none(),
             "context"_a = nb::none(), "order"_a = "tokens_first", "threads"_a = 0,
             "The gradient of sum(out * d_out), written to d_q, d_k and d_v.");
  module.def("sinusoidal", &sinusoidal, "positions"_a.none(), "dim"_a, nb::kw_only(),
             "base"_a = 10000.0, "variant"_a = "interleaved", "dtype"_a = "float32",
             "RoFormer (4): the rows that are added to the input.");
  module.def("decay", &decay, "spec"_a, "distances"_a.none(), nb::kw_only(),
             "context"_a = nb::none(),
             "RoFormer (37), figure 2: the mean length of the partial sums at each distance.");
}

}  // namespace phasor::python
