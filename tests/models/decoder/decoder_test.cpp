// The decoder: golden families, ways to run the same tokens, and what it refuses.
#include <gtest/gtest.h>

#include <cmath>

#include "decoder_support.hpp"
#include "phasor/models/generate.hpp"
#include "support/errors.hpp"

namespace phasor::models::testing {
namespace {

class Family : public ::testing::TestWithParam<const char*> {};

TEST_P(Family, GivesTheLogitsAndHiddenStatesOfItsReference) {
  const std::string name = GetParam();
  Decoder decoder = load(golden_model(name));
  const std::vector<std::int64_t> ids = golden_ids(name);
  Sequence sequence = decoder.sequence({.capacity = 14});
  const Step step{&sequence, ids};
  const ForwardResult result =
      decoder.forward({&step, 1}, {LogitsOf::every_token, HiddenStates::collect});
  const auto near = [&](const std::string& output, const std::vector<float>& got) {
    const auto expected = tests::golden_array<float>("models/" + name + "/" + output + ".npy");
    ASSERT_EQ(got.size(), expected.size()) << output;
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 3.2e-5 + 1e-4 * std::abs(expected[i])) << output << ' ' << i;
    }
  };
  near("logits", result.logits);
  near("hidden_states", result.hidden_states);
  EXPECT_EQ(std::vector<std::int64_t>(sequence.ids().begin(), sequence.ids().end()), ids);
}

// Token by token, in two parts, or at once: the same keys, so the same logits.
TEST_P(Family, StreamsAsItRunsAtOnce) {
  const std::string name = GetParam();
  Decoder decoder = load(golden_model(name));
  const std::vector<std::int64_t> ids = golden_ids(name);
  const std::vector<float> whole = logits_of(decoder, ids);
  for (const std::size_t part : {std::size_t{1}, std::size_t{5}}) {
    Sequence sequence = decoder.sequence({.capacity = 14});
    std::vector<float> parts;
    for (std::size_t i = 0; i < ids.size(); i += part) {
      const Step step{&sequence, std::span(ids).subspan(i, std::min(part, ids.size() - i))};
      const std::vector<float> some =
          decoder.forward({&step, 1}, {LogitsOf::every_token, HiddenStates::leave}).logits;
      parts.insert(parts.end(), some.begin(), some.end());
    }
    EXPECT_LE(largest_difference(whole, parts), 2e-5) << "parts of " << part;
  }
}

