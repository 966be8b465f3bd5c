// Attention over ranks compared with one rank: memory, bytes, time. Run by scripts/bench_ranks.sh:
//
//   ranks.sh 2 parallel_bench speed            time of 1 rank and of all, alternating
//   ranks.sh 8 parallel_bench memory           memory and bytes of 1, 2, 4, ... ranks
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/buffer.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/core/error.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/parallel/attention.hpp"
#include "phasor/parallel/heads.hpp"
#include "phasor/porting/shard_costs.hpp"

namespace phasor::bench {
namespace {

using attention::AttentionPasses;
using parallel::Communicator;
using parallel::TokenOrder;
using parallel::WireType;

struct BenchSettings {
  std::string mode;
  std::int64_t tokens = 16384, heads = 8, head_dim = 64;
  int rounds = 5;
};

attention::AttentionSizes sizes_of(const BenchSettings& settings, std::int64_t heads) {
  return {.queries = settings.tokens,
          .keys = settings.tokens,
          .heads = heads,
          .key_heads = heads,
          .head_dim = settings.head_dim,
          .value_dim = settings.head_dim};
}

attention::AttentionOptions causal_options() {
  attention::AttentionOptions options;
  options.causality = attention::Causality::bottom_right;
  options.threads = 1;
  return options;
}

encodings::ScoreTerms rope_terms(const attention::AttentionSizes& sizes) {
  encodings::RopeSpec rope;
  rope.head_dim = rope.rotary_dim = sizes.head_dim;
  rope.layout = core::PairLayout::half;
  return encodings::resolve(encodings::Encoding(rope),
                            attention::attention_shape(sizes, causal_options()));
}

// The rows of a rank: inputs, outputs and gradients.
class Rows {
 public:
  Rows(std::int64_t tokens, const attention::AttentionSizes& sizes, AttentionPasses passes)
      : tokens_(tokens), heads_(sizes.heads), dims_(sizes.head_dim) {
    const std::size_t arrays = passes == AttentionPasses::forward ? 4 : 8;
    for (std::size_t i = 0; i < arrays; ++i) {
      arrays_.emplace_back(sizeof(float) * std::max<std::size_t>(1, static_cast<std::size_t>(
                                                                        tokens * heads_ * dims_)));
    }
    log_sum_exp.resize(static_cast<std::size_t>(tokens * heads_));
  }
  [[nodiscard]] core::HeadsView view(std::size_t array) const {
    core::HeadsView view;
    view.data = arrays_[array].floats();
    view.dtype = core::DType::f32;
    view.batch = 1;
    view.tokens = tokens_;
    view.heads = heads_;
    view.head_dim = dims_;
    view.batch_stride = tokens_ * heads_ * dims_;
    view.token_stride = heads_ * dims_;
    view.head_stride = dims_;
    return view;
  }
  [[nodiscard]] core::HeadsView q() const { return view(0); }
  [[nodiscard]] core::HeadsView k() const { return view(1); }
  [[nodiscard]] core::HeadsView v() const { return view(2); }
  [[nodiscard]] core::HeadsView out() const { return view(3); }
  [[nodiscard]] attention::AttentionForward forward() const {
    return {.out = out(), .log_sum_exp = log_sum_exp.data(), .d_out = view(4)};
  }
  [[nodiscard]] attention::AttentionGradients gradients() const {
    attention::AttentionGradients made;
    made.d_q = view(5);
    made.d_k = view(6);
    made.d_v = view(7);
    return made;
  }
  std::vector<float> log_sum_exp;

 private:
  std::int64_t tokens_, heads_, dims_;
  std::vector<Buffer> arrays_;
};

// One thing that is timed: a forward and a backward pass.
struct Contender {
  std::string name;
  std::function<void()> forward, backward;
  std::vector<double> forward_seconds, backward_seconds;          // of the slowest rank
  std::vector<double> forward_cpu_seconds, backward_cpu_seconds;  // of the rank that uses most
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

// Waits without using a core: the ranks that measure need them.
void sleep_until_all(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(comm, &request);
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) usleep(1000);
  }
}

// Adds the time of the slowest rank, and the CPU time of the rank that uses most: on a machine with other
// load the second says more.
void time(Communicator& ranks, const std::function<void()>& work, std::vector<double>& seconds,
          std::vector<double>& cpu_seconds) {
  sleep_until_all(ranks.handle());
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu = std::clock();
  work();
  double found[] = {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
                    static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC};
  sleep_until_all(ranks.handle());
  ranks.max(found);
  seconds.push_back(found[0]);
  cpu_seconds.push_back(found[1]);
}

// The largest resident memory since the last call, in bytes; 0 where the system does not tell.
double peak_since_reset() {
  double peak = 0.0;
  if (std::FILE* file = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      if (std::strncmp(line, "VmHWM:", 6) == 0) peak = 1024.0 * std::atof(line + 6);
    }
    std::fclose(file);
  }
  if (std::FILE* file = std::fopen("/proc/self/clear_refs", "w")) {
    std::fputs("5", file);  // 5: forget the peak
    std::fclose(file);
  }
  return peak;
}

