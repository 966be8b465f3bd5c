// Models over a context that the ranks share: the numbers of one rank.
#include "phasor/parallel/models.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "models/decoder/decoder_support.hpp"
#include "parallel/ranks.hpp"
#include "phasor/models/generate.hpp"
#include "phasor/models/internal/perplexity.hpp"

namespace phasor::parallel {
namespace {

using models::Decoder;
using models::ForwardResult;
using models::LogitsOf;
using models::RowsOn;
using models::Sequence;
using models::Step;
using tests::ranks;

std::vector<std::int64_t> some_ids(const Decoder& decoder, std::int64_t count) {
  std::vector<std::int64_t> ids;
  std::uint64_t state = 12345;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    ids.push_back(static_cast<std::int64_t>(
        (state >> 33) % static_cast<std::uint64_t>(decoder.facts().vocabulary)));
  }
  return ids;
}

// The largest difference, relative to the largest number.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0.0F;
  for (const float value : a) largest = std::max(largest, std::abs(value));
  return models::testing::largest_difference(a, b) / static_cast<double>(largest);
}

std::vector<float> run(Decoder& decoder, Sequence& sequence, std::span<const std::int64_t> ids,
                       const models::ForwardOptions& options = {.logits = LogitsOf::every_token}) {
  const Step step{&sequence, ids};
  return decoder.forward({&step, 1}, options).logits;
}

class SharedModels : public testing::TestWithParam<const char*> {};

// Divided calls, calls that every rank computes, and what follows a truncation, after which some rank has
// nothing to compute.
TEST_P(SharedModels, GiveTheLogitsOfOneRank) {
  Decoder decoder = models::testing::decoder_of(GetParam());
  decoder.set_options({.threads = 1});
  const std::int64_t limit = decoder.facts().position_limit;
  const std::int64_t most = limit == 0 ? 90 : std::min<std::int64_t>(limit, 90);
  const std::vector<std::int64_t> ids = some_ids(decoder, most);
  SharedContext context(ranks());
  Sequence alone = decoder.sequence({.capacity = most});
  Sequence shared = decoder.sequence({.capacity = most, .share = &context});
  std::int64_t at = 0;
  const auto append = [&](std::int64_t count) {
    count = std::min(count, most - at);
    if (count == 0) return;
    const std::span<const std::int64_t> piece =
        std::span(ids).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
    at += count;
    EXPECT_LE(relative_difference(run(decoder, alone, piece), run(decoder, shared, piece)),
              models::kSharedContextError)
        << "tokens up to " << at;
  };
  for (const std::int64_t count : {37, 1, 1, 1, 3, 33}) append(count);
  for (Sequence* const sequence : {&alone, &shared}) sequence->truncate(most / 4);
  at = most / 4;
  for (const std::int64_t count : {32, 1, 2}) append(count);
  EXPECT_EQ(shared.next_position(), at);
  alone = alone.fork(most + 5);
  shared = shared.fork(most + 5);
  append(20);
}
INSTANTIATE_TEST_SUITE_P(Families, SharedModels,
                         testing::ValuesIn(models::testing::kGoldenFamilies));

TEST(SharedContext, ScalingsReadTheWholeContext) {
  Decoder decoder = models::testing::decoder_of("qwen3_qk_norm");
  const std::vector<std::int64_t> ids = some_ids(decoder, 80);
  SharedContext context(ranks());
  models::SequenceOptions options{.capacity = 80,
                                  .scaling = encodings::DynamicScaling{4.0, std::nullopt, 30}};
  Sequence alone = decoder.sequence(options);
  options.share = &context;
  Sequence shared = decoder.sequence(options);
  for (const auto& [first, count] : {std::pair{0, 20}, {20, 40}, {60, 1}, {61, 1}}) {
    const std::span<const std::int64_t> piece =
        std::span(ids).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    EXPECT_LE(relative_difference(run(decoder, alone, piece), run(decoder, shared, piece)),
              models::kSharedContextError);
  }
}

