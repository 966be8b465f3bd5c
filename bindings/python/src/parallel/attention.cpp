// AttentionPlan: softmax attention over ranks, planned once.
#include "phasor/parallel/attention.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "attention_call.hpp"
#include "busy.hpp"
#include "encoding.hpp"
#include "parallel/communicator.hpp"
#include "parallel/tensors.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/parallel/heads.hpp"
#include "phasor/parallel/traffic.hpp"
#include "without_gil.hpp"

namespace phasor::python {
namespace {

using namespace nb::literals;  // NOLINT(google-build-using-namespace)
using attention::AttentionPasses;

// What is chosen for the ranks, as keywords.
struct Choices {
  std::string_view order, strategy, wire;
  bool backward = false;
};

enum class Strategy : std::uint8_t { automatic, ring, heads };
[[nodiscard]] Strategy strategy_of(std::string_view name) {
  if (name == "auto") return Strategy::automatic;
  if (name == "ring") return Strategy::ring;
  if (name == "heads") return Strategy::heads;
  refuse(message("attention: strategy must be auto, ring or heads, got ", name));
}

// Collective. The strategy whose busiest rank sends fewer bytes in a run; the ring if both send as many,
// since it computes meanwhile, or if the ranks cannot divide the heads.
[[nodiscard]] Strategy better_strategy(parallel::Communicator& ranks,
                                       const attention::AttentionSizes& whole,
                                       const attention::AttentionOptions& options,
                                       const parallel::ParallelOptions& parallel, bool backward) {
  double sent[2] = {};  // by the ring, by heads
  try {
    const parallel::RunBytes heads =
        parallel::heads_bytes(whole, parallel, ranks.size(), ranks.rank());
    const parallel::RingBytes ring =
        parallel::ring_bytes(whole, options, parallel, ranks.size(), ranks.rank());
    sent[0] = static_cast<double>(ring.keys_and_values);
    sent[1] = static_cast<double>(heads.forward);
    if (backward) {
      sent[0] += static_cast<double>(ring.keys_and_values + ring.gradients);
      sent[1] += static_cast<double>(heads.backward);
    }
  } catch (const Error&) {
    sent[1] = std::numeric_limits<double>::infinity();  // the ring says what does not fit
  }
  ranks.max(sent);
  return sent[1] < sent[0] ? Strategy::heads : Strategy::ring;
}

class PyAttentionPlan {
 public:
  PyAttentionPlan(nb::handle q, nb::handle k, nb::handle v, nb::handle comm, nb::handle encoding,
                  std::optional<std::int64_t> context, const AttentionArguments& arguments,
                  const Choices& choices)
      : communicator_(communicator_of(comm)), backward_(choices.backward) {
    parallel::Communicator& ranks = ranks_of(communicator_);
    parallel::ParallelOptions options;
    Strategy strategy = Strategy::automatic;
    check_together(ranks, [&] {
      options = {token_order_of(choices.order), wire_of(choices.wire)};
      strategy = strategy_of(choices.strategy);
      shape_ = TensorShapes(Tensors("attention", q, k, v));
    });
    attention::AttentionSizes whole = shape_.sizes();
    without_gil([&] {
      ranks.agree("attention: order, strategy and backward",
                  message(choices.order, ", ", choices.strategy, ", ", backward_));
      whole.queries = whole_tokens(ranks, options.order, shape_.queries, "attention: q");
      whole.keys = whole_tokens(ranks, options.order, shape_.keys, "attention: k");
    });
    check_together(ranks, [&] {
      core::ConstHeadsView whole_q;
      whole_q.dtype = whole.arithmetic;
      whole_q.batch = whole.batch;
      whole_q.tokens = whole.queries;
      whole_q.heads = whole.heads;
      options_.emplace(arguments, whole_q, whole.keys);
      encodings::AttentionShape shape = attention::attention_shape(whole, options_->get());
      shape.context = context;
      encoding_.emplace(encoding, shape);
    });
    without_gil([&] {
      if (strategy == Strategy::automatic)
        strategy = better_strategy(ranks, whole, options_->get(), options, backward_);
      const auto make = [&]<class Plan>(std::in_place_type_t<Plan> type) {
        plan_.emplace(type, ranks, encoding_->terms(), whole, options_->get(), options,
                      backward_ ? AttentionPasses::forward_and_backward : AttentionPasses::forward);
      };
      strategy == Strategy::heads ? make(std::in_place_type<parallel::HeadsPlan>)
                                  : make(std::in_place_type<parallel::RingPlan>);
    });
  }

