// Generation on the tiny golden decoders.
#include "phasor/models/generate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/decoder/decoder_support.hpp"
#include "phasor/core/error.hpp"
#include "support/errors.hpp"

namespace phasor::models {
namespace {

using testing::decoder_of;
using testing::Ids;
using testing::some_ids;

Ids golden_array(const std::string& path) {
  return tests::golden_array<std::int64_t>("models/" + path + ".npy");
}

class GenerateGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(GenerateGolden, GreedyTokensAreThoseOfTheReference) {
  const std::string name = GetParam();
  Decoder decoder = decoder_of(name);
  const Ids prompt = golden_array(name + "/input_ids");
  for (const std::int64_t chunk : {std::int64_t{512}, std::int64_t{3}}) {
    Generator generator(decoder);
    const GenerateResult result = generator.generate(prompt, {.tokens = 16, .chunk = chunk});
    EXPECT_EQ(result.ids, golden_array(name + "/generated")) << "chunk " << chunk;
    EXPECT_EQ(result.reason, StopReason::tokens);
    EXPECT_EQ(result.prompt_tokens, 14);
    EXPECT_EQ(result.cached_tokens, 0);
  }
}

TEST_P(GenerateGolden, PaddedBatchIsItsRows) {
  const std::string name = GetParam();
  Decoder decoder = decoder_of(name);
  const Ids padded = golden_array(name + "/padded_input_ids");
  std::vector<std::uint8_t> mask;
  for (const std::int64_t value : golden_array(name + "/padded_attention_mask"))
    mask.push_back(static_cast<std::uint8_t>(value));
  const MaskedBatch batch = unpad(padded, mask, 2);
  const Ids expected = golden_array(name + "/padded_generated");
  for (const std::int64_t chunk : {std::int64_t{512}, std::int64_t{8}}) {
    const auto results = generate_batch(decoder, batch.rows, {.tokens = 16, .chunk = chunk});
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(results[0].ids, Ids(expected.begin(), expected.begin() + 16));
    EXPECT_EQ(results[1].ids, Ids(expected.begin() + 16, expected.end()));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GenerateGolden,
                         ::testing::Values("llama_gqa_llama3", "mistral_sliding",
                                           "phi3_longrope_partial"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Generate, CrossingTheOriginalLengthOfLongropeIsTheReference) {
  Decoder decoder = decoder_of("phi3_longrope_partial");
  const Ids expected = golden_array("phi3_longrope_partial/switch_generated");
  const auto tokens = static_cast<std::int64_t>(expected.size());
  const Ids prompt = golden_array("phi3_longrope_partial/switch_input_ids");
  Generator generator(decoder);
  EXPECT_EQ(generator.generate(prompt, {.tokens = tokens}).ids, expected);
  // Keys cached with the long factors cannot serve a short prompt, even one that begins the same.
  const GenerateResult again = generator.generate(prompt, {.tokens = tokens});
  EXPECT_EQ(again.cached_tokens, 0);
  EXPECT_EQ(again.ids, expected);
}

TEST(Generate, PromptCacheGivesTheTokensOfAFreshRun) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  Generator generator(decoder);
  const Ids first = some_ids(20);
  const GenerateResult answer = generator.generate(first, {.tokens = 10});
  // The last token of an answer is not run, the others are.
  Ids all = first;
  all.insert(all.end(), answer.ids.begin(), answer.ids.end());
  EXPECT_TRUE(std::equal(all.begin(), all.end() - 1, generator.cached_ids().begin(),
                         generator.cached_ids().end()));

  Ids second = all;
  const Ids later = some_ids(7, 9);
  second.insert(second.end(), later.begin(), later.end());
  Ids other = second;
  other[25] = (other[25] + 1) % 97;
  struct Case {
    Ids prompt;
    std::int64_t cached;
  };
  // The conversation continued, one that differs from token 25 on, the same again (its last token runs
  // once more), one that differs from the start.
  for (const Case& c : {Case{second, 29}, Case{other, 25}, Case{other, 36}, Case{later, 0}}) {
    const GenerateResult warm = generator.generate(c.prompt, {.tokens = 12});
    EXPECT_EQ(warm.cached_tokens, c.cached);
    Generator fresh(decoder);
    EXPECT_EQ(warm.ids, fresh.generate(c.prompt, {.tokens = 12}).ids);
  }
}

TEST(Generate, ShiftsAndGoesOnForTenWindows) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  const Ids prompt = some_ids(20);
  const GenerateOptions options{
      .tokens = 320, .context = 32, .when_full = WindowFull::shift, .keep = 4};
  Generator generator(decoder);
  const GenerateResult result = generator.generate(prompt, options);
  EXPECT_EQ(result.ids.size(), 320u);
  // 12 tokens fill the window; each shift then drops (32 - 4) / 2 = 14 of them.
  EXPECT_EQ(result.shifts, 1 + (320 - 1 - 12 - 1) / 14);
  EXPECT_LE(generator.cached_ids().size(), 32u);
  EXPECT_TRUE(std::equal(prompt.begin(), prompt.begin() + 4, generator.cached_ids().begin()));

  // Until the window is full, nothing differs from a run without shift; the first token after the
  // shift comes from keys that moved, the same ones every time.
  Generator plain(decoder), again(decoder);
  const GenerateResult unshifted = plain.generate(prompt, {.tokens = 13});
  EXPECT_TRUE(std::equal(unshifted.ids.begin(), unshifted.ids.end(), result.ids.begin()));
  EXPECT_EQ(again.generate(prompt, options).ids, result.ids);

  // By hand: the same tokens through a sequence that is shifted at the same place.
  Sequence sequence = decoder.sequence({.capacity = 32});
  Ids window = prompt;
  window.insert(window.end(), result.ids.begin(), result.ids.begin() + 12);
  const Step fill{&sequence, window};
  (void)decoder.forward({&fill, 1});
  sequence.shift(4, 14);
  const Step next{&sequence, std::span(result.ids).subspan(12, 1)};
  EXPECT_EQ(Sampler({}).next(decoder.forward({&next, 1}).logits, {}), result.ids[13]);

  // Only the kept tokens are as a fresh run would have them.
  const GenerateResult warm = generator.generate(prompt, {.tokens = 12});
  EXPECT_EQ(warm.cached_tokens, 4);
  EXPECT_TRUE(std::equal(warm.ids.begin(), warm.ids.end(), result.ids.begin()));
}

TEST(Generate, StopTokensAndCancellation) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  const Ids prompt = golden_array("llama_gqa_llama3/input_ids");
  const Ids expected = golden_array("llama_gqa_llama3/generated");
  const std::int64_t stop = expected[6];
  Generator generator(decoder);
  const GenerateResult stopped = generator.generate(prompt, {.tokens = 16, .stops = {stop}});
  EXPECT_EQ(stopped.ids, Ids(expected.begin(), std::find(expected.begin(), expected.end(), stop)));
  EXPECT_EQ(stopped.reason, StopReason::stop_token);

