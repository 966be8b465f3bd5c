// LinearAttentionPlan: linear attention over ranks, planned once.
#include "phasor/parallel/linear.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <optional>
#include <string_view>

#include "attention_call.hpp"
#include "busy.hpp"
#include "linear_call.hpp"
#include "parallel/communicator.hpp"
#include "parallel/tensors.hpp"
#include "without_gil.hpp"

namespace phasor::python {
namespace {

using namespace nb::literals;  // NOLINT(google-build-using-namespace)
using parallel::TokenOrder;

class PyLinearPlan {
 public:
  PyLinearPlan(nb::handle q, nb::handle k, nb::handle v, nb::handle comm, nb::handle encoding,
               std::optional<std::int64_t> context, const LinearArguments& arguments, bool backward)
      : communicator_(communicator_of(comm)), backward_(backward) {
    parallel::Communicator& ranks = ranks_of(communicator_);
    check_together(ranks, [&] { shape_ = TensorShapes(Tensors("linear_attention", q, k, v)); });
    std::int64_t queries = 0, keys = 0;
    without_gil([&] {
      queries = whole_tokens(ranks, TokenOrder::contiguous, shape_.queries, "linear_attention: q");
      keys = whole_tokens(ranks, TokenOrder::contiguous, shape_.keys, "linear_attention: k");
    });
    std::optional<LinearOptionsArgument> options;
    std::optional<core::Rotary> rotary;
    check_together(ranks, [&] {
      options.emplace(arguments, shape_.batch, keys);
      rotary = options->rotary(encoding, context, keys);
    });
    attention::LinearSizes whole;
    whole.batch = shape_.batch;
    whole.queries = queries;
    whole.keys = keys;
    whole.heads = shape_.heads;
    whole.key_heads = shape_.key_heads;
    whole.head_dim = shape_.head_dim;
    whole.value_dim = shape_.value_dim;
    whole.dtype = shape_.arithmetic;
    without_gil([&] {
      plan_.emplace(ranks, rotary, whole, options->get(),
                    backward ? attention::AttentionPasses::forward_and_backward
                             : attention::AttentionPasses::forward);
    });
  }

  [[nodiscard]] nb::object run(nb::handle q, nb::handle k, nb::handle v, nb::handle out) {
    const Busy::Writing writing(busy_, "LinearAttentionPlan");
    std::optional<Tensors> in;
    std::optional<Output> output;
    core::HeadsView target;
    check_together(ranks_of(communicator_), [&] {
      in.emplace("linear_attention", q, k, v);
      shape_.check(*in);
      output.emplace(out, in->q, output_shape(in->q, in->v_view.head_dim), "linear_attention: out");
      target = writable_heads_of(output->array(), Order::tokens_first);
    });
    without_gil([&] { plan_->run(in->q_view, in->k_view, in->v_view, target); });
    return output->finish();
  }

  void run_backward(nb::handle q, nb::handle k, nb::handle v, nb::handle d_out, nb::handle d_q,
                    nb::handle d_k, nb::handle d_v) {
    const Busy::Writing writing(busy_, "LinearAttentionPlan");
    std::optional<Tensors> in;
    std::optional<Array> d_out_array;
    std::optional<Gradient> to_q, to_k, to_v;
    core::ConstHeadsView from;
    check_together(ranks_of(communicator_), [&] {
      if (!backward_) refuse("run_backward: the plan must be made with backward=True, got False");
      in.emplace("linear_attention", q, k, v);
      shape_.check(*in);
      d_out_array.emplace(d_out, "run_backward: d_out");
      from = output_like(*d_out_array, *in);
      to_q.emplace(d_q, "run_backward: d_q", in->q, Order::tokens_first);
      to_k.emplace(d_k, "run_backward: d_k", in->k, Order::tokens_first);
      to_v.emplace(d_v, "run_backward: d_v", in->v, Order::tokens_first);
    });
    without_gil([&] {
      plan_->run_backward(in->q_view, in->k_view, in->v_view, from, to_q->view(), to_k->view(),
                          to_v->view());
    });
  }

  [[nodiscard]] std::int64_t tokens() const noexcept { return plan_->queries().tokens(); }
  [[nodiscard]] std::int64_t bytes_sent() const noexcept { return plan_->bytes_sent(); }
  [[nodiscard]] std::int64_t bytes() const noexcept { return plan_->bytes(); }

 private:
  nb::object communicator_;
  bool backward_;
  Busy busy_;
  TensorShapes shape_;
  std::optional<parallel::ParallelLinearPlan> plan_;
};

}  // namespace

void add_linear_plan(nb::module_& module) {
  nb::class_<PyLinearPlan>(module, "LinearAttentionPlan",
                           "Linear attention over ranks, planned once and run many times.",
                           nb::is_final())
      .def(
          "__init__",
          [](PyLinearPlan* self, nb::handle q, nb::handle k, nb::handle v, nb::handle comm,
             nb::handle encoding, bool causal, std::string_view features,
             std::int64_t feature_count, std::uint64_t seed, std::string_view rotates,
             nb::handle key_padding, nb::handle query_positions, nb::handle key_positions,
             std::optional<std::int64_t> context, int threads, bool backward) {
            new (self) PyLinearPlan(q, k, v, comm, encoding, context,
                                    {causal, features, feature_count, seed, rotates, key_padding,
                                     query_positions, key_positions, threads},
                                    backward);
          },
          "q"_a.none(), "k"_a.none(), "v"_a.none(), "comm"_a.none(), nb::kw_only(),
          "encoding"_a = nb::none(), "causal"_a = false, "features"_a = "elu_plus_one",
          "feature_count"_a = 0, "seed"_a = 0, "rotates"_a = "features",
          "key_padding"_a = nb::none(), "query_positions"_a = nb::none(),
          "key_positions"_a = nb::none(), "context"_a = nb::none(), "threads"_a = 0,
          "backward"_a = false)
      .def("run", &PyLinearPlan::run, "q"_a.none(), "k"_a.none(), "v"_a.none(), nb::kw_only(),
           "out"_a = nb::none())
      .def("run_backward", &PyLinearPlan::run_backward, "q"_a.none(), "k"_a.none(), "v"_a.none(),
           "d_out"_a.none(), nb::kw_only(), "d_q"_a.none(), "d_k"_a.none(), "d_v"_a.none())
      .def_prop_ro("tokens", &PyLinearPlan::tokens)
      .def_prop_ro("bytes_sent", &PyLinearPlan::bytes_sent)
      .def_prop_ro("nbytes", &PyLinearPlan::bytes);
}

}  // namespace phasor::python
