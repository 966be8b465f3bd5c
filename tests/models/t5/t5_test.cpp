// T5 against a plain float64 reference, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "models/ids.hpp"
#include "models/roformer/roformer_support.hpp"
#include "models/t5/t5_reference.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/models/t5.hpp"
#include "support/errors.hpp"
#include "support/gguf_writer.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::models::testing {
namespace {

using tests::expect_error;

constexpr const char* kT5Goldens[] = {"t5_relu_tied", "t5_gated_untied", "mt5_gated",
                                      "umt5_tables"};

// float32 sums of up to 72 products in six layers.
constexpr double kT5Tolerance = 4e-5;

T5Model t5_of(const std::string& name, const ComputeOptions& options = {}) {
  return T5Model::load(golden_case(name) / "model", options).value_or_throw();
}

std::vector<float> t5_logits(T5Model& model, const Ids& input, const Ids& ids,
                             std::optional<core::DType> cache = std::nullopt) {
  T5Sequence sequence =
      model.sequence(input, {.capacity = static_cast<std::int64_t>(ids.size()), .cache = cache});
  return model.forward(sequence, ids, {.logits = LogitsOf::every_token}).logits;
}

double t5_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

// Lengths on both sides of every bucket's edge, and more queries than keys in cross-attention.
TEST(T5, EqualsThePlainReference) {
  for (const std::string name : kT5Goldens) {
    const Files files = Files::of_golden(name);
    const T5Reference reference(files);
    T5Model model = t5_of(name);
    for (const auto& [tokens, steps] :
         {std::pair<std::size_t, std::size_t>{1, 1}, {2, 33}, {33, 2}, {140, 30}}) {
      SCOPED_TRACE(message(name, ", ", tokens, " tokens, ", steps, " steps"));
      const Ids input = some_ids(tokens, 3), ids = some_ids(steps, 5);
      expect_near(model.encode(input).last_hidden_state, flat(reference.encode(input)),
                  kT5Tolerance, kT5Tolerance);
      expect_near(t5_logits(model, input, ids), flat(reference.logits(input, ids)), kT5Tolerance,
                  kT5Tolerance);
    }
  }
}

// A step is the same whether its earlier tokens come in the same call or are in the cache.
TEST(T5, StepsEqualOneCall) {
  for (const std::string name : kT5Goldens) {
    SCOPED_TRACE(name);
    T5Model model = t5_of(name);
    const Ids input = some_ids(21, 7), ids = some_ids(40, 11);
    const std::vector<float> whole = t5_logits(model, input, ids);
    for (const std::size_t piece : {1U, 7U, 39U}) {
      T5Sequence sequence = model.sequence(input, {.capacity = 40});
      std::vector<float> pieces;
      for (std::size_t at = 0; at < ids.size(); at += piece) {
        const std::size_t count = std::min(piece, ids.size() - at);
        const std::vector<float> more = model
                                            .forward(sequence, std::span(ids).subspan(at, count),
                                                     {.logits = LogitsOf::every_token})
                                            .logits;
        pieces.insert(pieces.end(), more.begin(), more.end());
      }
      EXPECT_LE(t5_difference(pieces, whole), 1e-5) << "pieces of " << piece;
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), sequence.ids().begin(), sequence.ids().end()));
    }
    // The last token's logits alone, and hidden states that end with the final norm.
    T5Sequence sequence = model.sequence(input, {.capacity = 40});
    const ForwardResult last =
        model.forward(sequence, ids, {LogitsOf::last_token, HiddenStates::collect});
    const auto width = static_cast<std::ptrdiff_t>(model.facts().vocabulary);
    EXPECT_LE(t5_difference(last.logits, {whole.end() - width, whole.end()}), 1e-5);
    EXPECT_EQ(
        last.hidden_states.size(),
        static_cast<std::size_t>((model.facts().decoder_layers + 1) * 40 * model.facts().hidden));
  }
}

TEST(T5, TruncateGoesBack) {
  T5Model model = t5_of("umt5_tables");
  const Ids input = some_ids(9, 2), ids = some_ids(6, 4);
  T5Sequence sequence = model.sequence(input, {.capacity = 6});
  EXPECT_EQ(sequence.input_tokens(), 9);
  EXPECT_EQ(sequence.capacity(), 6);
  (void)model.forward(sequence, some_ids(6, 8));
  sequence.truncate(0);
  const std::vector<float> again =
      model.forward(sequence, ids, {.logits = LogitsOf::every_token}).logits;
  EXPECT_EQ(again, t5_logits(model, input, ids));
  expect_error(ErrorCode::out_of_range, {"7", "6"}, [&] { sequence.truncate(7); });
  expect_error(ErrorCode::out_of_range, {"-1"}, [&] { sequence.truncate(-1); });
}

