// phasor demo: worked example, laws, accuracy and speed in a few seconds, without any file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "core/buffer.hpp"
#include "core/limits.hpp"
#include "core/timing.hpp"
#include "demo_model.hpp"
#include "demo_page.hpp"
#include "embedded_model.hpp"
#include "output.hpp"
#include "phasor/attention/decay.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/models/generate.hpp"
#include "phasor/text/tokenizer.hpp"
#include "terminal_plot.hpp"
#include "text_lines.hpp"
#include "worked_example.hpp"

namespace phasor::tools {
namespace {

using core::PairLayout;

class Demo : DemoPage {
 public:
  explicit Demo(DemoForm form) : DemoPage(form) {}

  int run() {
    out("phasor demo: rotary position embedding, checked on known numbers and measured on this "
        "machine\n");
    worked_example();
    shifted_positions();
    layouts();
    decay();
    accuracy();
    model();
    text();
    speed();
    return finish();
  }

 private:
  void worked_example() {
    namespace example = worked_example;
    title("The worked example: batch 2, 5 tokens, 2 query heads, 1 key head, head_dim 8");
    std::vector<float> q(std::size(example::kQueries)), k(std::size(example::kKeys));
    std::iota(q.begin(), q.end(), 0.0F);
    std::iota(k.begin(), k.end(), 0.0F);
    const std::vector<float> before = q;
    const core::Rotary rotary{core::make_frequencies({example::kHeadDim, 10000.0}),
                              PairLayout::interleaved, example::kHeadDim};
    core::rotate_qk(rotary, core::positions_from(0),
                    core::heads_view(q.data(), example::kBatch, example::kTokens,
                                     example::kQueryHeads, example::kHeadDim),
                    core::heads_view(k.data(), example::kBatch, example::kTokens,
                                     example::kKeyHeads, example::kHeadDim));
    for (const int token : {0, 1, 2}) {
      const std::size_t head = static_cast<std::size_t>(token) * 16 + 8;  // the second query head
      out("   position {}  q ", token);
      for (std::size_t i = head; i < head + 8; ++i) out("{:8.0f}", before[i]);
      out("\n         rotated ");
      for (std::size_t i = head; i < head + 8; ++i) out("{:8.4f}", q[i]);
      out("\n");
    }
    const auto agreeing = [](const std::vector<float>& got, const float* printed) {
      std::size_t count = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        count += std::fabs(got[i] - printed[i]) <=
                         example::kPrintedTolerance + 1e-6 * std::fabs(printed[i])
                     ? 1
                     : 0;
      }
      return count;
    };
    const std::size_t q_same = agreeing(q, example::kQueries), k_same = agreeing(k, example::kKeys);
    check(q_same == q.size() && k_same == k.size(),
          fmt::format(
              "{} of {} query and {} of {} key values equal the published ones to four decimals",
              q_same, q.size(), k_same, k.size()));
  }

  static std::vector<double> sample(int dim, double phase) {
    std::vector<double> x(static_cast<std::size_t>(dim));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = std::sin(phase + 1.7 * static_cast<double>(i * i));
    return x;
  }
  static double score(const core::Rotary& rotary, std::vector<double> q, std::int64_t m,
                      std::vector<double> k, std::int64_t n) {
    const auto dim = static_cast<std::int64_t>(q.size());
    core::rotate(rotary, core::positions_from(m), core::heads_view(q.data(), 1, 1, 1, dim));
    core::rotate(rotary, core::positions_from(n), core::heads_view(k.data(), 1, 1, 1, dim));
    return std::inner_product(q.begin(), q.end(), k.begin(), 0.0);
  }

  void shifted_positions() {
    title("Scores depend only on the distance m - n, equation (16)");
    const core::Rotary rotary{core::make_frequencies({128, 10000.0}), PairLayout::half, 128};
    const std::vector<double> q = sample(128, 0.3), k = sample(128, 1.1);
    double low = 0.0, high = 0.0;
    for (const std::int64_t shift : {0, 1000, 131072, 16777216}) {
      const double s = score(rotary, q, 9 + shift, k, 2 + shift);
      low = shift == 0 ? s : std::min(low, s);
      high = shift == 0 ? s : std::max(high, s);
      out("   q at {:>8}, k at {:>8}: score {:.15f}\n", 9 + shift, 2 + shift, s);
    }
    check(high - low < 1e-12,
          fmt::format("equal to {:.0e} from position 2 to 16777218", high - low));
  }

