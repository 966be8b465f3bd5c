// Perplexity on the tiny golden decoders, against the same sums over whole windows.
#include "phasor/models/internal/perplexity.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/decoder/decoder_support.hpp"
#include "phasor/core/error.hpp"
#include "support/cancellation.hpp"
#include "support/errors.hpp"

namespace phasor::models {
namespace {

using testing::decoder_of;
using testing::Ids;
using testing::some_ids;

// -ln softmax(row)[target], plainly.
double nats_of(const float* row, std::int64_t target) {
  double sum = 0.0;
  for (int i = 0; i < 97; ++i) sum += std::exp(static_cast<double>(row[i]));
  return std::log(sum) - static_cast<double>(row[target]);
}

TEST(Perplexity, OfTheGoldenLogits) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  const Ids ids = tests::golden_array<std::int64_t>("models/llama_gqa_llama3/input_ids.npy");
  const auto logits = tests::golden_array<float>("models/llama_gqa_llama3/logits.npy");
  double sum = 0.0, squares = 0.0;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) sum += nats_of(&logits[i * 97], ids[i + 1]);
  const double mean = sum / 13.0;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    const double off = nats_of(&logits[i * 97], ids[i + 1]) - mean;
    squares += off * off;
  }
  std::int64_t last = 0;
  const Perplexity got =
      perplexity(decoder, ids, {.context = 16, .chunk = 4}, [&](std::int64_t done, auto all) {
        EXPECT_GT(done, last);
        EXPECT_EQ(all, 13);
        last = done;
        return true;
      });
  EXPECT_EQ(last, 13);
  EXPECT_EQ(got.windows, 1);
  EXPECT_EQ(got.scored, 13);
  EXPECT_NEAR(got.nats, mean, 1e-4);
  EXPECT_NEAR(got.perplexity, std::exp(mean), 1e-2);
  EXPECT_NEAR(got.standard_error, std::sqrt(squares / 12.0 / 13.0), 1e-4);
  // Input 12 is the only one at or after 3/4 of 16.
  EXPECT_NEAR(got.last_quarter_nats, nats_of(&logits[12 * 97], ids[13]), 1e-3);
}

TEST(Perplexity, IsCancelledByAScopeOrByItsProgress) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  const Ids ids = some_ids(40, 5);
  const auto run = [&] { (void)perplexity(decoder, ids, {.context = 16, .chunk = 4}); };
  std::int64_t cancelled = 0;
  for (std::int64_t look = 0;; look = 2 * look + 1, ++cancelled) {
    const test::CancelledLook at(look);
    if (test::runs_to_its_end(run)) break;
  }
  EXPECT_GT(cancelled, 5);
  phasor::tests::expect_error(ErrorCode::cancelled, {"4 of "}, [&] {
    return perplexity(decoder, ids, {.context = 16, .chunk = 4}, [](auto, auto) { return false; });
  });
}

// Every window in one call, every token scored by the first window that has it.
double direct(Decoder& decoder, const Ids& ids, std::int64_t context, std::int64_t stride,
              std::int64_t& scored) {
  double sum = 0.0;
  const auto inputs = static_cast<std::int64_t>(ids.size()) - 1;
  std::vector<bool> done(ids.size(), false);
  scored = 0;
  for (std::int64_t begin = 0; !done.back(); begin += stride) {
    const std::int64_t size = std::min(context, inputs - begin);
    Sequence sequence = decoder.sequence({.capacity = size});
    const Step step{&sequence, std::span(ids).subspan(static_cast<std::size_t>(begin),
                                                      static_cast<std::size_t>(size))};
    const auto logits = decoder.forward({&step, 1}, {.logits = LogitsOf::every_token}).logits;
    for (std::int64_t i = 0; i < size; ++i) {
      const auto target = static_cast<std::size_t>(begin + i + 1);
      if (done[target]) continue;
      done[target] = true;
      ++scored;
      sum += nats_of(&logits[static_cast<std::size_t>(i) * 97], ids[target]);
    }
  }
  return sum / static_cast<double>(scored);
}