class RanksBench {
 public:
  RanksBench(Communicator& ranks, BenchSettings settings)
      : ranks_(ranks), settings_(std::move(settings)) {}

  // Every order and both types on the wire, on 1, 2, 4, ... of the ranks.
  void memory() {
    print("%lld tokens, %lld heads of %lld, causal, forward and backward\n",
          static_cast<long long>(settings_.tokens), static_cast<long long>(settings_.heads),
          static_cast<long long>(settings_.head_dim));
    print("%-6s %-11s %-5s %12s %12s %14s %14s %8s\n", "ranks", "order", "wire", "plan MiB",
          "peak MiB", "bytes sent", "formula", "balance");
    for (int count = 1; count <= ranks_.size(); count *= 2) {
      const std::unique_ptr<Communicator> some =
          ranks_.split(ranks_.rank() < count ? 0 : 1, ranks_.rank());
      for (const TokenOrder order :
           {TokenOrder::zigzag, TokenOrder::contiguous, TokenOrder::striped}) {
        for (const WireType wire : {WireType::f32, WireType::bf16}) {
          if (count == 1 && (order != TokenOrder::zigzag || wire != WireType::f32)) continue;
          std::vector<double> found(4, 0.0);
          if (ranks_.rank() < count) measure_memory(*some, order, wire, found);
          sleep_until_all(ranks_.handle());
          ranks_.max(found);
          print("%-6d %-11s %-5s %12.1f %12.1f %14.0f %14.0f %8.3f\n", count,
                std::string(attention::name_of(order)).c_str(),
                wire == WireType::f32 ? "f32" : "bf16", found[0] / 1048576, found[1] / 1048576,
                found[2], found[3], balance(order, count));
        }
      }
    }
  }

  void speed() {
    make_contenders();
    for (int round = 0; round < settings_.rounds; ++round) {
      for (Contender& one : contenders_) {
        time(ranks_, one.forward, one.forward_seconds, one.forward_cpu_seconds);
        if (one.backward)
          time(ranks_, one.backward, one.backward_seconds, one.backward_cpu_seconds);
      }
    }
    print(
        "%lld tokens, %lld heads of %lld, causal, 1 thread a rank, %d ranks, median of %d rounds\n",
        static_cast<long long>(settings_.tokens), static_cast<long long>(settings_.heads),
        static_cast<long long>(settings_.head_dim), ranks_.size(), settings_.rounds);
    const Contender& one = contenders_.front();
    for (const auto& [title, forward, backward] :
         {std::tuple("time", &Contender::forward_seconds, &Contender::backward_seconds),
          std::tuple("CPU time of a rank", &Contender::forward_cpu_seconds,
                     &Contender::backward_cpu_seconds)}) {
      print("%-34s %10s %9s %10s %9s\n", title, "forward s", "1 rank /", "backward s", "1 rank /");
      for (const Contender& other : contenders_) {
        print("%-34s %10.3f %9s %10s %9s\n", other.name.c_str(), median(other.*forward),
              ratio(one.*forward, other.*forward).c_str(),
              other.backward ? text("%.3f", median(other.*backward)).c_str() : "",
              ratio(one.*backward, other.*backward).c_str());
      }
    }
    const double pairs = 0.5 * static_cast<double>(settings_.tokens) *
                         static_cast<double>(settings_.tokens + 1) *
                         static_cast<double>(settings_.heads);
    const double flops = pairs * 4.0 * static_cast<double>(settings_.head_dim);
    print(
        "one rank computes at %.1f GFLOP/s forward, %.1f backward (2.5 times the products); by CPU "
        "time %.1f and %.1f\n",
        flops / median(one.forward_seconds) * 1e-9,
        2.5 * flops / median(one.backward_seconds) * 1e-9,
        flops / median(one.forward_cpu_seconds) * 1e-9,
        2.5 * flops / median(one.backward_cpu_seconds) * 1e-9);
    overlap();
  }

