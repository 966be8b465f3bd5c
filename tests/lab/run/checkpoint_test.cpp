// Folders that the lab writes: the same logits in the models that other verbs run, and refusals.
#include "phasor/lab/internal/checkpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "phasor/lab/internal/random.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/models/roformer.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::lab {
namespace {

using phasor::tests::expect_error;

// A float32 sum of a few hundred terms, some layers deep.
constexpr double kLogitTolerance = 2e-5;

ModelSpec spec_of(std::string_view json) { return parse_model_spec(io::Json::parse(json)); }

Network<float> random_network(const ModelSpec& spec, std::uint64_t seed) {
  Network<float> network(spec);
  network.initialise(seed);
  // Biases and norms too: initialise() leaves them at 0 and 1.
  Random random(seed, Stream::sampling);
  for (float& parameter : network.parameters()) {
    parameter += static_cast<float>(0.1 * random.normal());
  }
  return network;
}

Batch random_batch(const ModelSpec& spec, std::int64_t rows, std::int64_t tokens) {
  Random random(5, Stream::batches);
  Batch batch;
  batch.rows = rows;
  batch.tokens = tokens;
  for (std::int64_t i = 0; i < rows * tokens; ++i) {
    batch.ids.push_back(static_cast<std::int32_t>(random.below(spec.vocabulary)));
    if (spec.style == Style::roformer) {
      batch.token_types.push_back(static_cast<std::int32_t>(random.below(spec.token_types)));
    }
  }
  return batch;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  double largest = 1.0;
  for (const float value : expected) largest = std::max(largest, std::abs(double{value}));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], kLogitTolerance * largest) << i;
  }
}

using LabCheckpoint = io::testing::TemporaryFolder;

TEST_F(LabCheckpoint, a_decoder_with_rope_is_a_llama) {
  for (
      const char* const json :
      {R"({"vocabulary": 37, "hidden": 32, "layers": 2, "heads": 4, "intermediate": 48, "context": 64})",
       R"({"vocabulary": 300, "hidden": 24, "layers": 1, "heads": 2, "intermediate": 40, "context": 16,
            "output": "own", "encoding": {"name": "rope", "base": 500.0}})",
       R"({"vocabulary": 19, "hidden": 96, "layers": 3, "heads": 3, "intermediate": 100, "context": 40})"}) {
    const ModelSpec spec = spec_of(json);
    ASSERT_EQ(model_type_of(spec), "llama");
    Network<float> network = random_network(spec, 7);
    ASSERT_TRUE(save_checkpoint(network, {}, at("llama")).ok());
    models::Decoder decoder = models::Decoder::load(at("llama")).value_or_throw();
    const std::int64_t tokens = 13;
    const Batch batch = random_batch(spec, 2, tokens);
    const std::vector<std::int64_t> ids(batch.ids.begin(), batch.ids.end());
    const models::ForwardResult result =
        models::forward_padded(decoder, ids, {}, 2, {.logits = models::LogitsOf::every_token});
    expect_near(network.logits(batch), result.logits);
  }
}

TEST_F(LabCheckpoint, an_encoder_with_rope_is_a_roformer) {
  for (const char* const json :
       {R"({"architecture": "encoder", "vocabulary": 37, "hidden": 32, "layers": 2, "heads": 4,
            "intermediate": 48, "context": 64, "token_types": 2})",
        R"({"architecture": "encoder", "vocabulary": 90, "hidden": 24, "layers": 1, "heads": 2,
            "intermediate": 40, "context": 16, "output": "own"})",
        R"({"architecture": "encoder", "vocabulary": 41, "hidden": 48, "layers": 3, "heads": 3,
            "intermediate": 64, "context": 32, "token_types": 2, "head": "classification", "labels": 3})"}) {
    const ModelSpec spec = spec_of(json);
    ASSERT_EQ(model_type_of(spec), "roformer");
    Network<float> network = random_network(spec, 8);
    ASSERT_TRUE(save_checkpoint(network, {}, at("roformer")).ok());
    models::RoFormer model = models::RoFormer::load(at("roformer")).value_or_throw();
    Batch batch = random_batch(spec, 3, 11);
    batch.mask.assign(batch.ids.size(), 1);
    for (std::size_t token = 7; token < 11; ++token) batch.mask[11 + token] = 0;
    const std::vector<std::int64_t> ids(batch.ids.begin(), batch.ids.end());
    const std::vector<std::int64_t> types(batch.token_types.begin(), batch.token_types.end());
    std::vector<float> expected =
        model.forward({.batch = 3, .ids = ids, .token_types = types, .mask = batch.mask}).logits;
    std::vector<float> got = network.logits(batch);
    if (spec.head == Head::language_model) {
      models::clear_padding(batch.mask, spec.vocabulary, expected);
      models::clear_padding(batch.mask, spec.vocabulary, got);
    }
    expect_near(got, expected);
  }
}

