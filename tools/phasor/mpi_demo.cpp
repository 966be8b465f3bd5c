#include "mpi_demo.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "demo_page.hpp"
#include "embedded_model.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/parallel/attention.hpp"
#include "phasor/parallel/models.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::tools {
namespace {

using attention::AttentionPasses;
using core::ConstHeadsView;
using core::HeadsView;

constexpr std::int64_t kHeads = 8, kDim = 64;

// Numbers of the whole sequence, the same on every rank: a wave with a length of its own for each array.
std::vector<float> wave(std::int64_t tokens, double length) {
  std::vector<float> numbers(static_cast<std::size_t>(tokens * kHeads * kDim));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>(std::sin(static_cast<double>(i) / length));
  return numbers;
}

class RankDemo : DemoPage {
 public:
  RankDemo(DemoForm form, parallel::Communicator& all) : DemoPage(form), all_(all) {
    rope_.rotation =
        core::Rotary{core::make_frequencies({kDim, 10000.0}), core::PairLayout::half, kDim};
    rope_.scale = 1.0 / std::sqrt(static_cast<double>(kDim));
  }

  int run() {
    out("phasor demo on {} ranks: what is divided between processes, compared with one\n",
        all_.size());
    attention();
    speed();
    model();
    return finish();
  }

 private:
  // Rows of this rank's tokens.
  [[nodiscard]] std::vector<float> mine(const std::vector<float>& whole,
                                        const parallel::Shards& shards) const {
    constexpr auto kRow = static_cast<std::size_t>(kHeads * kDim);
    std::vector<float> rows;
    for (const std::int64_t token : shards.tokens_of(all_.rank())) {
      const auto at =
          whole.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(token) * kRow);
      rows.insert(rows.end(), at, at + kRow);
    }
    return rows;
  }
  template <class T>
  [[nodiscard]] static auto view(T& numbers) {
    return core::heads_view(numbers.data(), 1,
                            static_cast<std::int64_t>(numbers.size()) / (kHeads * kDim), kHeads,
                            kDim);
  }
  [[nodiscard]] double largest(double value) const {
    all_.max(std::span(&value, 1));
    return value;
  }
  [[nodiscard]] static attention::AttentionSizes sizes(std::int64_t tokens) {
    return {.queries = tokens,
            .keys = tokens,
            .heads = kHeads,
            .key_heads = kHeads,
            .head_dim = kDim,
            .value_dim = kDim};
  }
  [[nodiscard]] static attention::AttentionOptions causal() {
    return {.causality = attention::Causality::bottom_right, .threads = 1};
  }

  void attention() {
    constexpr std::int64_t kTokens = 4099;  // does not divide evenly
    title(fmt::format("Ring attention: {} tokens, {} heads of {}, causal, RoPE, zigzag order",
                      kTokens, kHeads, kDim));
    const std::vector<float> q = wave(kTokens, 7.3), k = wave(kTokens, 5.1), v = wave(kTokens, 3.7);
    std::vector<float> whole(q.size());
    attention::AttentionPlan alone(rope_, sizes(kTokens), causal());
    alone.run(view(q), view(k), view(v), view(whole));

    parallel::RingPlan ring(all_, rope_, sizes(kTokens), causal(),
                            {.order = parallel::TokenOrder::zigzag});
    const std::vector<float> my_q = mine(q, ring.queries()), my_k = mine(k, ring.keys()),
                             my_v = mine(v, ring.keys()), expected = mine(whole, ring.queries());
    std::vector<float> out_rows(my_q.size());
    ring.run(view(my_q), view(my_k), view(my_v), view(out_rows));
    double error = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      error = std::max(error, std::fabs(double{out_rows[i]} - double{expected[i]}));
    out("   rank 0 holds {} tokens, sends {:.2f} MiB of keys and values, and has {:.1f} MiB for "
        "it\n",
        ring.queries().count(0), static_cast<double>(ring.bytes_sent()) / 0x1p20,
        static_cast<double>(ring.bytes()) / 0x1p20);
    check(largest(error) <= 1e-5,
          fmt::format("every row equals that of one process to {:.0e}", largest(error)));
    const parallel::RingBytes formula =
        parallel::ring_bytes(sizes(kTokens), causal(), {.order = parallel::TokenOrder::zigzag},
                             all_.size(), all_.rank());
    check(largest(ring.bytes_sent() == formula.keys_and_values ? 0.0 : 1.0) == 0.0,
          "each rank sent the bytes of the formula");
  }