  void layouts() {
    title("The two pair layouts are permutations of each other");
    const int dim = 8;
    const std::int64_t position = 3;
    const core::Frequencies frequencies = core::make_frequencies({dim, 10000.0});
    std::vector<double> pairs = sample(dim, 0.5), halves(pairs.size());
    for (std::size_t i = 0; i < dim / 2; ++i) {
      halves[i] = pairs[2 * i];
      halves[i + dim / 2] = pairs[2 * i + 1];
    }
    core::rotate({frequencies, PairLayout::interleaved, dim}, core::positions_from(position),
                 core::heads_view(pairs.data(), 1, 1, 1, dim));
    core::rotate({frequencies, PairLayout::half, dim}, core::positions_from(position),
                 core::heads_view(halves.data(), 1, 1, 1, dim));
    out("   interleaved  pair i = features (2i, 2i+1)     rotated: ");
    for (const double value : pairs) out("{:8.4f}", value);
    out("\n   half         pair i = features (i, i + d/2)   rotated: ");
    for (const double value : halves) out("{:8.4f}", value);
    double worst = 0.0;
    for (std::size_t i = 0; i < dim / 2; ++i) {
      worst = std::max({worst, std::fabs(halves[i] - pairs[2 * i]),
                        std::fabs(halves[i + dim / 2] - pairs[2 * i + 1])});
    }
    out("\n");
    check(worst < 1e-15,
          "the results are equal: features (2i, 2i+1) of one are (i, i + d/2) of the other");
  }

  void decay() {
    title(
        "The long-term decay, equations (35)-(37): mean |S_j| over distance, d = 128, base 10000");
    const core::Frequencies frequencies = core::make_frequencies({128, 10000.0});
    std::vector<double> distances(257);
    std::iota(distances.begin(), distances.end(), 0.0);
    const std::vector<double> means = attention::mean_partial_sums(frequencies, distances);
    out("{}", terminal_plot(means,
                            {.width = 64, .height = 11, .indent = 3, .x_label = "distance m - n"}));
    check(means[256] < means[64] && means[64] < means[0],
          fmt::format("it falls from {:.1f} at distance 0 to {:.1f} at 64 and {:.1f} at 256",
                      means[0], means[64], means[256]));
  }

  void accuracy() {
    title("Angles: position x frequency in float32, as other engines do it, compared with phasor");
    // Also holds the frequencies of an engine that computes them in float32.
    const core::Frequencies frequencies =
        encodings::resolve_frequencies({.head_dim = 128, .rotary_dim = 128, .base = 10000.0});
    const auto pairs = static_cast<std::size_t>(frequencies.pairs());
    out("   {:>10}  {:>22}  {:>22}\n", "position", "float32 angles, error", "phasor, error");
    double ours_worst = 0.0;
    for (const double position : {4095.0, 131071.0, 1048575.0, 16777215.0}) {
      std::vector<float> other_cos(pairs), other_sin(pairs), cos(pairs), sin(pairs);
      std::vector<double> exact_cos(pairs), exact_sin(pairs);
      core::cos_sin(frequencies, {&position, 1}, other_cos, other_sin, core::AngleMode::float32);
      core::cos_sin(frequencies, {&position, 1}, cos, sin);
      core::cos_sin(frequencies, {&position, 1}, exact_cos, exact_sin);
      double other = 0.0, ours = 0.0;
      for (std::size_t i = 0; i < pairs; ++i) {
        other = std::max({other, std::fabs(other_cos[i] - exact_cos[i]),
                          std::fabs(other_sin[i] - exact_sin[i])});
        ours = std::max({ours, std::fabs(cos[i] - exact_cos[i]), std::fabs(sin[i] - exact_sin[i])});
      }
      ours_worst = std::max(ours_worst, ours);
      out("   {:>10.0f}  {:>22.1e}  {:>22.1e}\n", position, other, ours);
    }
    check(ours_worst <= 0x1p-25, "phasor gives the nearest float32 number at every position");
  }

  void model() {
    title("A tiny decoder: synthetic weights, 32 tokens, logits of the last one");
    const TinyModelCheck tiny = check_tiny_model();
    check(tiny.one_by_one <= 1e-4 * tiny.largest_logit,
          fmt::format("one token at a time or all at once: equal to {:.0e}", tiny.one_by_one));
    check(tiny.shifted <= 1e-4 * tiny.largest_logit,
          fmt::format(
              "after dropping the first 40 tokens and re-rotating the cached keys: equal to {:.0e}",
              tiny.shifted));
  }