  Ids given;
  const GenerateResult cancelled = generator.generate(prompt, {.tokens = 16}, [&](std::int64_t id) {
    given.push_back(id);
    return given.size() < 3;
  });
  EXPECT_EQ(cancelled.reason, StopReason::cancelled);
  EXPECT_EQ(cancelled.ids, Ids(expected.begin(), expected.begin() + 3));
  EXPECT_EQ(given, cancelled.ids);
  EXPECT_TRUE(generator.generate(prompt, {.tokens = 0}).ids.empty());
}

TEST(Generate, TokenByTokenIsTheWholeAnswer) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  const Ids prompt = golden_array("llama_gqa_llama3/input_ids");
  const Ids expected = golden_array("llama_gqa_llama3/generated");
  const Ids other = some_ids(9);
  const Ids others = Generator(decoder).generate(other, {.tokens = 16}).ids;

  // Answers of two generators alternate on one decoder, and outlive the generators.
  Generation first = Generator(decoder).start(prompt, {.tokens = 16});
  Generation second = Generator(decoder).start(other, {.tokens = 16});
  EXPECT_EQ(first.result().prompt_tokens, 14);
  EXPECT_EQ(first.result().prompt_seconds, 0.0);  // nothing ran yet
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(first.next(), expected[i]) << i;
    EXPECT_EQ(second.next(), others[i]) << i;
  }
  EXPECT_EQ(first.next(), std::nullopt);
  EXPECT_EQ(first.next(), std::nullopt);
  EXPECT_EQ(first.result().ids, expected);
  EXPECT_EQ(first.result().reason, StopReason::tokens);
}