 private:
  // How much of the messages of a ring is hidden by its tiles.
  void overlap() {
    if (ranks_.size() == 1) return;
    const double compute = median(find("no messages")), messages = median(find("messages alone"));
    const double ring = median(find("ring zigzag f32")), shorter = std::min(compute, messages);
    const double bytes = static_cast<double>(ring_sent_) * 8.0;
    print("messages alone move at %.3f Gb/s a rank\n", bytes / messages * 1e-9);
    print(
        "ring zigzag f32: %.3f s; without overlap it would be %.3f + %.3f = %.3f s; hidden: %.0f "
        "%%\n",
        ring, compute, messages, compute + messages, 100.0 * (compute + messages - ring) / shorter);
  }
  [[nodiscard]] const std::vector<double>& find(std::string_view name) const {
    for (const Contender& one : contenders_) {
      if (one.name.starts_with(name)) return one.forward_seconds;
    }
    throw Error(ErrorCode::internal, message("no measurement ", name));
  }

  void measure_memory(Communicator& some, TokenOrder order, WireType wire,
                      std::vector<double>& found) {
    malloc_trim(0);
    static_cast<void>(peak_since_reset());
    const double before = peak_since_reset();
    const attention::AttentionSizes sizes = sizes_of(settings_, settings_.heads);
    const parallel::ParallelOptions options{.order = order, .wire = wire};
    parallel::RingPlan plan(some, rope_terms(sizes), sizes, causal_options(), options,
                            AttentionPasses::forward_and_backward);
    Rows rows(plan.queries().count(some.rank()), sizes, AttentionPasses::forward_and_backward);
    plan.run(rows.q(), rows.k(), rows.v(), rows.out(), rows.log_sum_exp.data());
    plan.run_backward(rows.q(), rows.k(), rows.v(), rows.forward(), rows.gradients());
    found[0] = static_cast<double>(plan.bytes());
    found[1] = std::max(0.0, peak_since_reset() - before);
    found[2] = static_cast<double>(plan.bytes_sent());
    const porting::ShardedSizes whole{.tokens = sizes.keys,
                                      .heads = sizes.heads,
                                      .key_heads = sizes.key_heads,
                                      .head_dim = sizes.head_dim,
                                      .value_dim = sizes.value_dim,
                                      .order = order,
                                      .wire = wire};
    const porting::RankBytes bytes =
        porting::ring_bytes(whole, some.size())[static_cast<std::size_t>(some.rank())];
    found[3] = static_cast<double>(bytes.forward + bytes.backward);
    if (found[2] != found[3])
      throw Error(ErrorCode::internal, message("rank ", some.rank(), " sent ", found[2],
                                               " bytes, the formula says ", found[3]));
  }

  [[nodiscard]] double balance(TokenOrder order, int count) const {
    porting::ShardedSizes whole{.tokens = settings_.tokens,
                                .heads = 1,
                                .key_heads = 1,
                                .head_dim = 1,
                                .value_dim = 1,
                                .order = order};
    const std::vector<double> pairs = porting::ring_pairs(whole, count);
    double sum = 0.0;
    for (const double value : pairs) sum += value;
    return *std::max_element(pairs.begin(), pairs.end()) * count / sum;
  }

  template <class Plan>
  void add(std::string name, std::shared_ptr<Plan> plan, std::shared_ptr<Rows> rows) {
    contenders_.push_back(
        {std::move(name),
         [=] {
           if constexpr (requires { plan->queries(); }) {
             plan->run(rows->q(), rows->k(), rows->v(), rows->out(), rows->log_sum_exp.data());
           } else {
             plan->run(rows->q(), rows->k(), rows->v(), rows->out(),
                       {.log_sum_exp = rows->log_sum_exp.data()});
           }
         },
         [=] {
           plan->run_backward(rows->q(), rows->k(), rows->v(), rows->forward(), rows->gradients());
         },
         {},
         {},
         {},
         {}});
  }

