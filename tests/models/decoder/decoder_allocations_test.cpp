// A warm decode step allocates nothing, and a call that ran out of memory or was cancelled leaves every
// sequence as it was. A program of its own, since it counts and refuses every allocation of the process.
// These models are too small for threads to share; real_allocations_test.cpp has one that is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "models/decoder/decoder_support.hpp"
#include "models/matrix/quantised_tensor.hpp"
#include "models/numbers.hpp"
#include "phasor/models/generate.hpp"
#include "phasor/models/internal/matrix.hpp"
#include "support/allocations.hpp"
#include "support/cancellation.hpp"

namespace phasor::models::testing {
namespace {

using phasor::test::allocation_count;
using phasor::test::fail_each_allocation;
using phasor::test::FailingAllocation;

const ComputeOptions kOneThread{.threads = 1};

// Everything that a sequence is: its ids, and each layer's keys, values and positions, bit for bit.
struct Content {
  Ids ids;
  std::int64_t next_position = 0;
  std::vector<std::vector<double>> positions;
  std::vector<std::string> keys, values;
  bool operator==(const Content&) const = default;
};
std::string bytes_of(const core::ConstHeadsView& view) {
  std::string bytes;
  const auto element = static_cast<std::int64_t>(core::size_of(view.dtype));
  for (std::int64_t h = 0; h < view.heads; ++h) {
    bytes.append(static_cast<const char*>(view.data) + h * view.head_stride * element,
                 static_cast<std::size_t>(view.tokens * view.head_dim * element));
  }
  return bytes;
}
Content content_of(const Sequence& sequence, std::int64_t layers) {
  Content content{
      {sequence.ids().begin(), sequence.ids().end()}, sequence.next_position(), {}, {}, {}};
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const attention::KVCache& cache = sequence.cache(layer);
    content.positions.push_back(cache.positions());
    content.keys.push_back(bytes_of(cache.keys()));
    content.values.push_back(bytes_of(cache.values()));
  }
  return content;
}

class Family : public ::testing::TestWithParam<const char*> {};

TEST_P(Family, AWarmStepAllocatesNothing) {
  const std::string name = GetParam();
  Decoder decoder = load(golden_model(name), kOneThread);
  const Ids ids = golden_ids(name);
  for (const core::DType dtype : {core::DType::f32, core::DType::f16, core::DType::bf16}) {
    for (const attention::CacheMode mode :
         {attention::CacheMode::compact, attention::CacheMode::drift_free}) {
      Sequence sequence = decoder.sequence({.capacity = 80, .cache = dtype, .mode = mode});
      ForwardResult result;
      const Step prompt{&sequence, ids};
      decoder.forward({&prompt, 1}, {}, result);
      std::int64_t id = ids.front();
      for (int step = 0; step < 50; ++step) {
        const Step next{&sequence, {&id, 1}};
        const std::int64_t before = allocation_count();
        decoder.forward({&next, 1}, {}, result);
        const std::int64_t made = allocation_count() - before;
        // Phi-3's longrope: token 41 is where the long factors begin.
        const bool crosses = name == "phi3_longrope_partial" && sequence.ids().size() == 41;
        if (step > 0 && !crosses) {
          EXPECT_EQ(made, 0) << "step " << step;
        }
        ASSERT_EQ(result.logits.size(), 97U);
        id = std::max_element(result.logits.begin(), result.logits.end()) - result.logits.begin();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Family, ::testing::ValuesIn(kGoldenFamilies),
                         [](const auto& info) { return std::string(info.param); });

// Several sequences at once, as a server runs them.
TEST(DecoderAllocations, AWarmStepOfABatchHasNone) {
  Decoder decoder = load(golden_model("mixtral_moe_top2"), kOneThread);
  Sequence a = decoder.sequence({.capacity = 60}), b = decoder.sequence({.capacity = 60});
  const Ids first = some_ids(9, 1), second = some_ids(5, 2);
  ForwardResult result;
  const Step prompts[] = {{&a, first}, {&b, second}};
  decoder.forward(prompts, {}, result);
  for (std::size_t step = 0; step < 20; ++step) {
    const std::int64_t ids[] = {static_cast<std::int64_t>(step % 97), 96};
    const Step steps[] = {{&a, {&ids[0], 1}}, {&b, {&ids[1], 1}}};
    const std::int64_t before = allocation_count();
    decoder.forward(steps, {}, result);
    if (step > 0) {
      EXPECT_EQ(allocation_count(), before) << "step " << step;
    }
  }
}

TEST(GenerationAllocations, AWarmTokenHasNone) {
  Decoder decoder = load(golden_model("llama_gqa_llama3"), kOneThread);
  for (const SamplerOptions& sampler :
       {SamplerOptions{},
        SamplerOptions{.temperature = 0.8, .top_k = 20, .top_p = 0.9, .seed = 3}}) {
    Generator generator(decoder);
    Generation answer = generator.start(some_ids(6, 4), {.tokens = 40, .sampler = sampler});
    (void)answer.next();
    (void)answer.next();
    for (int token = 2; token < 40; ++token) {
      const std::int64_t before = allocation_count();
      ASSERT_TRUE(answer.next().has_value());
      // A sampler's candidates may outgrow what it had.
      if (sampler.temperature == 0.0) {
        EXPECT_EQ(allocation_count(), before) << "token " << token;
      }
    }
  }
}

// Many tokens go through the GEMM library. oneDNN allocates in every product on arm64, and on x86-64
// in the first one of the process, where it generates its kernels: CTest runs each test in a process
// of its own.
TEST(ProductFailures, MemoryThatRunsOutInTheGemmLibraryIsAnException) {
  constexpr std::int64_t kRows = 20, kColumns = 64, kTokens = 40;
  const QuantisedTensor tensor(TensorType::f32, kRows, kColumns, 1);
  const Matrix matrix = Matrix::pack(tensor.tensor());
  const std::vector<float> x = normal_numbers(kTokens * kColumns, 2);
  std::vector<float> out(kTokens * kRows);
  const Product product{&matrix, out.data(), kRows};
  // Not every allocation: generating the kernels takes thousands.
  bool failed = true;
  for (std::int64_t index = 0; failed; index = std::max<std::int64_t>(1, 2 * index)) {
    const FailingAllocation failing(index);
    try {
      multiply({&product, 1}, x.data(), kTokens, kColumns, kOneThread);
    } catch (const std::bad_alloc&) {
    }
    failed = FailingAllocation::has_failed();
    EXPECT_TRUE(failed || index > 0);
  }
  std::vector<float> row(kColumns);
  for (std::int64_t r = 0; r < kRows; ++r) {
    matrix.row(r, row);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      double sum = 0.0, sizes = 0.0;
      for (std::int64_t c = 0; c < kColumns; ++c) {
        const double term = double{row[static_cast<std::size_t>(c)]} *
                            double{x[static_cast<std::size_t>(t * kColumns + c)]};
        sum += term;
        sizes += std::abs(term);
      }
      EXPECT_NEAR(out[static_cast<std::size_t>(t * kRows + r)], sum, kExactProductError * sizes)
          << "row " << r << " token " << t;
    }
  }
}

// How a case prepares its sequences and what it then asks of them.
struct Case {
  const char* name;
  const char* model;
  SequenceOptions options;
  std::size_t had_a, had_b;  // tokens in the sequences before
  std::size_t next_a, next_b;
};
std::vector<Case> cases() {
  const encodings::RopeScaling dynamic = encodings::DynamicScaling{2.0, std::nullopt, 8};
  using enum core::DType;
  const auto compact = attention::CacheMode::compact;
  const auto drift_free = attention::CacheMode::drift_free;
  return {
      {"llama", "llama_gqa_llama3", {.capacity = 64, .cache = f32}, 5, 0, 6, 3},
      {"llama f16", "llama_gqa_llama3", {.capacity = 64, .cache = f16}, 5, 2, 1, 1},
      {"experts", "mixtral_moe_top2", {.capacity = 64, .cache = bf16}, 4, 1, 5, 2},
      {"groups", "gemma3_local_global", {.capacity = 64, .cache = f32}, 4, 1, 5, 2},
      // The frequencies change for both, since the longer sequence decides.
      {"dynamic", "qwen3_qk_norm", {64, f32, compact, dynamic}, 7, 3, 2, 1},
      {"dynamic goes on", "qwen3_qk_norm", {64, f16, compact, dynamic}, 12, 3, 1, 1},
      {"dynamic raw", "qwen3_qk_norm", {64, f16, drift_free, dynamic}, 12, 3, 1, 1},
      // Both are computed again.
      {"longrope", "phi3_longrope_partial", {.capacity = 64, .cache = f32}, 39, 5, 2, 1},
      {"longrope f16", "phi3_longrope_partial", {.capacity = 64, .cache = f16}, 40, 0, 1, 2},
      {"longrope back", "phi3_longrope_partial", {.capacity = 64, .cache = f32}, 45, 2, 1, 1},
  };
}

// A decoder with two sequences, prepared as the case says.
struct Prepared {
  Decoder decoder;
  Sequence a, b;
  Ids next_a, next_b;

  explicit Prepared(const Case& c)
      : decoder(load(golden_model(c.model), kOneThread)),
        a(decoder.sequence(c.options)),
        b(decoder.sequence(c.options)),
        next_a(some_ids(c.next_a, 11)),
        next_b(some_ids(c.next_b, 12)) {
    fill(a, c.had_a, 1);
    fill(b, c.had_b, 2);
    if (std::string(c.name) == "longrope back") a.truncate(20);
  }
  void fill(Sequence& sequence, std::size_t count, std::uint32_t seed) {
    const Ids ids = some_ids(count, seed);
    for (const std::int64_t& id : ids) {
      const Step step{&sequence, {&id, 1}};
      (void)decoder.forward({&step, 1});
    }
  }
  [[nodiscard]] ForwardResult forward() {
    const Step steps[] = {{&a, next_a}, {&b, next_b}};
    return decoder.forward(steps, {LogitsOf::every_token, HiddenStates::collect});
  }
  [[nodiscard]] std::vector<Content> content() const {
    const std::int64_t layers = decoder.facts().layers;
    return {content_of(a, layers), content_of(b, layers)};
  }
};

TEST(DecoderFailures, ForwardLeavesEverySequenceAsItWas) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Prepared twin(c);
    const std::vector<Content> before = twin.content();
    const ForwardResult expected = twin.forward();
    const std::vector<Content> after = twin.content();
    // Whether the call fails at the place `index` of a disturbance.
    const auto fails_at = [&]<class Disturbance>(std::int64_t index) {
      // From the start each time: what a failed call allocated, the next would find.
      Prepared prepared(c);
      EXPECT_EQ(prepared.content(), before);
      bool failed = false;
      try {
        const Disturbance disturbance(index);
        failed = !test::runs_to_its_end([&] { (void)prepared.forward(); });
      } catch (const std::bad_alloc&) {
        failed = true;
      }
      if (!failed) return false;
      EXPECT_EQ(prepared.content(), before) << "after allocation or look " << index;
      const ForwardResult again = prepared.forward();
      EXPECT_EQ(again.logits, expected.logits) << "after allocation or look " << index;
      EXPECT_EQ(again.hidden_states, expected.hidden_states);
      EXPECT_EQ(prepared.content(), after);
      return true;
    };
    std::int64_t failures = 0, looks = 0;
    while (fails_at.template operator()<FailingAllocation>(failures)) ++failures;
    while (fails_at.template operator()<test::CancelledLook>(looks)) ++looks;
    EXPECT_GT(failures, 0);
    EXPECT_GT(looks, 10);
  }
}

TEST(DecoderFailures, ShiftTruncateAndForkLeaveTheSequenceAsItWas) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const std::function<void(Sequence&)> calls[] = {
        [](Sequence& sequence) { sequence.shift(1, 2); },
        [](Sequence& sequence) { sequence.truncate(3); },
        [](Sequence& sequence) { sequence = sequence.fork(70); },
    };
    for (const auto& call : calls) {
      Prepared prepared(c), twin(c);
      const std::vector<Content> before = prepared.content();
      Prepared cancelled(c);
      const auto attempt = [&] { return test::runs_to_its_end([&] { call(cancelled.a); }); };
      if (const test::CancelledLook first(0); !attempt()) {
        EXPECT_EQ(cancelled.content(), before);
      }
      (void)fail_each_allocation(
          [&] {
            try {
              call(prepared.a);
            } catch (const std::bad_alloc&) {
            }
          },
          [&](std::int64_t index) {
            EXPECT_EQ(prepared.content(), before) << "after allocation " << index;
          });
      call(twin.a);
      EXPECT_EQ(prepared.content(), twin.content());
      EXPECT_EQ(prepared.forward().logits, twin.forward().logits);
    }
  }
}