  // Shown, not checked: ranks may share cores with other programs.
  void speed() {
    constexpr std::int64_t kTokens = 8192;
    title(fmt::format("Speed: {} tokens, one thread a rank, one rank against {}", kTokens,
                      all_.size()));
    const std::vector<float> q = wave(kTokens, 7.3), k = wave(kTokens, 5.1), v = wave(kTokens, 3.7);
    std::vector<float> whole(q.size());
    attention::AttentionPlan alone(rope_, sizes(kTokens), causal());
    parallel::RingPlan ring(all_, rope_, sizes(kTokens), causal(),
                            {.order = parallel::TokenOrder::zigzag});
    const std::vector<float> my_q = mine(q, ring.queries()), my_k = mine(k, ring.keys()),
                             my_v = mine(v, ring.keys());
    std::vector<float> out_rows(my_q.size());
    std::vector<double> one, all;
    for (int round = 0; round < 5; ++round) {
      one.push_back(seconds([&] {
        if (all_.rank() == 0) alone.run(view(q), view(k), view(v), view(whole));
      }));
      all.push_back(seconds([&] { ring.run(view(my_q), view(my_k), view(my_v), view(out_rows)); }));
    }
    std::sort(one.begin(), one.end());
    std::sort(all.begin(), all.end());
    const double ratio = one[one.size() / 2] / all[all.size() / 2];
    out("   one rank {:.0f} ms, {} ranks {:.0f} ms: {:.2f} times as fast\n",
        1e3 * one[one.size() / 2], all_.size(), 1e3 * all[all.size() / 2], ratio);
    json()["speed"] = {{"ranks", all_.size()},
                       {"one_rank_s", one[one.size() / 2]},
                       {"ranks_s", all[all.size() / 2]},
                       {"ratio", ratio}};
  }
  template <class Work>
  [[nodiscard]] double seconds(const Work& work) const {
    all_.barrier();
    const auto start = std::chrono::steady_clock::now();
    work();
    all_.barrier();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void model() {
    title("The model inside this command: its context divided over ranks");
    const std::unique_ptr<text::Tokenizer> tokenizer = embedded_tokenizer();
    models::Decoder decoder =
        models::Decoder::load(embedded_checkpoint(), {.threads = 1}).value_or_throw();
    std::vector<std::int64_t> ids;
    while (static_cast<std::int64_t>(ids.size()) < decoder.facts().trained_length) {
      const auto more = text::prompt_ids(*tokenizer, "It is a truth universally acknowledged. ");
      ids.insert(ids.end(), more.begin(), more.end());
    }
    const auto capacity = static_cast<std::int64_t>(ids.size());
    models::Sequence alone = decoder.sequence({.capacity = capacity});
    const models::Step whole{&alone, ids};
    const models::ForwardResult expected = decoder.forward(std::span(&whole, 1));
    parallel::SharedContext context(all_);
    models::Sequence shared = decoder.sequence({.capacity = capacity, .share = &context});
    const models::Step divided{&shared, ids};
    const models::ForwardResult got = decoder.forward(std::span(&divided, 1));
    double error = 0.0, scale = 0.0;
    for (std::size_t i = 0; i < expected.logits.size(); ++i) {
      error = std::max(error, std::fabs(double{got.logits[i]} - double{expected.logits[i]}));
      scale = std::max(scale, std::fabs(double{expected.logits[i]}));
    }
    out("   {} tokens; the cache of rank 0 has {} KiB instead of {}\n", ids.size(),
        shared.bytes() / 1024, alone.bytes() / 1024);
    check(largest(error) <= 1e-4 * scale,
          fmt::format("the logits of the last token equal those of one rank to {:.0e}",
                      largest(error)));
    out("   `mpirun -n {} phasor eval|logits|run` does so for any model; `lab run` divides "
        "batches.\n",
        all_.size());
  }

  parallel::Communicator& all_;
  encodings::ScoreTerms rope_;
};

}  // namespace

void add_rank_demo(CommandLine& line, parallel::Communicator& all) {
  std::erase_if(line.verbs, [](const Verb& verb) { return verb.name == "demo"; });
  const auto json = std::make_shared<bool>(false);
  Verb& verb = line.verb("demo", "attention and a model over ranks, compared with one rank");
  verb.flag("--json", json.get(), "print checks and speed as one JSON object");
  verb.footer =
      R"(Divides the tokens of an attention and of a model over the ranks that mpirun has started,
and compares with one rank. Exit 1 if a check fails; speed is shown, not checked.

Example  mpirun -n 2 phasor demo)";
  verb.runs_on_ranks = true;
  verb.action = [json, &all] {
    return RankDemo(*json ? DemoForm::json : DemoForm::text, all).run();
  };
}

}  // namespace phasor::tools
