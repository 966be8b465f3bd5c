#include "phasor/porting/shard_plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "phasor/io/internal/json.hpp"
#include "porting/number_text.hpp"

namespace phasor::porting {
namespace {

using io::Json;

constexpr double kFloatBytes = 4.0;
constexpr double kBitsPerByte = 8.0;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

// Layers that cost the same.
struct LayerKind {
  std::optional<std::int64_t> window;
  std::int64_t layers = 1;
};

// Seconds and bytes of a strategy for layers of one kind.
class Costs {
 public:
  Costs(const ShardPlan& plan, const LayerKind& kind) : options_(plan.options) {
    sizes_.batch = options_.batch;
    sizes_.tokens = options_.tokens;
    sizes_.heads = plan.heads;
    sizes_.key_heads = plan.key_heads;
    sizes_.head_dim = sizes_.value_dim = plan.head_dim;
    sizes_.sees = options_.sees;
    sizes_.window = kind.window;
    sizes_.wire = options_.wire;
  }

  // `ring` x `heads` ranks in the order of `strategy`; 1 x 1: whole sequences, divided by rows of the batch.
  void add_to(ShardStrategy& strategy, double weight) {
    sizes_.order = strategy.order;
    const int ring = strategy.ring, heads = strategy.heads;
    ShardStrategy cost;
    cost.name = strategy.name;
    if (ring * heads == 1)
      sizes_.batch = std::max<std::int64_t>(1, options_.batch / options_.ranks);
    count_pairs(ring, heads, cost);
    count_bytes(ring, heads, cost);
    count_memory(ring, heads, cost);
    strategy.balance = std::max(strategy.balance, cost.balance);
    for (const auto field :
         {&ShardStrategy::forward_bytes, &ShardStrategy::backward_bytes,
          &ShardStrategy::attention_bytes, &ShardStrategy::compute_seconds,
          &ShardStrategy::compute_backward_seconds, &ShardStrategy::transfer_seconds,
          &ShardStrategy::transfer_backward_seconds, &ShardStrategy::forward_seconds,
          &ShardStrategy::backward_seconds}) {
      strategy.*field += weight * cost.*field;
    }
  }

 private:
  [[nodiscard]] int node_of(int rank) const { return rank / (options_.ranks / options_.nodes); }

  void count_pairs(int ring, int heads, ShardStrategy& cost) const {
    const std::vector<double> pairs = ring_pairs(sizes_, ring);
    double sum = 0.0, most = 0.0;
    for (const double value : pairs) {
      sum += value;
      most = std::max(most, value);
    }
    std::int64_t most_heads = 0;
    for (int part = 0; part < heads; ++part)
      most_heads = std::max(most_heads, shard_heads(sizes_, heads, part).count);
    const double mean = sum / ring * static_cast<double>(sizes_.heads) / heads;
    const double work = most * static_cast<double>(most_heads);
    cost.balance = mean > 0.0 ? work / mean : 1.0;
    // q.k and p v: two products of one multiplication and one addition per feature.
    const double flops = static_cast<double>(sizes_.batch) * work * 2.0 *
                         static_cast<double>(sizes_.head_dim + sizes_.value_dim);
    cost.compute_seconds = flops / (options_.gflops * 1e9);
    cost.compute_backward_seconds = kBackwardWork * cost.compute_seconds;
  }

  // Seconds of the busiest link, from the bytes of each rank to its own node and to others.
  [[nodiscard]] double link_seconds(const std::vector<double>& inside,
                                    const std::vector<double>& outside) const {
    std::vector<double> node(static_cast<std::size_t>(options_.nodes), 0.0);
    double most = 0.0;
    for (std::size_t rank = 0; rank < inside.size(); ++rank) {
      node[static_cast<std::size_t>(node_of(static_cast<int>(rank)))] += outside[rank];
      most = std::max(most, inside[rank] * kBitsPerByte / (options_.node_bandwidth * 1e9));
    }
    for (const double bytes : node)
      most = std::max(most, bytes * kBitsPerByte / (options_.bandwidth * 1e9));
    return most;
  }