TEST_F(LabCheckpoint, others_are_read_back_bit_for_bit) {
  for (
      const char* const json :
      {R"({"vocabulary": 37, "hidden": 32, "layers": 2, "heads": 4, "intermediate": 48, "context": 64,
            "encoding": {"name": "t5", "buckets": 8, "max_distance": 20}})",
       R"({"architecture": "encoder", "vocabulary": 37, "hidden": 32, "layers": 2, "heads": 4,
            "intermediate": 48, "context": 64, "encoding": "deberta"})",
       R"({"vocabulary": 37, "hidden": 32, "layers": 1, "heads": 4, "intermediate": 48, "context": 64,
            "attention": "linear"})"}) {
    const ModelSpec spec = spec_of(json);
    ASSERT_EQ(model_type_of(spec), kLabModelType);
    Network<float> network = random_network(spec, 9);
    ASSERT_TRUE(save_checkpoint(network, {}, at("lab")).ok());
    EXPECT_TRUE(is_lab_checkpoint(at("lab")));
    Network<float> read = load_checkpoint(at("lab")).value_or_throw();
    EXPECT_EQ(json_of(read.spec()), json_of(spec));
    const Batch batch = random_batch(spec, 2, 9);
    EXPECT_EQ(read.logits(batch), network.logits(batch));
  }
  EXPECT_FALSE(is_lab_checkpoint(at("none")));
}

TEST_F(LabCheckpoint, refuses_another_vocabulary_and_other_tensors) {
  const auto encoder = [](int vocabulary, std::string_view more) {
    return spec_of(message(R"({"architecture": "encoder", "hidden": 16, "layers": 1, "heads": 2,
        "intermediate": 24, "context": 8, "vocabulary": )",
                           vocabulary, more, "}"));
  };
  Network<float> network = random_network(encoder(30, ""), 1);
  ASSERT_TRUE(save_checkpoint(network, {}, at("a")).ok());
  Network<float> wider(encoder(31, ""));
  expect_error(ErrorCode::shape_mismatch, {"30", "31", "model.safetensors"},
               read_parameters(at("a"), wider));
  Network<float> deeper(
      spec_of(R"({"architecture": "encoder", "hidden": 16, "layers": 2, "heads": 2,
        "intermediate": 24, "context": 8, "vocabulary": 30})"));
  expect_error(ErrorCode::invalid_argument, {"layer.1", "missing"},
               read_parameters(at("a"), deeper));
  // A body with another head: the new head keeps its numbers.
  const ModelSpec other_head = encoder(30, R"(, "head": "classification", "labels": 2)");
  Network<float> refused(other_head);
  expect_error(ErrorCode::invalid_argument, {"classifier"}, read_parameters(at("a"), refused));
  Network<float> classifier = random_network(other_head, 2);
  const std::vector<float> before(classifier.parameters().begin(), classifier.parameters().end());
  ASSERT_TRUE(read_body(at("a"), classifier).ok());
  for (const Parameter& parameter : classifier.layout()) {
    const bool is_head = parameter.name.starts_with("classifier.");
    const auto after = classifier.parameters()[parameter.first];
    EXPECT_EQ(after == before[parameter.first], is_head) << parameter.name;
  }
  // Other labels: what depends on their number keeps its numbers too.
  ASSERT_TRUE(save_checkpoint(classifier, {}, at("two")).ok());
  Network<float> more =
      random_network(encoder(30, R"(, "head": "classification", "labels": 3)"), 3);
  const float kept = more.parameters().back();
  ASSERT_EQ(more.layout().back().name, "classifier.out_proj.bias");
  expect_error(ErrorCode::shape_mismatch, {"[3, 16]", "[2, 16]"}, read_parameters(at("two"), more));
  ASSERT_TRUE(read_body(at("two"), more).ok());
  EXPECT_EQ(more.parameters().back(), kept);
  EXPECT_EQ(more.parameters().front(), classifier.parameters().front());
  expect_error(ErrorCode::io, {"none"}, read_parameters(at("none"), network));
  expect_error(ErrorCode::unsupported, {"roformer", "config.json"}, load_checkpoint(at("a")));
}

}  // namespace
}  // namespace phasor::lab