TEST(T5, OtherCachesAndPrecision) {
  const Ids input = some_ids(30, 2), ids = some_ids(12, 4);
  T5Model model = t5_of("t5_gated_untied");
  const std::vector<float> exact = t5_logits(model, input, ids);
  const double half = t5_difference(t5_logits(model, input, ids, core::DType::f16), exact);
  EXPECT_GT(half, 0.0);
  EXPECT_LE(half, 0.02);
  EXPECT_LE(t5_difference(t5_logits(model, input, ids, core::DType::bf16), exact), 0.2);
  T5Model fast = t5_of("t5_gated_untied", {.precision = Precision::fast});
  EXPECT_LE(t5_difference(t5_logits(fast, input, ids), exact), 0.02);
  T5Model threads = t5_of("t5_gated_untied", {.threads = 2});
  EXPECT_LE(t5_difference(t5_logits(threads, input, ids), exact), 1e-5);
}

TEST(T5, RefusesWrongCalls) {
  T5Model model = t5_of("t5_relu_tied"), other = t5_of("t5_relu_tied");
  const Ids input = some_ids(5, 2);
  expect_error(ErrorCode::invalid_argument, {"input"}, [&] { return model.encode({}); });
  expect_error(ErrorCode::out_of_range, {"97"}, [&] { return model.encode(Ids{1, 97}); });
  expect_error(ErrorCode::invalid_argument, {"0"},
               [&] { return model.sequence(input, {.capacity = 0}); });
  T5Sequence sequence = model.sequence(input, {.capacity = 3});
  expect_error(ErrorCode::invalid_argument, {"step"}, [&] { return model.forward(sequence, {}); });
  expect_error(ErrorCode::out_of_range, {"-1"}, [&] {
    return model.forward(sequence, Ids{3, -1});
  });
  expect_error(ErrorCode::out_of_range, {"3", "4"},
               [&] { return model.forward(sequence, some_ids(4)); });
  expect_error(ErrorCode::invalid_argument, {"model"},
               [&] { return other.forward(sequence, Ids{0}); });
  EXPECT_TRUE(sequence.ids().empty());
  // Unchanged by what was refused.
  EXPECT_EQ(model.forward(sequence, Ids{0, 4, 8}, {.logits = LogitsOf::every_token}).logits,
            t5_logits(model, input, {0, 4, 8}));
}

TEST(T5, GeneratesTheReferenceAnswer) {
  for (const std::string name : kT5Goldens) {
    SCOPED_TRACE(name);
    T5Model model = t5_of(name);
    const Ids input = integers(golden_case(name) / "input_ids.npy");
    const Ids expected = integers(golden_case(name) / "generated.npy");
    GenerateOptions options{.tokens = 16};
    const GenerateResult result = generate(model, input, options);
    EXPECT_EQ(result.ids, expected);
    EXPECT_EQ(result.reason, StopReason::tokens);
    EXPECT_EQ(result.prompt_tokens, 30);
    options.stops = {expected[5]};
    const auto stop = std::find(expected.begin(), expected.end(), expected[5]);
    const GenerateResult stopped = generate(model, input, options);
    EXPECT_EQ(stopped.ids, Ids(expected.begin(), stop));
    EXPECT_EQ(stopped.reason, StopReason::stop_token);
    options.stops = {};
    int left = 3;
    const GenerateResult cancelled =
        generate(model, input, options, std::nullopt, [&](std::int64_t) { return --left > 0; });
    EXPECT_EQ(cancelled.ids, Ids(expected.begin(), expected.begin() + 3));
    EXPECT_EQ(cancelled.reason, StopReason::cancelled);
  }
}

TEST(T5, GenerateRefusesOptions) {
  T5Model model = t5_of("t5_relu_tied");
  const Ids input = some_ids(5, 2);
  EXPECT_TRUE(generate(model, input, {.tokens = 0}).ids.empty());
  EXPECT_EQ(generate(model, input, {.tokens = 4, .context = 5}).ids.size(), 4U);
  expect_error(ErrorCode::out_of_range, {"5"},
               [&] { return generate(model, input, {.tokens = 5, .context = 5}); });
  expect_error(ErrorCode::invalid_argument, {"-1"},
               [&] { return generate(model, input, {.tokens = -1}); });
  expect_error(ErrorCode::unsupported, {"shift"},
               [&] { return generate(model, input, {.when_full = WindowFull::shift}); });
  const GenerateOptions sampled{.tokens = 12, .sampler = {.temperature = 1.5, .seed = 3}};
  EXPECT_EQ(generate(model, input, sampled).ids, generate(model, input, sampled).ids);
}

