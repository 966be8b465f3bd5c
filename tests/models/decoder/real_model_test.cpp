// A real model on every instruction set of this machine: golden logits and tokens, and what the
// fast mode costs. PHASOR_MODELS names the folder that holds the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "phasor/core/cpu.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/text/tokenizer.hpp"
#include "support/golden_array.hpp"

namespace phasor::models {
namespace {

using Ids = std::vector<std::int64_t>;
constexpr std::int64_t kVocabulary = 49152;

class RealModel : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("PHASOR_MODELS");
    if (folder == nullptr) GTEST_SKIP() << "PHASOR_MODELS names no folder of models";
    file_ = std::filesystem::path(folder) / "SmolLM2-135M-Instruct.Q4_1.gguf";
  }
  [[nodiscard]] Decoder load(const ComputeOptions& options = {}) const {
    return Decoder::load(file_, options).value_or_throw();
  }
  // English prose with numbers, names and markup in it.
  [[nodiscard]] Ids text_ids(std::size_t count) const {
    const std::string text =
        io::read_text(std::filesystem::path(PHASOR_GOLDEN_DIR) / "README.md").value_or_throw();
    Ids ids = text::read_tokenizer(file_).value_or_throw()->encode(text);
    ids.resize(count);
    return ids;
  }
  std::filesystem::path file_;
};

std::vector<float> run(Decoder& decoder, Sequence& sequence, std::span<const std::int64_t> ids,
                       LogitsOf logits) {
  const Step step{&sequence, ids};
  return decoder.forward({&step, 1}, {logits, HiddenStates::leave}).logits;
}

std::int64_t largest(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

TEST_F(RealModel, GivesTheGoldenLogitsAndTokensOnEveryInstructionSet) {
  for (const core::InstructionSet isa : core::available_instruction_sets()) {
    SCOPED_TRACE(core::name_of(isa));
    Decoder decoder = load({.isa = isa});
    // Only decoding for the slower levels.
    const bool slow =
        isa == core::InstructionSet::generic || isa == core::InstructionSet::x86_64_v2;
    for (const std::string name : {"smollm2_short", "smollm2_passage"}) {
      if (slow && name == "smollm2_passage") continue;
      const std::string folder = "real_models/" + name;
      const Ids ids = tests::golden_array<std::int64_t>(folder + "/input_ids.npy");
      const auto truth = tests::golden_array<double>(folder + "/last_logits_f64.npy");
      const Ids expected = tests::golden_array<std::int64_t>(folder + "/generated.npy");
      Sequence sequence = decoder.sequence({.capacity = 96});
      std::vector<float> logits = run(decoder, sequence, ids, LogitsOf::last_token);
      for (std::size_t i = 0; i < truth.size(); ++i) {
        ASSERT_NEAR(logits[i], truth[i], 0.002 + 1e-4 * std::abs(truth[i])) << name << ' ' << i;
      }
      Ids tokens;
      while (tokens.size() < (slow ? 4 : expected.size())) {
        tokens.push_back(largest(logits));
        logits = run(decoder, sequence, {&tokens.back(), 1}, LogitsOf::last_token);
      }
      EXPECT_EQ(tokens, Ids(expected.begin(),
                            expected.begin() + static_cast<std::ptrdiff_t>(tokens.size())));
    }
  }
}

// How far the fast mode's next-token distributions are from the exact ones, tokens given.
struct Quality {
  double mean_divergence = 0.0;  // KL(exact, fast), nats
  double same_first = 0.0;       // share of positions with the same likeliest token
};

Quality quality_of(std::span<const float> exact, std::span<const float> fast) {
  Quality quality;
  const std::size_t rows = exact.size() / kVocabulary;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::span<const float> p = exact.subspan(row * kVocabulary, kVocabulary);
    const std::span<const float> q = fast.subspan(row * kVocabulary, kVocabulary);
    const auto log_sum = [](std::span<const float> x) {
      const double top = *std::max_element(x.begin(), x.end());
      double sum = 0.0;
      for (const float value : x) sum += std::exp(static_cast<double>(value) - top);
      return top + std::log(sum);
    };
    const double log_p = log_sum(p);
    const double log_q = log_sum(q);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double a = static_cast<double>(p[i]) - log_p;
      quality.mean_divergence += std::exp(a) * (a - static_cast<double>(q[i]) + log_q);
    }
    quality.same_first += largest(p) == largest(q) ? 1.0 : 0.0;
  }
  quality.mean_divergence /= static_cast<double>(rows);
  quality.same_first /= static_cast<double>(rows);
  return quality;
}

TEST_F(RealModel, FastModeStaysCloseWhetherItReadsAtOnceOrTokenByToken) {
  constexpr std::size_t kTokens = 440;
  const Ids ids = text_ids(kTokens);
  Decoder decoder = load();
  Sequence exact_sequence = decoder.sequence({.capacity = kTokens});
  const std::vector<float> exact = run(decoder, exact_sequence, ids, LogitsOf::every_token);
  const auto check = [&](const std::string& what, std::span<const float> fast) {
    const Quality quality = quality_of(exact, fast);
    RecordProperty("divergence_" + what, std::to_string(quality.mean_divergence));
    RecordProperty("same_first_" + what, std::to_string(quality.same_first));
    EXPECT_LE(quality.mean_divergence, 0.005) << what;
    // Of 440 tokens: near-ties make two builds of the same precision differ by four of them.
    EXPECT_GE(quality.same_first, 0.96) << what;
    EXPECT_GT(quality.mean_divergence, 0.0) << what;
  };
  for (const core::InstructionSet isa : core::available_instruction_sets()) {
    if (isa < core::InstructionSet::x86_64_v3) continue;
    decoder.set_options({.precision = Precision::fast, .isa = isa});
    Sequence whole = decoder.sequence({.capacity = kTokens});
    check("at_once_" + std::string(core::name_of(isa)),
          run(decoder, whole, ids, LogitsOf::every_token));
  }
  decoder.set_options({.precision = Precision::fast});
  Sequence stream = decoder.sequence({.capacity = kTokens});
  std::vector<float> streamed;
  for (const std::int64_t& id : ids) {
    const std::vector<float> row = run(decoder, stream, {&id, 1}, LogitsOf::last_token);
    streamed.insert(streamed.end(), row.begin(), row.end());
  }
  check("by_token", streamed);
}

}  // namespace
}  // namespace phasor::models
