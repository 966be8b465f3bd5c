// Sequences that start at another position, and sequences with rounded angles.
#include <gtest/gtest.h>

#include <cmath>

#include "decoder_support.hpp"
#include "phasor/core/error.hpp"
#include "support/errors.hpp"

namespace phasor::models::testing {
namespace {

using core::AngleMode;

// RoPE reads distances: exact angles give the same logits wherever the first token is.
TEST(DecoderPositions, ExactAnglesDoNotDependOnTheFirstPosition) {
  for (const std::string name : kGoldenFamilies) {
    SCOPED_TRACE(name);
    Decoder decoder = decoder_of(name);
    const std::vector<std::int64_t> ids = golden_ids(name);
    // Its frequencies depend on the context, its queries are scaled by position, or it does not rotate.
    if (name == "phi3_longrope_partial" || name == "ministral3_query_scale" ||
        name == "bloom_alibi" || name.starts_with("gpt2_")) {
      tests::expect_error(ErrorCode::unsupported, {"1000"}, [&] {
        return decoder.sequence({.capacity = 14, .first_position = 1'000});
      });
      continue;
    }
    const std::vector<float> at_zero = logits_of(decoder, ids);
    for (const std::int64_t first : {1'000, 16'000'000, 1'000'000'000}) {
      EXPECT_LE(largest_difference(
                    logits_of(decoder, ids, {.capacity = 14, .first_position = first}), at_zero),
                2e-5)
          << first;
    }
  }
}

// The keys of the first layer, which depend on embedding and rotation alone: those of exact angles are
// rotated back, then by the row of the other kind.
TEST(DecoderPositions, RoundedAnglesAreThoseOfTheirRows) {
  Decoder decoder = decoder_of("llama_gqa_llama3");
  const std::vector<std::int64_t> ids = golden_ids("llama_gqa_llama3");
  const auto keys_of = [&](std::int64_t first, AngleMode angles, core::Rotary& rotary) {
    Sequence sequence =
        decoder.sequence({.capacity = 14, .first_position = first, .angles = angles});
    const Step step{&sequence, ids};
    (void)decoder.forward({&step, 1});
    EXPECT_EQ(sequence.next_position(), first + 14);
    rotary = *sequence.cache(0).spec().rotary;
    const core::ConstHeadsView view = sequence.cache(0).keys();
    std::vector<double> keys;
    for (std::int64_t t = 0; t < view.tokens; ++t) {
      for (std::int64_t d = 0; d < view.head_dim; ++d)
        keys.push_back(core::element_of(view, t * view.token_stride + d));
    }
    return keys;
  };
  for (const AngleMode angles : {AngleMode::float32, AngleMode::bfloat16_frequencies,
                                 AngleMode::bfloat16, AngleMode::float16}) {
    for (const std::int64_t first : {0, 20'011}) {
      core::Rotary rotary{core::make_frequencies({2}), core::PairLayout::half};
      const std::vector<double> exact = keys_of(first, AngleMode::exact, rotary);
      const std::vector<double> got = keys_of(first, angles, rotary);
      ASSERT_EQ(rotary.layout, core::PairLayout::half);
      const auto pairs = static_cast<std::size_t>(rotary.frequencies.pairs());
      ASSERT_EQ(2 * pairs, static_cast<std::size_t>(rotary.head_dim));
      std::vector<float> cos(pairs), sin(pairs);
      double moved = 0.0;
      for (std::size_t t = 0; t < 14; ++t) {
        const double position = static_cast<double>(first) + static_cast<double>(t);
        core::cos_sin(rotary.frequencies, {&position, 1}, cos, sin, angles);
        for (std::size_t i = 0; i < pairs; ++i) {
          const double theta = std::fmod(position * rotary.frequencies.values()[i], 2 * M_PI);
          const double x = exact[t * 2 * pairs + i], y = exact[t * 2 * pairs + i + pairs];
          const double raw_x = x * std::cos(theta) + y * std::sin(theta);
          const double raw_y = y * std::cos(theta) - x * std::sin(theta);
          ASSERT_NEAR(got[t * 2 * pairs + i], raw_x * cos[i] - raw_y * sin[i], 1e-5);
          ASSERT_NEAR(got[t * 2 * pairs + i + pairs], raw_y * cos[i] + raw_x * sin[i], 1e-5);
          moved = std::max(moved, std::abs(got[t * 2 * pairs + i] - x));
        }
      }
      if (first > 0) {
        EXPECT_GT(moved, 1e-4) << core::name_of(angles);
      }
    }
  }
}

TEST(DecoderPositions, Refusals) {
  const auto refused = [](const std::string& name, ErrorCode code, std::string_view value,
                          const SequenceOptions& options) {
    Decoder decoder = decoder_of(name);
    phasor::tests::expect_error(code, {value}, [&] { return decoder.sequence(options); });
  };
  refused("llama_gqa_llama3", ErrorCode::out_of_range, "-1", {.capacity = 4, .first_position = -1});
  refused("llama_gqa_llama3", ErrorCode::out_of_range, "2^5",
          {.capacity = 4, .first_position = std::int64_t{1} << 53});
  refused("llama_gqa_llama3", ErrorCode::out_of_range, "65504",
          {.capacity = 4, .first_position = 65'504, .angles = AngleMode::float16});
  refused("phi3_longrope_partial", ErrorCode::unsupported, "longrope",
          {.capacity = 4, .first_position = 3});
  refused("phi3_longrope_partial", ErrorCode::unsupported, "float32",
          {.capacity = 4, .angles = AngleMode::float32});

  Decoder decoder = decoder_of("llama_gqa_llama3");
  Sequence sequence = decoder.sequence({.capacity = 14, .angles = AngleMode::bfloat16});
  const std::vector<std::int64_t> ids = golden_ids("llama_gqa_llama3");
  const Step step{&sequence, ids};
  (void)decoder.forward({&step, 1});
  phasor::tests::expect_error(ErrorCode::unsupported, {"bfloat16"}, [&] {
    sequence.shift(1, 2);
    return 0;
  });
  EXPECT_EQ(sequence.ids().size(), ids.size());
}

}  // namespace
}  // namespace phasor::models::testing