TEST_P(Family, RunsAPaddedBatchAsItsReference) {
  const std::string name = GetParam();
  Decoder decoder = load(golden_model(name));
  const std::string folder = "models/" + name + "/padded_";
  const auto mask = tests::golden_array<std::int64_t>(folder + "attention_mask.npy");
  const std::vector<float> got =
      forward_padded(decoder, tests::golden_array<std::int64_t>(folder + "input_ids.npy"),
                     std::vector<std::uint8_t>(mask.begin(), mask.end()), 2,
                     {LogitsOf::every_token, HiddenStates::leave})
          .logits;
  const auto expected = tests::golden_array<float>(folder + "logits.npy");
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (mask[i / 97] == 0) continue;
    ASSERT_NEAR(got[i], expected[i], 4e-5 + 1e-4 * std::abs(expected[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Family, ::testing::ValuesIn(kGoldenFamilies),
                         [](const auto& info) { return std::string(info.param); });

TEST(Decoder, RunsABatchAsItsRows) {
  Decoder decoder = load(golden_model("mixtral_moe_top2"));
  const std::vector<std::int64_t> ids = golden_ids("mixtral_moe_top2");
  const std::vector<std::int64_t> part(ids.begin() + 3, ids.begin() + 8);
  std::vector<float> rows = logits_of(decoder, ids);
  const std::vector<float> second = logits_of(decoder, part);
  rows.insert(rows.end(), second.begin(), second.end());
  Sequence a = decoder.sequence({.capacity = 14});
  Sequence b = decoder.sequence({.capacity = 14});
  const Step steps[] = {{&a, ids}, {&b, part}};
  const std::vector<float> batch =
      decoder.forward(steps, {LogitsOf::every_token, HiddenStates::leave}).logits;
  EXPECT_LE(largest_difference(batch, rows), 1e-5);
}

TEST(Decoder, GoesOnFromATruncatedOrForkedSequence) {
  Decoder decoder = load(golden_model("llama_gqa_llama3"));
  const std::vector<std::int64_t> ids = golden_ids("llama_gqa_llama3");
  const std::vector<float> whole = logits_of(decoder, ids);
  Sequence sequence = decoder.sequence({.capacity = 14});
  const Step all{&sequence, ids};
  (void)decoder.forward({&all, 1});
  sequence.truncate(9);
  Sequence fork = sequence.fork(20);
  for (Sequence* each : {&sequence, &fork}) {
    const Step rest{each, std::span(ids).subspan(9)};
    const std::vector<float> last = decoder.forward({&rest, 1}).logits;
    EXPECT_LE(largest_difference(last, {whole.end() - 97, whole.end()}), 1e-5);
  }
  EXPECT_EQ(fork.capacity(), 20);
  EXPECT_THROW((void)sequence.fork(13), Error);
  EXPECT_THROW(sequence.truncate(15), Error);
}

class DecoderFolder : public io::testing::TemporaryFolder {};

struct Shifted {
  const char* golden;
  const char* layers;  // in names
  const char* count;   // in the config
};
class Shift : public DecoderFolder, public ::testing::WithParamInterface<Shifted> {};

// With one layer nothing of the dropped tokens is left in the others' keys and values, so that a
// shifted sequence gives the logits of one without them.
TEST_P(Shift, IsAsIfTheDroppedTokensHadNeverBeen) {
  const Shifted shift = GetParam();
  Weights weights = Weights::of(shift.golden);
  for (std::size_t i = weights.tensors.size(); i-- > 0;) {
    const std::string name = weights.tensors[i].name;
    for (const char* layer : {"1.", "2."}) {
      if (name.find(std::string(shift.layers) + layer) != std::string::npos) weights.remove(name);
    }
  }
  weights.write(at(""));
  const std::string key = std::string("\"") + shift.count + "\": ";
  io::testing::put(
      at("config.json"),
      replaced(io::testing::get(golden_model(shift.golden) / "config.json"), key + "3", key + "1"));
  Decoder decoder = load(at(""));
  const std::vector<std::int64_t> ids = golden_ids(shift.golden);
  Sequence sequence = decoder.sequence({.capacity = 16});
  const Step all{&sequence, ids};
  (void)decoder.forward({&all, 1});
  sequence.shift(2, 7);
  EXPECT_EQ(sequence.next_position(), 7);
  std::vector<std::int64_t> kept(ids.begin(), ids.begin() + 2);
  kept.insert(kept.end(), ids.begin() + 9, ids.end());
  EXPECT_EQ(std::vector<std::int64_t>(sequence.ids().begin(), sequence.ids().end()), kept);
  const std::int64_t next = 5;
  const Step step{&sequence, {&next, 1}};
  const std::vector<float> shifted = decoder.forward({&step, 1}).logits;
  kept.push_back(next);
  const std::vector<float> fresh = logits_of(decoder, kept);
  EXPECT_LE(largest_difference(shifted, {fresh.end() - 97, fresh.end()}), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Golden, Shift,
    ::testing::Values(Shifted{"llama_gqa_llama3", "layers.", "num_hidden_layers"},
                      Shifted{"ministral3_query_scale", "layers.", "num_hidden_layers"},
                      Shifted{"bloom_alibi", ".h.", "n_layer"}),
    [](const auto& info) { return std::string(info.param.golden); });

// A learned table of positions has an end, and its rows are in the keys and values of every layer.
TEST(Decoder, LearnedPositionsEndAndDoNotShift) {
  Decoder decoder = load(golden_model("gpt2_learned"));
  EXPECT_EQ(decoder.facts().position_limit, 64);
  EXPECT_EQ(decoder.facts().trained_length, 64);
  EXPECT_EQ(load(golden_model("bloom_alibi")).facts().position_limit, 0);
  Sequence sequence = decoder.sequence({.capacity = 80});
  const std::vector<std::int64_t> ids(64, 5), one = {7};
  const Step all{&sequence, ids}, more{&sequence, one};
  (void)decoder.forward({&all, 1});
  using tests::expect_error;
  expect_error(ErrorCode::out_of_range, {"64", "65"}, [&] { return decoder.forward({&more, 1}); });
  expect_error(ErrorCode::unsupported, {"gpt2"}, [&] {
    sequence.shift(0, 8);
    return 0;
  });
  EXPECT_EQ(sequence.ids().size(), 64U);
  sequence.truncate(63);
  EXPECT_EQ(decoder.forward({&more, 1}).logits.size(), 97U);
  expect_error(ErrorCode::invalid_argument, {"gpt2"}, [&] {
    return decoder.sequence({.capacity = 8, .scaling = encodings::LinearScaling{2.0}});
  });
  Generator generator(decoder);
  expect_error(ErrorCode::out_of_range, {"64", "65"},
               [&] { return generator.generate(one, {.tokens = 4, .context = 65}); });
  expect_error(ErrorCode::unsupported, {"1 + 99", "gpt2"}, [&] {
    return generator.generate(one, {.tokens = 99, .context = 64, .when_full = WindowFull::shift});
  });
  EXPECT_EQ(generator.generate(one, {.tokens = 4}).ids.size(), 4U);
}

// The hub's files of GPT-2 and BLOOM hold the model without its head.
TEST_F(DecoderFolder, NamesMayLackTheirPrefix) {
  for (const char* name : {"gpt2_learned", "bloom_alibi"}) {
    Weights weights = Weights::of(name);
    for (io::Tensor& tensor : weights.tensors)
      tensor.name = replaced(tensor.name, "transformer.", "");
    weights.write(at(""));
    io::testing::put(at("config.json"), io::testing::get(golden_model(name) / "config.json"));
    Decoder decoder = load(at("")), original = load(golden_model(name));
    const std::vector<std::int64_t> ids = golden_ids(name);
    EXPECT_EQ(largest_difference(logits_of(decoder, ids), logits_of(original, ids)), 0.0);
  }
}

// Ministral 3 and Gemma 3 are published as the text part of a model of images, in files of two ages.
TEST_F(DecoderFolder, RunsTheTextPartOfAModel) {
  const std::pair<const char*, const char*> places[] = {{"model.", "language_model.model."},
                                                        {"model.", "model.language_model."}};
  for (const char* name : {"ministral3_query_scale", "gemma3_local_global"}) {
    Decoder original = load(golden_model(name));
    const std::vector<std::int64_t> ids = golden_ids(name);
    const std::string text = io::testing::get(golden_model(name) / "config.json");
    io::testing::put(at("config.json"),
                     "{\"model_type\": \"mistral3\", \"eos_token_id\": [7], "
                     "\"vision_config\": {\"model_type\": \"pixtral\"}, "
                     "\"text_config\": " +
                         text + "}");
    for (const auto& [from, to] : places) {
      Weights weights = Weights::of(name);
      for (io::Tensor& tensor : weights.tensors) {
        if (tensor.name == "lm_head.weight") {
          if (std::string(to).starts_with("language"))
            tensor.name = "language_model.lm_head.weight";
          continue;
        }
        tensor.name = replaced(tensor.name, from, to);
      }
      weights.add("vision_tower.patch_conv.weight", {3, 4});
      weights.write(at(""));
      Decoder decoder = load(at(""));
      EXPECT_EQ(largest_difference(logits_of(decoder, ids), logits_of(original, ids)), 0.0) << to;
      EXPECT_EQ(decoder.facts().parameters, original.facts().parameters);
      weights.add(std::string(to) + "layers.0.extra.weight", {2});
      weights.write(at(""));
      tests::expect_error(ErrorCode::unsupported, {"extra.weight"}, Decoder::load(at("")));
    }
  }
}

TEST(Decoder, KeepsSixteenBitCachesNearTheOthers) {
  Decoder decoder = load(golden_model("qwen3_qk_norm"));
  const std::vector<std::int64_t> ids = golden_ids("qwen3_qk_norm");
  const std::vector<float> exact = logits_of(decoder, ids);
  const double f16 = largest_difference(
      exact, logits_of(decoder, ids, {.capacity = 14, .cache = core::DType::f16}));
  const double bf16 = largest_difference(
      exact, logits_of(decoder, ids, {.capacity = 14, .cache = core::DType::bf16}));
  EXPECT_GT(f16, 0.0);
  EXPECT_LT(f16, 1e-2);
  EXPECT_LT(bf16, 8e-2);
}

// The first layer's keys are those of a float32 cache, rounded once: a rounding before the rotation would
// show in one key of three.
TEST(Decoder, RoundsAKeyOnceIntoASixteenBitCache) {
  for (const char* name :
       {"qwen3_qk_norm", "gptj_interleaved_parallel", "glm_interleaved_partial"}) {
    Decoder decoder = load(golden_model(name));
    const std::vector<std::int64_t> ids = golden_ids(name);
    const auto keys_of = [&](core::DType dtype) {
      Sequence sequence = decoder.sequence({.capacity = 14, .cache = dtype});
      // A prompt, then token by token.
      const Step prompt{&sequence, std::span(ids).first(9)};
      (void)decoder.forward({&prompt, 1});
      for (std::size_t i = 9; i < ids.size(); ++i) {
        const Step step{&sequence, {&ids[i], 1}};
        (void)decoder.forward({&step, 1});
      }
      std::vector<double> keys, values;
      const auto read = [](const core::ConstHeadsView& view, std::vector<double>& out) {
        for (std::int64_t h = 0; h < view.heads; ++h) {
          for (std::int64_t i = 0; i < view.tokens * view.head_dim; ++i)
            out.push_back(core::element_of(view, h * view.head_stride + i));
        }
      };
      read(sequence.cache(0).keys(), keys);
      read(sequence.cache(0).values(), values);
      keys.insert(keys.end(), values.begin(), values.end());
      return keys;
    };
    const std::vector<double> exact = keys_of(core::DType::f32);
    const std::vector<double> f16 = keys_of(core::DType::f16), bf16 = keys_of(core::DType::bf16);
    ASSERT_EQ(exact.size(), f16.size());
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const auto key = static_cast<float>(exact[i]);
      ASSERT_EQ(f16[i], static_cast<double>(core::to_float(core::to_half(key)))) << name << i;
      ASSERT_EQ(bf16[i], static_cast<double>(core::to_float(core::to_bfloat16(key)))) << name << i;
    }
    EXPECT_THROW((void)decoder.sequence({.capacity = 4}).cache(decoder.facts().layers), Error);
  }
}

// A scaling in place of the config's own changes the rotation of keys and queries, and nothing else.
TEST(Decoder, TakesAnotherScaling) {
  Decoder decoder = load(golden_model("qwen3_qk_norm"));
  const std::vector<std::int64_t> ids = golden_ids("qwen3_qk_norm");
  const std::vector<float> own = logits_of(decoder, ids);
  EXPECT_EQ(
      largest_difference(
          own, logits_of(decoder, ids, {.capacity = 14, .scaling = encodings::LinearScaling{1.0}})),
      0.0);
  EXPECT_GT(
      largest_difference(
          own, logits_of(decoder, ids, {.capacity = 14, .scaling = encodings::LinearScaling{4.0}})),
      1e-2);
  // Dynamic NTK: one run at 14 tokens, or 14 runs, the last of which has the same frequencies. Keys
  // of the first layer are rotated again; later ones were computed under other angles, so that only
  // an approximate comparison is possible.
  const SequenceOptions dynamic{.capacity = 14,
                                .scaling = encodings::DynamicScaling{2.0, std::nullopt, 8}};
  const std::vector<float> whole = logits_of(decoder, ids, dynamic);
  Sequence sequence = decoder.sequence(dynamic);
  std::vector<float> last;
  for (const std::int64_t& id : ids) {
    const Step step{&sequence, {&id, 1}};
    last = decoder.forward({&step, 1}).logits;
  }
  EXPECT_LT(largest_difference(last, {whole.end() - 97, whole.end()}), 1.0);
}

TEST(Decoder, RefusesWhatAStepMayNotBe) {
  Decoder decoder = load(golden_model("llama_gqa_llama3"));
  Decoder other = load(golden_model("llama_gqa_llama3"));
  Sequence sequence = decoder.sequence({.capacity = 4});
  Sequence of_another = other.sequence({.capacity = 4});
  const std::vector<std::int64_t> ids = {1, 2};
  const std::vector<std::int64_t> beyond = {1, 97};
  const std::vector<std::int64_t> five = {1, 2, 3, 4, 5};
  const auto refused = [&](std::vector<Step> steps, const char* text) {
    try {
      (void)decoder.forward(steps);
      ADD_FAILURE() << "not refused: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
    EXPECT_TRUE(sequence.ids().empty());
    EXPECT_EQ(sequence.next_position(), 0);
  };
  refused({}, "steps");
  refused({{&sequence, {}}}, "step 0");
  refused({{&of_another, ids}}, "step 0");
  refused({{&sequence, ids}, {&sequence, ids}}, "steps 0 and 1");
  refused({{&sequence, beyond}}, "from 0 to 96, got 97");
  refused({{&sequence, five}}, "capacity of 4 tokens, got 5");
  EXPECT_THROW((void)decoder.sequence({.capacity = 0}), Error);
}

TEST(Unpad, KeepsTokensOfTheMask) {
  const std::vector<std::int64_t> ids = {0, 0, 7, 8, 9, 5};
  const std::vector<std::uint8_t> mask = {0, 0, 1, 1, 0, 1};
  const MaskedBatch batch = unpad(ids, mask, 2);
  EXPECT_EQ(batch.rows, (std::vector<std::vector<std::int64_t>>{{7}, {8, 5}}));
  EXPECT_EQ(batch.slots, (std::vector<std::vector<std::int64_t>>{{2}, {0, 2}}));
  EXPECT_THROW((void)unpad(ids, std::vector<std::uint8_t>{1, 1, 1, 0, 0, 0}, 2), Error);
  EXPECT_THROW((void)unpad(ids, mask, 4), Error);
}

class BrokenModel : public io::testing::TemporaryFolder {
 protected:
  void config(const std::string& text) { io::testing::put(at("config.json"), text); }
  [[nodiscard]] static std::string golden_config(const std::string& name = "llama_gqa_llama3") {
    return io::testing::get(golden_model(name) / "config.json");
  }
  void expect_refusal(const std::string& text) const {
    const Result<Decoder> decoder = Decoder::load(at(""));
    ASSERT_FALSE(decoder.ok()) << "not refused: " << text;
    EXPECT_NE(std::string(decoder.error().what()).find(text), std::string::npos)
        << decoder.error().what();
    EXPECT_EQ(std::string(decoder.error().what()).find('\n'), std::string::npos);
  }
};

TEST_F(BrokenModel, MissingExtraAndMisshapenTensorsAreNamed) {
  config(golden_config());
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  Weights weights = Weights::of("llama_gqa_llama3");
  weights.remove(name);
  weights.write(at(""));
  expect_refusal(name);
  weights.add(name, {3, 5});
  weights.write(at(""));
  expect_refusal("[3, 5]");
  weights = Weights::of("llama_gqa_llama3");
  weights.add("model.layers.0.self_attn.q_proj.bias", {64});
  weights.write(at(""));
  expect_refusal("q_proj.bias");
}

TEST_F(BrokenModel, OldBuffersAreIgnored) {
  config(golden_config());
  Weights weights = Weights::of("llama_gqa_llama3");
  weights.add("model.layers.0.self_attn.rotary_emb.inv_freq", {8});
  weights.write(at(""));
  EXPECT_TRUE(Decoder::load(at("")).ok());
}

TEST_F(BrokenModel, SettingsThatLayersDoNotComputeAreNamed) {
  Weights::of("llama_gqa_llama3").write(at(""));
  const std::string text = golden_config();
  config(replaced(text, "\"llama\"", "\"mamba9\""));
  expect_refusal("mamba9");
  config(replaced(text, "\"silu\"", "\"quick_gelu\""));
  expect_refusal("quick_gelu");
  config(replaced(text, "\"hidden_size\"", "\"clip_qkv\": 8.0, \"hidden_size\""));
  expect_refusal("clip_qkv");
  config(replaced(text, "\"hidden_size\"", "\"residual_multiplier\": 0.5, \"hidden_size\""));
  expect_refusal("residual_multiplier");
  config(replaced(text, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"));
  expect_refusal("tie_word_embeddings");
  config(replaced(text, "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 99999999"));
  expect_refusal("num_hidden_layers");
  config(replaced(text, "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4"));
  expect_refusal("layers.3");
  config(replaced(text, "\"vocab_size\": 97", "\"vocab_size\": 98"));
  expect_refusal("[98, 64]");
}

TEST(Decoder, RefusesWhatIsNoCheckpoint) {
  EXPECT_FALSE(Decoder::load("/nowhere/at/all").ok());
  const Result<Decoder> encoder = Decoder::load(golden_model("roformer_mlm"));
  ASSERT_FALSE(encoder.ok());
  EXPECT_NE(std::string(encoder.error().what()).find("phasor fill"), std::string::npos);
}

}  // namespace
}  // namespace phasor::models::testing