  [[nodiscard]] nb::object run(nb::handle q, nb::handle k, nb::handle v, nb::handle log_sum_exp,
                               nb::handle out) {
    const Busy::Writing writing(busy_, "AttentionPlan");
    std::optional<Tensors> in;
    std::optional<LogSumExp> sums;
    std::optional<Output> output;
    core::HeadsView target;
    check_together(ranks_of(communicator_), [&] {
      in.emplace("attention", q, k, v);
      shape_.check(*in);
      sums.emplace(log_sum_exp, "attention: log_sum_exp", Access::write, in->q_view);
      output.emplace(out, in->q, output_shape(in->q, in->v_view.head_dim), "attention: out");
      target = writable_heads_of(output->array(), Order::tokens_first);
    });
    without_gil([&] {
      std::visit(
          [&](auto& plan) {
            plan.run(in->q_view, in->k_view, in->v_view, target, sums->narrow(), sums->wide());
          },
          *plan_);
    });
    return output->finish();
  }

  void run_backward(nb::handle q, nb::handle k, nb::handle v, nb::handle out,
                    nb::handle log_sum_exp, nb::handle d_out, nb::handle d_q, nb::handle d_k,
                    nb::handle d_v, nb::handle d_tables) {
    const Busy::Writing writing(busy_, "AttentionPlan");
    std::optional<Tensors> in;
    std::optional<Array> out_array, d_out_array;
    std::optional<LogSumExp> sums;
    std::optional<Gradient> to_q, to_k, to_v;
    std::optional<TableGradients> tables;
    attention::AttentionForward forward;
    check_together(ranks_of(communicator_), [&] {
      if (!backward_) refuse("run_backward: the plan must be made with backward=True, got False");
      in.emplace("attention", q, k, v);
      shape_.check(*in);
      out_array.emplace(out, "run_backward: out");
      d_out_array.emplace(d_out, "run_backward: d_out");
      forward.out = output_like(*out_array, *in);
      forward.d_out = output_like(*d_out_array, *in);
      if (log_sum_exp.is_none())
        refuse("run_backward: log_sum_exp must be the array that run() wrote, got None");
      sums.emplace(log_sum_exp, "run_backward: log_sum_exp", Access::read, in->q_view);
      to_q.emplace(d_q, "run_backward: d_q", in->q, Order::tokens_first);
      to_k.emplace(d_k, "run_backward: d_k", in->k, Order::tokens_first);
      to_v.emplace(d_v, "run_backward: d_v", in->v, Order::tokens_first);
      tables.emplace(d_tables, *encoding_,
                     in->q_view.dtype == core::DType::f64 ? TableGradients::Arithmetic::f64
                                                          : TableGradients::Arithmetic::f32);
    });
    forward.log_sum_exp = sums->narrow();
    forward.wide_log_sum_exp = sums->wide();
    without_gil([&] {
      std::visit(
          [&](auto& plan) {
            plan.run_backward(in->q_view, in->k_view, in->v_view, forward,
                              {to_q->view(), to_k->view(), to_v->view(), tables->terms()});
          },
          *plan_);
      tables->finish();
    });
  }

  void update_tables() {
    const Busy::Writing writing(busy_, "AttentionPlan");
    without_gil([&] { std::visit([](auto& plan) { plan.update_tables(); }, *plan_); });
  }

