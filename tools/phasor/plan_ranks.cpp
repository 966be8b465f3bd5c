#include "plan_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "config_source.hpp"
#include "output.hpp"
#include "phasor/porting/shard_plan.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

std::string seconds_text(double seconds) {
  return seconds < 1000.0 ? fmt::format("{:.3g}", seconds) : fmt::format("{:.0f}", seconds);
}

void print_strategies(const porting::ShardPlan& plan) {
  print_out("\n  {:<16}{:>22}{:>22}{:>8}{:>27}\n", "", "sent per rank, layer", "memory per rank",
            "", "seconds per layer, both");
  print_out("  {:<16}{:>11}{:>11}{:>11}{:>11}{:>8}{:>9}{:>9}{:>9}\n", "strategy", "forward",
            "backward", "attention", "KV cache", "balance", "compute", "transfer", "total");
  for (const porting::ShardStrategy& one : plan.strategies) {
    if (!one.problem.empty()) continue;
    print_out("  {:<16}{:>11}{:>11}{:>11}{:>11}{:>8.3g}{:>9}{:>9}{:>9}\n", one.name,
              size_text(one.forward_bytes), size_text(one.backward_bytes),
              size_text(one.attention_bytes), size_text(one.cache_bytes), one.balance,
              seconds_text(one.compute_seconds + one.compute_backward_seconds),
              seconds_text(one.transfer_seconds + one.transfer_backward_seconds),
              seconds_text(one.forward_seconds + one.backward_seconds));
  }
  print_out("\n");
  for (const porting::ShardStrategy& one : plan.strategies) {
    if (!one.problem.empty())
      print_out("{}", in_lines(fmt::format("  {:<16} impossible: ", one.name), one.problem));
  }
}

void print_plan(const porting::ShardPlan& plan) {
  const porting::ShardPlanOptions& used = plan.options;
  print_out("model    {}, {} heads, {} key heads, head_dim {}, {}\n",
            plan.model_type.empty() ? "plain spec" : plan.model_type, plan.heads, plan.key_heads,
            plan.head_dim,
            plan.layers_known ? fmt::format("{} layers", plan.layers) : "layers not counted");
  if (!plan.windows.empty()) {
    print_out("window   {} layers see at most {} keys\n", plan.windows.size(),
              *std::max_element(plan.windows.begin(), plan.windows.end()));
  }
  print_out("context  {} tokens, batch {}, {}\n", used.tokens, used.batch,
            used.sees == porting::Sees::earlier ? "causal" : "bidirectional");
  print_out("ranks    {} on {} {}, {:g} Gb/s between nodes\n", used.ranks, used.nodes,
            used.nodes == 1 ? "node" : "nodes", used.bandwidth);
  if (plan.parameters) {
    print_out("weights  {:.3g} billion parameters, {} in bf16 on each rank\n",
              static_cast<double>(*plan.parameters) * 1e-9,
              size_text(2.0 * static_cast<double>(*plan.parameters)));
  }
  print_strategies(plan);
  print_out("\n{}", in_lines("recommended  ", plan.recommended.empty()
                                                  ? plan.reason
                                                  : plan.recommended + ": " + plan.reason));
  print_out("\nassumed\n");
  for (const std::string& line : plan.assumptions) print_out("{}", in_lines("  - ", line));
}

}  // namespace

void add_ranks_flags(Verb& verb, RanksFlags& flags) {
  verb.flag("--ranks", &flags.ranks, "divide the sequence over this many ranks instead")
      .within(1, porting::kMaxRanks)
      .excludes("--trained")
      .excludes("--layer")
      .excludes("--method")
      .excludes("--csv");
  verb.flag("--nodes", &flags.nodes, "machines that the ranks run on (default: one each)")
      .within(1, porting::kMaxRanks)
      .needs("--ranks");
  verb.flag("--bandwidth", &flags.bandwidth, "Gb/s between machines (default: 100)")
      .needs("--ranks");
  verb.flag("--node-bandwidth", &flags.node_bandwidth,
            fmt::format("Gb/s of a rank inside its machine (default: {:g}, assumed)",
                        porting::kNodeGbits))
      .needs("--ranks");
  verb.flag("--gflops", &flags.gflops,
            fmt::format("GFLOP/s of attention on a rank (default: {:g}, one core, measured)",
                        porting::kRankGflops))
      .needs("--ranks");
  verb.flag("--batch", &flags.batch, "sequences at a time")
      .show_default()
      .at_least(1)
      .needs("--ranks");
  verb.flag("--wire", &flags.wire, "type of the numbers between ranks")
      .one_of({"bf16", "f32"})
      .show_default()
      .needs("--ranks");
  verb.flag("--bidirectional", &flags.bidirectional, "queries see later keys too").needs("--ranks");
}

int run_plan_ranks(const std::string& config, std::int64_t tokens, const RanksFlags& flags,
                   PlanForm form) {
  porting::ShardPlanOptions options;
  options.ranks = static_cast<int>(*flags.ranks);
  options.nodes = static_cast<int>(flags.nodes.value_or(0));
  options.tokens = tokens;
  options.batch = flags.batch;
  options.bandwidth = flags.bandwidth.value_or(options.bandwidth);
  options.node_bandwidth = flags.node_bandwidth.value_or(options.node_bandwidth);
  options.gflops = flags.gflops.value_or(options.gflops);
  options.wire = flags.wire == "f32" ? porting::WireType::f32 : porting::WireType::bf16;
  options.sees = flags.bidirectional ? porting::Sees::all : porting::Sees::earlier;
  const porting::ShardPlan plan =
      porting::shard_plan(read_readable(config), options).value_or_throw();
  if (form == PlanForm::json) {
    print_out("{}\n", porting::shard_plan_json(plan));
  } else {
    print_plan(plan);
  }
  return exit_code::done;
}

}  // namespace phasor::tools