// An answer that fails has ended; the generator answers the next as if it had never begun.
TEST(GenerationFailures, TheGeneratorStaysFit) {
  const GenerateOptions shifting{.tokens = 14,
                                 .sampler = {.temperature = 0.7, .top_p = 0.9, .seed = 5},
                                 .context = 16,
                                 .when_full = WindowFull::shift,
                                 .keep = 2,
                                 .chunk = 4};
  const Ids first = some_ids(7, 21);
  Ids second = first;
  second.push_back(3);
  for (const char* model : {"llama_gqa_llama3", "phi3_longrope_partial"}) {
    Decoder decoder = load(golden_model(model), kOneThread);
    Generator fresh(decoder);
    const Ids expected = fresh.generate(second, shifting).ids;
    const auto fails_at = [&]<class Disturbance>(std::int64_t index) {
      Generator generator(decoder);
      bool failed = false;
      try {
        const Disturbance disturbance(index);
        failed = !test::runs_to_its_end([&] { (void)generator.generate(first, shifting); });
      } catch (const std::bad_alloc&) {
        failed = true;
      }
      EXPECT_EQ(generator.generate(second, shifting).ids, expected)
          << model << ", after allocation or look " << index;
      return failed;
    };
    for (std::int64_t index = 0; fails_at.template operator()<FailingAllocation>(index);) ++index;
    // Not every look: each token has hundreds.
    for (std::int64_t index = 0; fails_at.template operator()<test::CancelledLook>(index);)
      index += 13;
  }
}