  void count_bytes(int ring, int heads, ShardStrategy& cost) const {
    if (ring * heads == 1) {
      cost.forward_seconds = cost.compute_seconds;
      cost.backward_seconds = cost.compute_backward_seconds;
      return;
    }
    const std::vector<RankBytes> all = grid_bytes(sizes_, ring, heads);
    ShardedSizes one = sizes_;
    one.heads = one.key_heads = 1;
    const std::vector<RankBytes> travels = ring_bytes(one, ring);
    int hops = 0;
    for (int from = 0; from < ring; ++from) {
      for (int hop = ring - 1; hop > hops; --hop) {
        if (shard_in_reach(sizes_, ring, (from + hop) % ring, from)) hops = hop;
      }
    }
    for (const auto& [bytes, compute, transfer, seconds, most] :
         {std::tuple(&RankBytes::forward, cost.compute_seconds, &cost.transfer_seconds,
                     &cost.forward_seconds, &cost.forward_bytes),
          std::tuple(&RankBytes::backward, cost.compute_backward_seconds,
                     &cost.transfer_backward_seconds, &cost.backward_seconds,
                     &cost.backward_bytes)}) {
      const std::size_t ranks = all.size();
      std::vector<double> ring_in(ranks), ring_out(ranks), heads_in(ranks), heads_out(ranks);
      for (int rank = 0; rank < static_cast<int>(ranks); ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        const int index = rank / heads, part = rank % heads;
        const double around = static_cast<double>(shard_heads(sizes_, heads, part).key_count) *
                              static_cast<double>(travels[static_cast<std::size_t>(index)].*bytes);
        const int next = (index + 1) % ring * heads + part;
        (node_of(next) == node_of(rank) ? ring_in : ring_out)[at] = around;
        int near = 0;  // of the ranks that exchange heads with this one
        for (int other = 0; other < heads; ++other)
          near += other != part && node_of(index * heads + other) == node_of(rank) ? 1 : 0;
        const double exchanged = static_cast<double>(all[at].*bytes) - around;
        if (heads > 1) heads_in[at] = exchanged * near / (heads - 1);
        heads_out[at] = exchanged - heads_in[at];
        *most = std::max(*most, static_cast<double>(all[at].*bytes));
      }
      const double around = link_seconds(ring_in, ring_out);
      const double exchange = link_seconds(heads_in, heads_out);
      const double steps = hops + 1;
      *transfer = around + exchange;
      // The first tiles need no message; each later step takes the longer of its tiles and its message.
      *seconds =
          exchange +
          (hops == 0 ? compute : compute / steps + hops * std::max(compute / steps, around / hops));
    }
  }

  void count_memory(int ring, int heads, ShardStrategy& cost) const {
    const double batch = static_cast<double>(sizes_.batch);
    const double held = std::ceil(static_cast<double>(sizes_.tokens) / ring);  // of a ring index
    const double mine = std::ceil(held / heads);
    const auto dims = static_cast<double>(sizes_.head_dim + sizes_.value_dim);
    const auto all_heads = static_cast<double>(sizes_.heads + sizes_.key_heads);
    cost.attention_bytes =
        batch * mine * (all_heads * dims + static_cast<double>(sizes_.heads)) * kFloatBytes;
    const HeadRange own = shard_heads(sizes_, heads, 0);
    const auto wire = static_cast<double>(bytes_of(sizes_.wire));
    const auto count = static_cast<double>(own.count), keys = static_cast<double>(own.key_count);
    // All tokens of the own heads, and one message to and from every rank.
    if (heads > 1) {
      const double message = count * static_cast<double>(sizes_.head_dim) + keys * dims;
      cost.attention_bytes +=
          batch * held * (((count + keys) * dims + 2.0 * message) * wire + count * kFloatBytes);
    }
    // A ring keeps q and out of its heads, its keys and values as they travel, those that it computes with and
    // those that arrive.
    if (ring > 1)
      cost.attention_bytes += batch * held * dims * (count * kFloatBytes + 3.0 * keys * wire);
  }