  [[nodiscard]] std::string_view strategy() const {
    return std::holds_alternative<parallel::HeadsPlan>(*plan_) ? "heads" : "ring";
  }
  [[nodiscard]] std::int64_t bytes_sent() const {
    return std::visit([](const auto& plan) { return plan.bytes_sent(); }, *plan_);
  }
  [[nodiscard]] std::size_t bytes() const {
    return std::visit([](const auto& plan) { return plan.bytes(); }, *plan_);
  }
  [[nodiscard]] std::int64_t tokens() const {
    return std::visit([](const auto& plan) { return plan.queries().tokens(); }, *plan_);
  }

 private:
  nb::object communicator_;
  bool backward_;
  Busy busy_;
  TensorShapes shape_;
  std::optional<OptionsArgument> options_;
  std::optional<EncodingArgument> encoding_;  // the tables that the plan reads
  std::optional<std::variant<parallel::RingPlan, parallel::HeadsPlan>> plan_;
};

}  // namespace

void add_attention_plan(nb::module_& module) {
  nb::class_<PyAttentionPlan>(module, "AttentionPlan",
                              "Softmax attention over ranks, planned once and run many times.",
                              nb::is_final())
      .def(
          "__init__",
          [](PyAttentionPlan* self, nb::handle q, nb::handle k, nb::handle v, nb::handle comm,
             nb::handle encoding, bool causal, std::optional<std::int64_t> window,
             std::optional<double> scale, double soft_cap, nb::handle key_padding,
             nb::handle query_boundaries, nb::handle key_boundaries, nb::handle query_positions,
             nb::handle key_positions, nb::handle query_segments, nb::handle key_segments,
             std::optional<std::int64_t> context, std::string_view order, std::string_view strategy,
             std::string_view wire, std::string_view angles, int threads, bool backward) {
            AttentionArguments arguments;
            arguments.causal = causal;
            arguments.window = window;
            arguments.scale = scale;
            arguments.soft_cap = soft_cap;
            arguments.key_padding = key_padding;
            arguments.query_boundaries = query_boundaries;
            arguments.key_boundaries = key_boundaries;
            arguments.query_positions = query_positions;
            arguments.key_positions = key_positions;
            arguments.query_segments = query_segments;
            arguments.key_segments = key_segments;
            arguments.angles = angles;
            arguments.threads = threads;
            new (self) PyAttentionPlan(q, k, v, comm, encoding, context, arguments,
                                       {order, strategy, wire, backward});
          },
          "q"_a.none(), "k"_a.none(), "v"_a.none(), "comm"_a.none(), nb::kw_only(),
          "encoding"_a = nb::none(), "causal"_a = false, "window"_a = nb::none(),
          "scale"_a = nb::none(), "soft_cap"_a = 0.0, "key_padding"_a = nb::none(),
          "query_boundaries"_a = nb::none(), "key_boundaries"_a = nb::none(),
          "query_positions"_a = nb::none(), "key_positions"_a = nb::none(),
          "query_segments"_a = nb::none(), "key_segments"_a = nb::none(), "context"_a = nb::none(),
          "order"_a = "zigzag", "strategy"_a = "auto", "wire"_a = "f32", "angles"_a = "exact",
          "threads"_a = 0, "backward"_a = false)
      .def("run", &PyAttentionPlan::run, "q"_a.none(), "k"_a.none(), "v"_a.none(), nb::kw_only(),
           "log_sum_exp"_a = nb::none(), "out"_a = nb::none())
      .def("run_backward", &PyAttentionPlan::run_backward, "q"_a.none(), "k"_a.none(), "v"_a.none(),
           "out"_a.none(), "log_sum_exp"_a.none(), "d_out"_a.none(), nb::kw_only(), "d_q"_a.none(),
           "d_k"_a.none(), "d_v"_a.none(), "d_tables"_a = nb::none())
      .def("update_tables", &PyAttentionPlan::update_tables)
      .def_prop_ro("strategy", &PyAttentionPlan::strategy)
      .def_prop_ro("tokens", &PyAttentionPlan::tokens)
      .def_prop_ro("bytes_sent", &PyAttentionPlan::bytes_sent)
      .def_prop_ro("nbytes", &PyAttentionPlan::bytes);
}

}  // namespace phasor::python