TEST(SamplerFailures, ADrawThatFailedWasNotDrawn) {
  Sampler sampler({.temperature = 1.0, .top_k = 30, .repetition_penalty = 1.2, .seed = 9});
  Sampler twin = sampler;
  std::vector<float> logits;
  for (int i = 0; i < 97; ++i) logits.push_back(static_cast<float>((i * 37) % 97) / 30.0F);
  const Ids seen = some_ids(10, 3);
  std::int64_t drawn = -1;
  const std::int64_t failures = fail_each_allocation(
      [&] {
        try {
          drawn = sampler.next(logits, seen);
        } catch (const std::bad_alloc&) {
        }
      },
      [](std::int64_t) {});
  EXPECT_GT(failures, 0);
  EXPECT_EQ(drawn, twin.next(logits, seen));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sampler.next(logits, seen), twin.next(logits, seen));
}

TEST(TextStreamFailures, APieceThatFailedWasNotPushed) {
  const std::string pieces[] = {"a long piece that no small buffer holds \xE4\xBD",
                                "\xA0 and another one, just as long, \xF0\x9F"};
  text::TextStream stream, twin;
  for (const std::string& piece : pieces) {
    std::string out;
    const std::int64_t failures = fail_each_allocation(
        [&] {
          try {
            out = stream.push(piece);
          } catch (const std::bad_alloc&) {
          }
        },
        [](std::int64_t) {});
    EXPECT_GT(failures, 0);
    EXPECT_EQ(out, twin.push(piece));
  }
  EXPECT_EQ(stream.finish(), twin.finish());
}

}  // namespace
}  // namespace phasor::models::testing