TEST(Generate, AnAnswerEndsWhereItIsCancelledOrAnotherBegins) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  Generator generator(decoder);
  Generation cancelled = generator.start(some_ids(5), {.tokens = 16});
  (void)cancelled.next();
  cancelled.cancel();
  EXPECT_EQ(cancelled.next(), std::nullopt);
  EXPECT_EQ(cancelled.result().reason, StopReason::cancelled);
  EXPECT_EQ(cancelled.result().ids.size(), 1u);

  Generation early = generator.start(some_ids(5), {.tokens = 16});
  (void)early.next();
  EXPECT_THROW((void)generator.start({}, {}), Error);  // a refusal is no beginning
  EXPECT_NE(early.next(), std::nullopt);
  Generation late = generator.start(some_ids(6), {.tokens = 16});
  EXPECT_THROW((void)early.next(), Error);
  EXPECT_EQ(early.next(), std::nullopt);
  EXPECT_EQ(late.next(), Generator(decoder).generate(some_ids(6), {.tokens = 1}).ids.front());
  EXPECT_EQ(Generator(decoder).start({{1}}, {.tokens = 0}).next(), std::nullopt);
}

TEST(Generate, BatchEqualsSingles) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  const std::vector<Ids> prompts = {some_ids(9, 2), some_ids(1, 3), some_ids(23, 4)};
  GenerateOptions options{.tokens = 20, .chunk = 12};
  options.sampler = {.temperature = 0.8, .top_k = 20, .seed = 4};
  std::vector<Ids> singles;
  for (const Ids& prompt : prompts)
    singles.push_back(Generator(decoder).generate(prompt, options).ids);
  // A stop token that ends the second row early; the others continue.
  options.stops = {singles[1][4]};
  const std::vector<GenerateResult> batch = generate_batch(decoder, prompts, options);
  ASSERT_EQ(batch.size(), 3u);
  for (std::size_t row = 0; row < 3; ++row) {
    const auto end = std::find(singles[row].begin(), singles[row].end(), options.stops[0]);
    EXPECT_EQ(batch[row].ids, Ids(singles[row].begin(), end)) << "row " << row;
    EXPECT_EQ(batch[row].reason,
              end == singles[row].end() ? StopReason::tokens : StopReason::stop_token);
  }
  EXPECT_TRUE(generate_batch(decoder, {}, options).empty());
}

TEST(Generate, RefusesBeforeAnythingRuns) {
  Decoder decoder = decoder_of("llama_gqa_llama3");  // trained to 256
  Generator generator(decoder);
  const auto refused = [&](const Ids& prompt, const GenerateOptions& options, ErrorCode code,
                           std::string_view value) {
    tests::expect_error(code, {value}, [&] { return generator.generate(prompt, options); });
    EXPECT_TRUE(generator.cached_ids().empty());
  };
  constexpr ErrorCode kInvalid = ErrorCode::invalid_argument, kRange = ErrorCode::out_of_range;
  refused({}, {}, kInvalid, "prompt");
  refused({1, 97}, {}, kRange, "96, got 97");
  refused({-1}, {}, kRange, "got -1");
  refused({1}, {.tokens = -1}, kInvalid, "tokens");
  refused({1}, {.context = -1}, kInvalid, "context");
  refused({1}, {.keep = -1}, kInvalid, "keep");
  refused({1}, {.chunk = 0}, kInvalid, "chunk");
  refused({1}, {.sampler = {.temperature = -1.0}}, kInvalid, "temperature");
  refused({1}, {.tokens = 256}, kRange, "1 + 256 tokens");
  refused(some_ids(30), {.tokens = 3, .context = 32}, kRange, "30 + 3 tokens");
  refused(some_ids(33), {.tokens = 3, .context = 32, .when_full = WindowFull::shift}, kRange,
          "33 tokens");
  refused(some_ids(5), {.tokens = 9, .context = 8, .when_full = WindowFull::shift, .keep = 7},
          kInvalid, "= 6 ");
  EXPECT_THROW((void)generate_batch(decoder, {{1}, {}}, {}), Error);
  EXPECT_THROW((void)generate_batch(decoder, {{1}}, {.when_full = WindowFull::shift}), Error);
}

}  // namespace
}  // namespace phasor::models