  // The sampler is seeded: the same text on every machine that computes the same logits.
  void text() {
    title("A trained model inside this command: English, byte by byte, with RoPE");
    models::Decoder decoder =
        models::Decoder::load(embedded_checkpoint(), {.threads = 1}).value_or_throw();
    const std::unique_ptr<text::Tokenizer> tokenizer = embedded_tokenizer();
    constexpr std::string_view kPrompt = "It is a truth";
    models::GenerateOptions options;
    options.tokens = 180;
    options.context = decoder.facts().trained_length;
    options.sampler.temperature = 0.5;
    options.sampler.seed = 1;
    models::Generator generator(decoder);
    const models::GenerateResult result =
        generator.generate(text::prompt_ids(*tokenizer, kPrompt), options);
    std::string answer = std::string(kPrompt) + tokenizer->decode(result.ids);
    json()["text"] = answer;
    out("   {} parameters, {:.0f} tokens/s\n\n", decoder.facts().parameters,
        static_cast<double>(result.ids.size()) / result.decode_seconds);
    std::replace(answer.begin(), answer.end(), '\n', ' ');
    out("{}", in_lines("   ", answer));
    out("\n   `phasor run --embedded -p TEXT` continues yours, `phasor run MODEL -p TEXT` runs "
        "real "
        "models;\n   `./dev model` downloads one (93 MB), `phasor lab run worked-model` trains "
        "this "
        "one again.\n");
  }

  void speed() {
    constexpr std::int64_t kTokens = 4096, kHeads = 32, kDim = 128;
    title(
        "Speed: rotating a buffer compared with scaling it, 4096 tokens x 32 heads x 128 (64 MiB), "
        "float32");
    const core::Frequencies frequencies = core::make_frequencies({kDim, 10000.0});
    const bench::Buffer x(static_cast<std::size_t>(kTokens * kHeads * kDim) * sizeof(float));
    out("   {:<34} {:>10} {:>10}  {:>6}\n",
        core::name_of(core::available_instruction_sets().back()), "rotate", "scale", "ratio");
    std::vector<int> thread_counts = {1};
    if (core::available_threads() > 1) thread_counts.push_back(core::available_threads());
    for (const PairLayout layout : {PairLayout::interleaved, PairLayout::half}) {
      for (const int threads : thread_counts) {
        const core::Rotary rotary{frequencies, layout, kDim};
        const auto contest = bench::compare(
            [&] {
              core::rotate(rotary, core::positions_from(0),
                           core::heads_view(x.floats(), 1, kTokens, kHeads, kDim),
                           {.threads = threads});
            },
            [&] {
              bench::scale_in_place(core::InstructionSet::best, threads, x.floats(), x.count());
            },
            15);
        json()["speed"].push_back({{"layout", core::name_of(layout)},
                                   {"threads", threads},
                                   {"rotate_us", contest.ours_us},
                                   {"scale_us", contest.against_us},
                                   {"ratio", contest.ratio}});
        const std::string how = fmt::format("{}, {} thread{}, no table", core::name_of(layout),
                                            threads, threads == 1 ? "" : "s");
        out("   {:<34} {:>7.2f} ms {:>7.2f} ms  {:>6.2f}\n", how, contest.ours_us / 1e3,
            contest.against_us / 1e3, contest.ratio);
      }
    }
    out("   A ratio of 1 means that rotation runs at memory speed. `phasor bench` measures "
        "more.\n");
  }
};

}  // namespace

void add_demo(CommandLine& line) {
  const auto json = std::make_shared<bool>(false);
  Verb& verb = line.verb(
      "demo", "worked example, decay, accuracy, a tiny model and speed, in a few seconds");
  verb.flag("--json", json.get(), "print checks and speed as one JSON object");
  verb.footer =
      R"(Rotates a worked example and checks every value, then shows that scores depend only on the
distance, the two layouts, the decay curve, the error of float32 angles, a tiny model, text
of a trained one, and the speed compared with memory speed. Needs no file. Exit 1 if a check fails; speed is shown, not
checked.

Example  phasor demo)";
  verb.action = [json] { return Demo(*json ? DemoForm::json : DemoForm::text).run(); };
}

}  // namespace phasor::tools