class T5Files : public io::testing::TemporaryFolder {
 protected:
  // `change` applied to a golden checkpoint.
  [[nodiscard]] Result<T5Model> changed(const std::string& name,
                                        const std::function<void(Files&)>& change) const {
    Files files = Files::of_golden(name);
    change(files);
    files.write(at("model"));
    return T5Model::load(at("model"));
  }
};

TEST_F(T5Files, RefusesWhatItDoesNotCompute) {
  const auto config = [&](const std::string& from, const std::string& to) {
    return changed("t5_relu_tied", [&](Files& files) { files.change_config(from, to); });
  };
  expect_error(ErrorCode::unsupported, {"tango"},
               config("\"feed_forward_proj\": \"relu\"", "\"feed_forward_proj\": \"tango\""));
  expect_error(ErrorCode::unsupported, {"longt5"},
               config("\"model_type\": \"t5\"", "\"model_type\": \"longt5\""));
  expect_error(ErrorCode::invalid_argument, {"decoder_start_token_id", "97"},
               config("\"decoder_start_token_id\": 0", "\"decoder_start_token_id\": 97"));
  expect_error(ErrorCode::invalid_argument, {"d_kv", "0"}, config("\"d_kv\": 12", "\"d_kv\": 0"));
  expect_error(ErrorCode::invalid_argument, {"max_distance", "2"},
               config("max_distance\": 20", "max_distance\": 2"));
  expect_error(ErrorCode::invalid_argument, {"layer_norm_epsilon", "0"},
               config("\"layer_norm_epsilon\": 1e-06", "\"layer_norm_epsilon\": 0"));
  expect_error(ErrorCode::shape_mismatch, {"SelfAttention.q.weight", "36"},
               config("\"num_heads\": 4", "\"num_heads\": 3"));
  const std::string cross = "decoder.block.1.layer.1.EncDecAttention.k.weight";
  expect_error(ErrorCode::invalid_argument, {cross},
               changed("t5_relu_tied", [&](Files& files) { files.weights.erase(cross); }));
  expect_error(ErrorCode::unsupported, {"decoder.block.9.more"},
               changed("t5_relu_tied", [&](Files& files) {
                 files.weights["decoder.block.9.more"] = files.weights.at("shared.weight");
               }));
  // Without a table in every layer it is a T5, not an umT5.
  expect_error(
      ErrorCode::unsupported, {"block.1.layer.0.SelfAttention.relative"},
      changed("umt5_tables", [](Files& files) { files.change_config("\"umt5\"", "\"t5\""); }));
  EXPECT_FALSE(Decoder::load(golden_case("t5_relu_tied") / "model").ok());
}

// Other spellings of the same checkpoint.
TEST_F(T5Files, ReadsOldAndNewForms) {
  const Ids input = some_ids(11, 3), ids = some_ids(4, 9);
  T5Model tied = t5_of("t5_relu_tied"), untied = t5_of("t5_gated_untied");
  const std::vector<float> expected = t5_logits(tied, input, ids);
  const auto logits = [&](const std::string& name, const std::function<void(Files&)>& change) {
    T5Model model = changed(name, change).value_or_throw();
    return t5_logits(model, input, ids);
  };
  // The first checkpoints: copies of the embedding, a bias of cross-attention that is not read, and
  // none of the newer keys.
  EXPECT_EQ(logits("t5_relu_tied",
                   [](Files& files) {
                     files.change_config("\"scale_decoder_outputs\": true,", "");
                     files.change_config("\"tie_word_embeddings\": true,", "");
                     files.change_config("\"decoder_start_token_id\": 0,", "");
                     const Weight shared = files.weights.at("shared.weight");
                     for (const char* name : {"encoder.embed_tokens.weight",
                                              "decoder.embed_tokens.weight", "lm_head.weight"})
                       files.weights[name] = shared;
                     files.weights
                         ["decoder.block.0.layer.1.EncDecAttention."
                          "relative_attention_bias.weight"] = {{8, 4},
                                                               std::vector<float>(32, 1.0F)};
                   }),
            expected);
  // Writers that drop copies may keep another name of the embedding.
  EXPECT_EQ(logits("t5_relu_tied",
                   [](Files& files) {
                     auto shared = files.weights.extract("shared.weight");
                     shared.key() = "decoder.embed_tokens.weight";
                     files.weights.insert(std::move(shared));
                   }),
            expected);
  // The factor before the head, whether the head is tied or not.
  std::vector<float> scaled = logits("t5_relu_tied", [](Files& files) {
    files.change_config("\"scale_decoder_outputs\": true", "\"scale_decoder_outputs\": false");
  });
  for (float& value : scaled) value /= std::sqrt(40.0F);
  EXPECT_LE(t5_difference(scaled, expected), 1e-6);
  EXPECT_EQ(logits("t5_gated_untied",
                   [](Files& files) {
                     files.change_config(
                         "\"tie_word_embeddings\": false",
                         "\"tie_word_embeddings\": true, \"scale_decoder_outputs\": false");
                   }),
            t5_logits(untied, input, ids));
  EXPECT_EQ(tied.facts().stops, Ids{96});
  EXPECT_EQ(tied.facts().encoder_layers, 3);
  EXPECT_EQ(tied.facts().decoder_layers, 2);
  EXPECT_EQ(tied.facts().weight_types, std::vector<std::string>{"f32"});
}