TEST(Perplexity, SlidingWindowsScoreEveryTokenOnce) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  const Ids ids = some_ids(70, 5);
  for (const std::int64_t stride : {1, 5, 8, 16}) {
    std::int64_t scored = 0;
    const double mean = direct(decoder, ids, 16, stride, scored);
    ASSERT_EQ(scored, 69);
    const Perplexity got = perplexity(decoder, ids, {.context = 16, .stride = stride, .chunk = 3});
    EXPECT_EQ(got.scored, 69);
    EXPECT_EQ(got.windows, 1 + (69 - 16 + stride - 1) / stride);
    EXPECT_NEAR(got.nats, mean, 1e-5) << "stride " << stride;
  }
  const Perplexity half = perplexity(decoder, ids, {.context = 16, .max_tokens = 40});
  EXPECT_EQ(half.scored, 39);
  EXPECT_EQ(half.windows, 1 + (39 - 16 + 7) / 8);
}

// Pieces of a window must not see the frequencies of a shorter context.
TEST(Perplexity, WindowsBeyondTheOriginalLengthOfLongropeAreTheReference) {
  const std::string path = "models/phi3_longrope_partial/";
  Decoder decoder = decoder_of("phi3_longrope_partial");
  const Ids ids = tests::golden_array<std::int64_t>(path + "long_input_ids.npy");
  const auto logits = tests::golden_array<float>(path + "long_logits.npy");
  double sum = 0.0;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) sum += nats_of(&logits[i * 97], ids[i + 1]);
  const double mean = sum / static_cast<double>(ids.size() - 1);
  const auto context = static_cast<std::int64_t>(ids.size());
  EXPECT_NEAR(perplexity(decoder, ids, {.context = context, .chunk = 7}).nats, mean, 1e-4);
  // The lists given by hand are the same lists.
  std::optional<encodings::LongRopeScaling> lists;
  for (const config::LayerGroup& group : decoder.config().groups)
    if (group.rope) lists = std::get<encodings::LongRopeScaling>(group.rope->scaling);
  ASSERT_TRUE(lists);
  const auto given = scaling_for("longrope", 0, context, lists).value_or_throw();
  EXPECT_NEAR(perplexity(decoder, ids, {.context = context, .scaling = given, .chunk = 7}).nats,
              mean, 1e-4);
}

TEST(Perplexity, DynamicScalingIsThatOfTheWholeWindow) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  const Ids ids = some_ids(49, 5);
  const auto scaling = scaling_for("dynamic", 16, 48).value_or_throw();
  const double pieces =
      perplexity(decoder, ids, {.context = 48, .scaling = scaling, .chunk = 5}).nats;
  const double whole = perplexity(decoder, ids, {.context = 48, .scaling = scaling}).nats;
  EXPECT_NEAR(pieces, whole, 1e-5);
  // alpha = 3 * 48 / 16 - 2
  const double by_alpha =
      perplexity(decoder, ids,
                 {.context = 48, .scaling = encodings::DynamicScaling{1.0, 7.0, 0}, .chunk = 5})
          .nats;
  EXPECT_NEAR(pieces, by_alpha, 1e-5);
  const double plain =
      perplexity(decoder, ids, {.context = 48, .scaling = encodings::DefaultScaling{}}).nats;
  EXPECT_GT(std::abs(plain - whole), 1e-4);
}

TEST(ScalingFor, NamesAndFactors) {
  EXPECT_FALSE(scaling_for("none", 0, 64).value_or_throw());
  const auto of = [](std::string_view name, std::int64_t context) {
    return scaling_for(name, 16, context).value_or_throw().value();
  };
  EXPECT_EQ(std::get<encodings::LinearScaling>(of("linear", 64)).factor, 4.0);
  EXPECT_EQ(std::get<encodings::LinearScaling>(of("linear", 8)).factor, 1.0);
  EXPECT_EQ(std::get<encodings::DynamicScaling>(of("ntk", 64)).alpha, 4.0);
  EXPECT_EQ(std::get<encodings::DynamicScaling>(of("dynamic", 64)).factor, 4.0);
  EXPECT_EQ(std::get<encodings::DynamicScaling>(of("dynamic", 64)).original_length, 16);
  EXPECT_EQ(std::get<encodings::YarnScaling>(of("yarn", 64)).factor, 4.0);
  EXPECT_EQ(std::get<encodings::YarnScaling>(of("yarn", 64)).original_length, 16);
  const auto says = [](const auto& result, const std::string& words) {
    ASSERT_FALSE(result.ok());
    EXPECT_NE(std::string(result.error().what()).find(words), std::string::npos)
        << result.error().what();
  };
  says(scaling_for("yarm", 16, 64), "\"yarm\"");
  says(scaling_for("yarn", 0, 64), "trained");
  says(scaling_for("linear", 16, 0), "context");
  says(scaling_for("longrope", 16, 64), "lists");
}