  void make_contenders() {
    const AttentionPasses both = AttentionPasses::forward_and_backward;
    const attention::AttentionSizes whole = sizes_of(settings_, settings_.heads);
    if (ranks_.rank() == 0) {
      add("1 rank",
          std::make_shared<attention::AttentionPlan>(rope_terms(whole), whole, causal_options(),
                                                     both),
          std::make_shared<Rows>(whole.queries, whole, both));
    } else {
      contenders_.push_back({"1 rank", [] {}, [] {}, {}, {}, {}, {}});
    }
    // The limit: every rank computes its part of the heads of all tokens, all at the same time.
    const attention::AttentionSizes part =
        sizes_of(settings_, std::max<std::int64_t>(1, settings_.heads / ranks_.size()));
    add("no messages, heads / ranks each",
        std::make_shared<attention::AttentionPlan>(rope_terms(part), part, causal_options(), both),
        std::make_shared<Rows>(part.queries, part, both));
    for (const auto& [order, wire] : {std::pair(TokenOrder::zigzag, WireType::f32),
                                      std::pair(TokenOrder::zigzag, WireType::bf16),
                                      std::pair(TokenOrder::contiguous, WireType::f32),
                                      std::pair(TokenOrder::striped, WireType::f32)}) {
      const parallel::ParallelOptions options{.order = order, .wire = wire};
      auto plan = std::make_shared<parallel::RingPlan>(ranks_, rope_terms(whole), whole,
                                                       causal_options(), options, both);
      auto rows = std::make_shared<Rows>(plan->queries().count(ranks_.rank()), whole, both);
      add("ring " + std::string(attention::name_of(order)) +
              (wire == WireType::f32 ? " f32" : " bf16"),
          plan, rows);
    }
    if (settings_.heads % ranks_.size() == 0) {
      const parallel::ParallelOptions options{.order = TokenOrder::contiguous,
                                              .wire = WireType::f32};
      auto plan = std::make_shared<parallel::HeadsPlan>(ranks_, rope_terms(whole), whole,
                                                        causal_options(), options, both);
      add("heads f32", plan,
          std::make_shared<Rows>(plan->queries().count(ranks_.rank()), whole, both));
    }
    // The messages of a forward ring in f32, one after the other, without tiles.
    const std::int64_t shard =
        whole.keys / ranks_.size() * whole.key_heads * 2 * whole.head_dim * 4;
    ring_sent_ = shard * (ranks_.size() - 1);
    auto out = std::make_shared<Buffer>(static_cast<std::size_t>(shard));
    auto in = std::make_shared<Buffer>(static_cast<std::size_t>(shard));
    contenders_.push_back(
        {"messages alone, f32",
         [this, out, in] {
           const int next = (ranks_.rank() + 1) % ranks_.size();
           const int before = (ranks_.rank() + ranks_.size() - 1) % ranks_.size();
           for (int step = 1; step < ranks_.size(); ++step) {
             ranks_
                 .exchange(std::as_bytes(std::span(out->floats(), out->count())), next,
                           std::as_writable_bytes(std::span(in->floats(), in->count())), before, 1)
                 .wait("messages alone");
           }
         },
         nullptr,
         {},
         {},
         {},
         {}});
  }

  [[nodiscard]] static std::string text(const char* format, double value) {
    char buffer[48];
    std::snprintf(buffer, sizeof buffer, format, value);
    return buffer;
  }
  // The median of the ratios of each round.
  [[nodiscard]] static std::string ratio(const std::vector<double>& one,
                                         const std::vector<double>& other) {
    if (other.empty()) return "";
    std::vector<double> ratios;
    for (std::size_t i = 0; i < other.size(); ++i) ratios.push_back(one[i] / other[i]);
    return text("%.2f", median(ratios));
  }
  template <class... Values>
  void print(const char* format, Values... values) const {
    if (ranks_.rank() != 0) return;
    std::printf(format, values...);
    std::fflush(stdout);
  }

  Communicator& ranks_;
  BenchSettings settings_;
  std::vector<Contender> contenders_;
  std::int64_t ring_sent_ = 0;
};

[[nodiscard]] std::optional<BenchSettings> parse(int argc, char** argv) {
  BenchSettings settings;
  if (argc < 2) return std::nullopt;
  settings.mode = argv[1];
  if (settings.mode != "memory" && settings.mode != "speed") return std::nullopt;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::int64_t value = std::atoll(argv[i + 1]);
    const std::string_view name = argv[i];
    if (value < 1) return std::nullopt;
    if (name == "--tokens") {
      settings.tokens = value;
    } else if (name == "--rounds") {
      settings.rounds = static_cast<int>(value);
    } else {
      return std::nullopt;
    }
  }
  return argc % 2 == 0 ? std::optional(settings) : std::nullopt;
}

int run(int argc, char** argv) {
  Communicator ranks(MPI_COMM_WORLD, {.patience = std::chrono::minutes(10)});
  const std::optional<BenchSettings> settings = parse(argc, argv);
  if (!settings) {
    if (ranks.rank() == 0)
      std::fputs("usage: parallel_bench memory|speed [--tokens N] [--rounds N]\n", stderr);
    return 2;
  }
  try {
    ranks.guarded([&] {
      RanksBench bench(ranks, *settings);
      settings->mode == "memory" ? bench.memory() : bench.speed();
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "parallel_bench: rank %d: %s\n", ranks.rank(), error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const int code = phasor::bench::run(argc, argv);
  MPI_Finalize();
  return code;
}