std::string gguf_t5_name(std::string name) {
  const std::pair<std::string, std::string> rules[] = {
      {"shared", "token_embd"},
      {"lm_head", "output"},
      {"encoder.final_layer_norm", "enc.output_norm"},
      {"decoder.final_layer_norm", "dec.output_norm"},
      {"encoder.block.", "enc.blk."},
      {"decoder.block.", "dec.blk."},
      {"layer.0.SelfAttention.relative_attention_bias", "attn_rel_b"},
      {"layer.0.SelfAttention.", "attn_"},
      {"layer.0.layer_norm", "attn_norm"},
      {"layer.1.EncDecAttention.", "cross_attn_"},
      {".DenseReluDense.wi_0", ".ffn_gate"},
      {".DenseReluDense.wi_1", ".ffn_up"},
      {".DenseReluDense.wi", ".ffn_up"},
      {".DenseReluDense.wo", ".ffn_down"},
  };
  for (const auto& [from, to] : rules) {
    if (const std::size_t place = name.find(from); place != std::string::npos)
      name.replace(place, from.size(), to);
  }
  const bool encoder = name.starts_with("enc.");
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"layer.1.layer_norm",
                                            encoder ? "ffn_norm" : "cross_attn_norm"},
        {"layer.2.layer_norm", "ffn_norm"},
        {"layer.1.ffn", "ffn"},
        {"layer.2.ffn", "ffn"}}) {
    if (const std::size_t place = name.find(from); place != std::string::npos)
      name.replace(place, from.size(), to);
  }
  return name;
}

// Files with the names and keys of llama.cpp's converter. The format has no key for max_distance, so the
// originals get 128.
TEST_F(T5Files, GgufGivesTheSameLogits) {
  for (const std::string name : kT5Goldens) {
    SCOPED_TRACE(name);
    Files files = Files::of_golden(name);
    io::Json config = io::parse_object(files.config);
    config["relative_attention_max_distance"] = 128;
    files.config = config.dump();
    files.write(at("model"));
    T5Model original = T5Model::load(at("model")).value_or_throw();
    const T5Facts& facts = original.facts();
    const auto u32 = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
    io::testing::GgufWriter writer;
    writer.text("general.architecture", "t5")
        .number("t5.block_count", u32(facts.encoder_layers))
        .number("t5.decoder_block_count", u32(facts.decoder_layers))
        .number("t5.context_length", 512U)
        .number("t5.embedding_length", u32(facts.hidden))
        .number("t5.feed_forward_length", u32(facts.intermediate))
        .number("t5.attention.head_count", u32(facts.heads))
        .number("t5.attention.key_length", u32(facts.head_dim))
        .number("t5.attention.value_length", u32(facts.head_dim))
        .number("t5.attention.relative_buckets_count", u32(facts.buckets))
        .number("t5.attention.layer_norm_rms_epsilon", 1e-6F)
        .number("t5.decoder_start_token_id", 0U)
        .number("tokenizer.ggml.eos_token_id", 96U);
    for (const auto& [tensor, weight] : files.weights) {
      const auto bytes = std::as_bytes(std::span(weight.values));
      writer.tensor(gguf_t5_name(tensor), 0,
                    std::vector<std::uint64_t>(weight.shape.rbegin(), weight.shape.rend()),
                    std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    }
    io::testing::put(at("model.gguf"), writer.bytes());
    T5Model model = T5Model::load(at("model.gguf")).value_or_throw();
    const Ids input = some_ids(40, 3), ids = some_ids(9, 9);
    EXPECT_LE(t5_difference(t5_logits(model, input, ids), t5_logits(original, input, ids)), 1e-5);
    EXPECT_EQ(model.facts().parameters, facts.parameters);
    EXPECT_EQ(model.facts().stops, Ids{96});
  }
}

}  // namespace
}  // namespace phasor::models::testing