TEST(SharedContext, GivesRowsToTheRanksThatAsk) {
  Communicator& all = ranks();
  Decoder decoder = models::testing::decoder_of("llama_gqa_llama3");
  const std::vector<std::int64_t> ids = some_ids(decoder, 45);
  SharedContext context(all);
  const auto forward = [&](const models::ForwardOptions& options, models::ContextShare* share) {
    Sequence first = decoder.sequence({.capacity = 45, .share = share});
    Sequence second = decoder.sequence({.capacity = 45, .share = share});
    const Step steps[] = {{&first, ids}, {&second, std::span(ids).first(3)}};
    return decoder.forward(steps, options);
  };
  models::ForwardOptions options{LogitsOf::every_token, models::HiddenStates::collect,
                                 RowsOn::every_rank};
  const ForwardResult whole = forward(options, nullptr), every = forward(options, &context);
  EXPECT_LE(relative_difference(whole.logits, every.logits), models::kSharedContextError);
  EXPECT_LE(relative_difference(whole.hidden_states, every.hidden_states),
            models::kSharedContextError);
  options.rows = RowsOn::first_rank;
  const ForwardResult first = forward(options, &context);
  EXPECT_EQ(first.logits, all.rank() == 0 ? every.logits : std::vector<float>());
  options.rows = RowsOn::own_rank;
  const ForwardResult own = forward(options, &context);
  ASSERT_EQ(own.rows.size(), 2U);
  const std::int64_t vocabulary = decoder.facts().vocabulary;
  EXPECT_EQ(static_cast<std::int64_t>(own.logits.size()),
            (own.rows[0].count + own.rows[1].count) * vocabulary);
  EXPECT_TRUE(std::equal(own.logits.begin(), own.logits.begin() + own.rows[0].count * vocabulary,
                         every.logits.begin() + own.rows[0].first * vocabulary));
  std::int64_t rows[] = {own.rows[0].count, own.rows[1].count};
  all.sum(std::span<std::int64_t>(rows));
  EXPECT_EQ(rows[0], 45);
  EXPECT_EQ(rows[1], 3);
  options = {.logits = LogitsOf::last_token};
  EXPECT_LE(
      relative_difference(forward(options, nullptr).logits, forward(options, &context).logits),
      models::kSharedContextError);
}

TEST(SharedContext, CachesTakeTheirShareOfTheMemory) {
  Communicator& all = ranks();
  const Decoder decoder = models::testing::decoder_of("llama_gqa_llama3");
  SharedContext context(all);
  const std::int64_t capacity = 100'000;
  const auto whole = static_cast<double>(decoder.sequence({.capacity = capacity}).bytes());
  const auto share =
      static_cast<double>(decoder.sequence({.capacity = capacity, .share = &context}).bytes());
  EXPECT_LE(share, whole / all.size() * 1.002);
}

TEST(SharedContext, PerplexityAndGreedyTextAreThoseOfOneRank) {
  Decoder decoder = models::testing::decoder_of("gemma3_local_global");
  const std::vector<std::int64_t> ids = some_ids(decoder, 150);
  SharedContext context(ranks());
  models::PerplexityOptions options{.context = 64, .chunk = 16};
  const models::Perplexity alone = models::perplexity(decoder, ids, options);
  options.share = &context;
  const models::Perplexity shared = models::perplexity(decoder, ids, options);
  EXPECT_NEAR(shared.nats, alone.nats, 1e-6 * alone.nats);
  EXPECT_NEAR(shared.last_quarter_nats, alone.last_quarter_nats, 1e-6 * alone.nats);
  EXPECT_EQ(shared.scored, alone.scored);

  const models::GenerateOptions greedy{.tokens = 24, .context = 128, .chunk = 10};
  const std::vector<std::int64_t> prompt(ids.begin(), ids.begin() + 50);
  models::Generator one(decoder), many(decoder, {.share = &context});
  EXPECT_EQ(many.generate(prompt, greedy).ids, one.generate(prompt, greedy).ids);
  // Another prompt that starts the same: the caches are truncated.
  const std::vector<std::int64_t> next(ids.begin(), ids.begin() + 30);
  EXPECT_EQ(many.generate(next, greedy).ids, one.generate(next, greedy).ids);
}

TEST(SharedContext, Refusals) {
  Communicator& all = ranks();
  Decoder decoder = models::testing::decoder_of("llama_gqa_llama3");
  const std::vector<std::int64_t> ids = some_ids(decoder, 40);
  SharedContext context(all), other(all);
  Sequence sequence = decoder.sequence({.capacity = 50, .share = &context});
  (void)run(decoder, sequence, ids);
  try {
    sequence.shift(1, 2);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
  }
  Sequence second = decoder.sequence({.capacity = 50, .share = &other});
  const Step steps[] = {{&sequence, std::span(ids).first(1)}, {&second, std::span(ids).first(1)}};
  EXPECT_THROW((void)decoder.forward(steps), Error);
  if (all.size() == 1) return;
  EXPECT_THROW((void)decoder.sequence({.capacity = all.rank() == 0 ? 50 : 60, .share = &context}),
               Error);
}

TEST(SharedContext, ARankThatStopsLeavesTheSequencesOfTheOthersUnchanged) {
  Communicator& all = ranks();
  if (all.size() == 1) return;
  Communicator group(all.handle(), all.options());
  Decoder decoder = models::testing::decoder_of("llama_gqa_llama3");
  const std::vector<std::int64_t> ids = some_ids(decoder, 60);
  SharedContext context(group);
  Sequence sequence = decoder.sequence({.capacity = 60, .share = &context});
  (void)run(decoder, sequence, std::span(ids).first(20));
  const std::int64_t kept = sequence.cache(0).tokens();
  EXPECT_THROW(group.guarded([&] {
    if (group.rank() == group.size() - 1) refuse("no more memory");
    (void)run(decoder, sequence, std::span(ids).subspan(20));
  }),
               Error);
  EXPECT_EQ(sequence.ids().size(), 20U);
  EXPECT_EQ(sequence.cache(0).tokens(), kept);
  all.barrier();
}

}  // namespace
}  // namespace phasor::parallel