// Stopped after any piece and continued from its state, by another decoder: the same bits.
TEST(Perplexity, ContinuesFromItsState) {
  const Ids ids = some_ids(70, 5);
  const PerplexityOptions options{.context = 16, .stride = 5, .chunk = 3};
  Decoder decoder = decoder_of("llama_gqa_llama3");
  const Perplexity whole = perplexity(decoder, ids, options);
  for (const std::int64_t stop : {1, 16, 17, 40, 100}) {
    PerplexityState state;
    std::int64_t all_tokens = 0;
    phasor::tests::expect_error(ErrorCode::cancelled, {}, [&] {
      return perplexity(
          decoder, ids, options,
          [&](std::int64_t done, std::int64_t all) {
            all_tokens = all;
            return done < stop;
          },
          &state);
    });
    EXPECT_EQ(state.windows, stop / 16);
    Decoder other = decoder_of("llama_gqa_llama3");
    std::int64_t first = 0, last = 0;
    const Perplexity got = perplexity(
        other, ids, options,
        [&](std::int64_t done, std::int64_t all) {
          EXPECT_EQ(all, all_tokens);
          if (first == 0) first = done;
          last = done;
          return true;
        },
        &state);
    EXPECT_EQ(first, stop < 16 ? 3 : stop / 16 * 16);
    EXPECT_EQ(last, all_tokens);
    EXPECT_EQ(got.nats, whole.nats);
    EXPECT_EQ(got.standard_error, whole.standard_error);
    EXPECT_EQ(got.last_quarter_nats, whole.last_quarter_nats);
    EXPECT_EQ(got.windows, whole.windows);
    EXPECT_EQ(got.scored, whole.scored);
    EXPECT_EQ(state.windows, whole.windows);
  }
  PerplexityState beyond{.windows = whole.windows + 1, .all = {}, .last_quarter = {}};
  phasor::tests::expect_error(ErrorCode::invalid_argument, {std::to_string(beyond.windows)},
                              [&] { return perplexity(decoder, ids, options, {}, &beyond); });
}

TEST(Perplexity, OfMovedPositionsAndRoundedAngles) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  const Ids ids = some_ids(70, 5);
  const auto nats = [&](std::int64_t first, core::AngleMode angles) {
    return perplexity(decoder, ids, {.context = 16, .first_position = first, .angles = angles})
        .nats;
  };
  const double plain = nats(0, core::AngleMode::exact);
  EXPECT_NEAR(nats(16'000'000, core::AngleMode::exact), plain, 1e-6);
  EXPECT_NEAR(nats(0, core::AngleMode::float32), plain, 1e-5);
  EXPECT_GT(std::abs(nats(16'000'000, core::AngleMode::bfloat16) - plain), 1e-4);
  // Whichever the scaling, given or the config's own.
  Decoder dynamic = decoder_of("phi3_longrope_partial");
  phasor::tests::expect_error(ErrorCode::unsupported, {"longrope"}, [&] {
    return perplexity(dynamic, ids, {.context = 16, .first_position = 1});
  });
  phasor::tests::expect_error(ErrorCode::unsupported, {"dynamic"}, [&] {
    return perplexity(decoder, ids,
                      {.context = 16,
                       .scaling = scaling_for("dynamic", 8, 16).value_or_throw(),
                       .angles = core::AngleMode::float32});
  });
}

TEST(Perplexity, Refusals) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  const Ids ids = some_ids(20, 5);
  const auto refused = [&](const Ids& text, const PerplexityOptions& options,
                           std::string_view value, ErrorCode code = ErrorCode::invalid_argument) {
    tests::expect_error(code, {value}, [&] { return perplexity(decoder, text, options); });
  };
  refused(ids, {.context = 0}, "context");
  refused(ids, {.context = 8, .stride = 9}, "[1, 8]");
  refused(ids, {.context = 8, .chunk = 0}, "chunk");
  refused({3}, {.context = 8}, "tokens, got 1");
  refused(ids, {.context = 8, .max_tokens = 1}, "tokens, got 1");
  refused({3, 97}, {.context = 8}, "96, got 97", ErrorCode::out_of_range);
  EXPECT_THROW((void)perplexity(decoder, ids, {.context = 8},
                                [](std::int64_t, std::int64_t) { return false; }),
               Error);
}

}  // namespace
}  // namespace phasor::models