  ShardPlanOptions options_;
  ShardedSizes sizes_;
};

void check_options(const ShardPlanOptions& options) {
  const auto refuse = [](const std::string& text) { throw Error(ErrorCode::out_of_range, text); };
  if (options.ranks < 1 || options.ranks > kMaxRanks)
    refuse(message("ranks must be 1 to ", kMaxRanks, ", got ", options.ranks));
  if (options.nodes < 1 || options.ranks % options.nodes != 0) {
    refuse(message("nodes must divide the ", options.ranks, " ranks, got ", options.nodes));
  }
  if (options.tokens < 1 || options.tokens >= kMostTokens)
    refuse(message("tokens must be 1 to 2^40 - 1, got ", options.tokens));
  if (options.batch < 1) refuse(message("batch must be 1 or more, got ", options.batch));
  for (const auto& [name, value] :
       {std::pair("bandwidth", options.bandwidth),
        std::pair("node_bandwidth", options.node_bandwidth), std::pair("gflops", options.gflops)}) {
    if (!(value > 0.0) || !std::isfinite(value))
      refuse(message(name, " must be above 0 and finite, got ", value));
  }
}

[[nodiscard]] std::optional<std::int64_t> parameters_of(const ReadableConfig& config,
                                                        const ShardPlan& plan) {
  if (config.text.empty() || !plan.layers_known) return std::nullopt;
  Json keys = Json::parse(config.text);
  for (std::string_view part = config.meaning.part; !part.empty();) {
    const std::size_t dot = part.find('.');
    const std::string_view name = part.substr(0, dot);
    if (!keys.contains(name)) return std::nullopt;
    keys = Json(keys.at(name));
    part = dot == std::string_view::npos ? std::string_view() : part.substr(dot + 1);
  }
  for (const char* experts : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (keys.contains(experts)) return std::nullopt;
  }
  const auto size = [&](std::string_view key) {
    return keys.contains(key) && keys.at(key).is_number_integer() ? keys.at(key).get<std::int64_t>()
                                                                  : 0;
  };
  const std::int64_t hidden = size("hidden_size"), inner = size("intermediate_size"),
                     words = size("vocab_size");
  if (hidden < 1 || inner < 1 || words < 1) return std::nullopt;
  const bool tied = keys.contains("tie_word_embeddings") &&
                    keys.at("tie_word_embeddings").is_boolean() &&
                    keys.at("tie_word_embeddings").get<bool>();
  const std::int64_t attention = 2 * hidden * plan.head_dim * (plan.heads + plan.key_heads);
  return words * hidden * (tied ? 1 : 2) + plan.layers * (attention + 3 * hidden * inner);
}

[[nodiscard]] std::vector<ShardStrategy> possible_strategies(const ShardPlan& plan) {
  std::vector<ShardStrategy> made;
  const int ranks = plan.options.ranks;
  const auto add = [&](std::string name, int ring, int heads, TokenOrder order) -> ShardStrategy& {
    ShardStrategy strategy;
    strategy.name = std::move(name);
    strategy.ring = ring;
    strategy.heads = heads;
    strategy.order = order;
    return made.emplace_back(std::move(strategy));
  };
  constexpr TokenOrder kOrders[] = {TokenOrder::zigzag, TokenOrder::striped,
                                    TokenOrder::contiguous};
  for (const TokenOrder order : kOrders) {
    ShardStrategy& ring = add(message("ring ", name_of(order)), ranks, 1, order);
    if (plan.options.tokens < ranks)
      ring.problem = message(plan.options.tokens, " tokens are fewer than ", ranks, " ranks");
    if (order == TokenOrder::striped && plan.options.sees == Sees::all && !plan.windows.empty())
      ring.problem =
          message("a window (", plan.windows.front(), ") must be causal in striped order");
  }
  for (int heads = ranks; heads >= 2; --heads) {
    if (ranks % heads != 0) continue;
    const int ring = ranks / heads;
    ShardStrategy& one =
        ring == 1 ? add("heads", 1, heads, TokenOrder::contiguous)
                  : add(message("grid ", ring, " x ", heads), ring, heads, TokenOrder::zigzag);
    if (plan.heads % heads != 0)
      one.problem = message(plan.heads, " heads are not divisible by ", heads);
  }
  ShardStrategy& data = add("data", 1, 1, TokenOrder::contiguous);
  if (plan.options.batch % ranks != 0)
    data.problem = message("a batch of ", plan.options.batch, " is not divisible by ", ranks);
  return made;
}

// Of the strategies that take at most this much longer than the fastest, the one that needs least memory.
constexpr double kAsFast = 1.02;

void recommend(ShardPlan& plan) {
  const auto seconds = [](const ShardStrategy& one) {
    return one.forward_seconds + one.backward_seconds;
  };
  double least = std::numeric_limits<double>::infinity();
  for (const ShardStrategy& one : plan.strategies) {
    if (one.problem.empty()) least = std::min(least, seconds(one));
  }
  const ShardStrategy* best = nullptr;
  for (const ShardStrategy& one : plan.strategies) {
    if (!one.problem.empty() || seconds(one) > kAsFast * least) continue;
    if (best == nullptr || one.attention_bytes < best->attention_bytes) best = &one;
  }
  if (best == nullptr) {
    plan.reason = "no strategy is possible";
    return;
  }
  plan.recommended = best->name;
  const double compute = best->compute_seconds + best->compute_backward_seconds;
  const double total = seconds(*best);
  plan.reason =
      message(digits(total, 4), " s a layer, forward and backward: ", digits(compute, 4),
              " s of compute on the busiest rank and ", digits(std::max(0.0, total - compute), 3),
              " s of transfer that is not hidden; the least memory of those within ",
              digits(100.0 * (kAsFast - 1.0)), " % of the least time");
}

}  // namespace

Result<ShardPlan> shard_plan(const ReadableConfig& config, const ShardPlanOptions& options) {
  try {
    const config::ModelConfig& model = config.meaning;
    ShardPlan plan;
    plan.model_type = model.model_type;
    plan.options = options;
    if (options.nodes == 0) plan.options.nodes = options.ranks;
    if (options.tokens == 0) {
      if (!model.max_position) {
        throw Error(ErrorCode::invalid_argument,
                    "the config has no largest length: the number of tokens must be given");
      }
      plan.options.tokens = *model.max_position;
    }
    check_options(plan.options);
    if (!model.heads || *model.heads < 1 || model.head_dim < 1) {
      throw Error(ErrorCode::invalid_argument,
                  "the config gives no number of heads (num_attention_heads)");
    }
    plan.heads = *model.heads;
    plan.key_heads = model.key_heads.value_or(plan.heads);
    plan.head_dim = model.head_dim;
    std::vector<LayerKind> kinds;
    std::int64_t layers = 0;
    for (const config::LayerGroup& group : model.groups) {
      const auto count = static_cast<std::int64_t>(group.layers.size());
      if (count == 0) continue;
      kinds.push_back({group.window, count});
      layers += count;
      if (group.window) plan.windows.insert(plan.windows.end(), group.layers.size(), *group.window);
    }
    plan.layers_known = layers > 0;
    if (kinds.empty()) {
      kinds.push_back({model.groups.empty() ? std::nullopt : model.groups.front().window, 1});
      if (kinds[0].window) plan.windows.push_back(*kinds[0].window);
    }
    plan.layers = std::max<std::int64_t>(1, layers);
    plan.parameters = parameters_of(config, plan);
    plan.strategies = possible_strategies(plan);
    for (ShardStrategy& strategy : plan.strategies) {
      if (!strategy.problem.empty()) continue;
      for (const LayerKind& kind : kinds) {
        Costs(plan, kind)
            .add_to(strategy, static_cast<double>(kind.layers) / static_cast<double>(plan.layers));
      }
      const double parts = static_cast<double>(strategy.ring) * strategy.heads;
      const double rows = parts == 1.0 ? static_cast<double>(plan.options.batch) / options.ranks
                                       : static_cast<double>(plan.options.batch);
      strategy.cache_bytes = rows * std::ceil(static_cast<double>(plan.options.tokens) / parts) *
                             static_cast<double>(2 * plan.key_heads * plan.head_dim * plan.layers *
                                                 bytes_of(options.wire));
    }
    recommend(plan);
    const ShardPlanOptions& used = plan.options;
    plan.assumptions = {
        message("a rank computes attention at ", digits(used.gflops),
                " GFLOP/s; a backward tile has ", digits(kBackwardWork),
                " times the products of a forward tile"),
        message("a node sends ", digits(used.bandwidth), " Gb/s to other nodes (ranks of a node: ",
                used.ranks / used.nodes, "); a rank sends ", digits(used.node_bandwidth),
                " Gb/s inside its node; messages have no latency"),
        message("keys, values, their gradients and exchanged heads travel as ", name_of(used.wire),
                "; log-sum-exp as f32"),
        "ring messages overlap with the tiles, an exchange of heads does not",
        "projections, feed-forward layers and the gradients of weights are not counted"};
    if (!plan.layers_known) plan.assumptions.emplace_back("the config counts no layers: one");
    return plan;
  } catch (const Error& error) {
    return error;
  }
}

std::string shard_plan_json(const ShardPlan& plan) {
  const ShardPlanOptions& used = plan.options;
  Json made;
  made["model_type"] = plan.model_type;
  made["ranks"] = used.ranks;
  made["nodes"] = used.nodes;
  made["tokens"] = used.tokens;
  made["batch"] = used.batch;
  made["bandwidth"] = used.bandwidth;
  made["node_bandwidth"] = used.node_bandwidth;
  made["gflops"] = used.gflops;
  made["wire"] = name_of(used.wire);
  made["causal"] = used.sees == Sees::earlier;
  made["heads"] = plan.heads;
  made["key_heads"] = plan.key_heads;
  made["head_dim"] = plan.head_dim;
  made["layers"] = plan.layers_known ? Json(plan.layers) : Json(nullptr);
  made["windows"] = plan.windows;
  made["parameters"] = plan.parameters ? Json(*plan.parameters) : Json(nullptr);
  made["strategies"] = Json::array();
  for (const ShardStrategy& one : plan.strategies) {
    Json row;
    row["strategy"] = one.name;
    row["possible"] = one.problem.empty();
    if (!one.problem.empty()) {
      row["problem"] = one.problem;
    } else {
      row["ring"] = one.ring;
      row["heads"] = one.heads;
      row["order"] = name_of(one.order);
      row["forward_bytes"] = one.forward_bytes;
      row["backward_bytes"] = one.backward_bytes;
      row["attention_bytes"] = one.attention_bytes;
      row["cache_bytes"] = one.cache_bytes;
      row["balance"] = one.balance;
      row["compute_seconds"] = one.compute_seconds;
      row["compute_backward_seconds"] = one.compute_backward_seconds;
      row["transfer_seconds"] = one.transfer_seconds;
      row["transfer_backward_seconds"] = one.transfer_backward_seconds;
      row["forward_seconds"] = one.forward_seconds;
      row["backward_seconds"] = one.backward_seconds;
    }
    made["strategies"].push_back(std::move(row));
  }
  made["recommended"] = plan.recommended.empty() ? Json(nullptr) : Json(plan.recommended);
  made["reason"] = plan.reason;
  made["assumptions"] = plan.assumptions;
  return made.dump();
}

}  // namespace phasor::porting
