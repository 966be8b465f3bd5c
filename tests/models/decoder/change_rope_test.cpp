// Numbers of a rotation in place of a checkpoint's own.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "models/decoder/decoder_support.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/models/checkpoint.hpp"
#include "support/errors.hpp"

namespace phasor::models::testing {
namespace {

Checkpoint checkpoint_of(const std::string& name) {
  return Checkpoint::open(golden_model(name)).value_or_throw();
}

std::vector<float> changed_logits(const std::string& name, const RopeChange& change) {
  Checkpoint checkpoint = checkpoint_of(name);
  checkpoint.change_rope(change);
  Decoder decoder = Decoder::load(std::move(checkpoint)).value_or_throw();
  return logits_of(decoder, golden_ids(name));
}

ErrorCode refusal_code(const std::string& name, const RopeChange& change) {
  Checkpoint checkpoint = checkpoint_of(name);
  const config::ModelConfig before = checkpoint.config();
  try {
    checkpoint.change_rope(change);
  } catch (const Error& error) {
    for (std::size_t i = 0; i < before.groups.size(); ++i)
      EXPECT_EQ(checkpoint.config().groups[i].rope, before.groups[i].rope);
    return error.code();
  }
  ADD_FAILURE() << name << ": must be refused";
  return ErrorCode::internal;
}

// A model in memory is the model of its files.
TEST(CheckpointInMemory, HasTheLogitsOfItsFiles) {
  const std::string name = "llama_gqa_llama3";
  const auto text_of = [&](const char* file) {
    return io::read_text(golden_model(name) / file).value_or_throw();
  };
  const std::string config = text_of("config.json"), weights = text_of("model.safetensors");
  Decoder from_files = decoder_of(name);
  Decoder from_memory =
      Decoder::load(
          Checkpoint::parse(config, std::as_bytes(std::span(weights)), "memory").value_or_throw())
          .value_or_throw();
  EXPECT_EQ(logits_of(from_memory, golden_ids(name)), logits_of(from_files, golden_ids(name)));
  const auto cut = std::as_bytes(std::span(weights)).first(weights.size() / 2);
  tests::expect_error(ErrorCode::io, {"memory"}, Checkpoint::parse(config, cut, "memory"));
  tests::expect_error(ErrorCode::invalid_argument, {"memory"},
                      Checkpoint::parse("{", std::as_bytes(std::span(weights)), "memory"));
}

TEST(ChangeRope, OwnNumbersChangeNothing) {
  const std::string name = "llama_gqa_llama3";
  const Checkpoint checkpoint = checkpoint_of(name);
  const encodings::RopeSpec& rope = *checkpoint.config().groups.front().rope;
  Decoder decoder = decoder_of(name);
  const std::vector<float> plain = logits_of(decoder, golden_ids(name));
  EXPECT_EQ(changed_logits(name, {}), plain);
  EXPECT_EQ(changed_logits(name, {.base = rope.base, .scaling = rope.scaling}), plain);
  EXPECT_NE(changed_logits(name, {.base = 2 * rope.base}), plain);
}

TEST(ChangeRope, AScalingIsThatOfASequence) {
  const encodings::RopeScaling linear = encodings::LinearScaling{4.0};
  for (const char* const name : {"llama_gqa_llama3", "gpt_neox_partial", "qwen2_bias_yarn"}) {
    Decoder decoder = decoder_of(name);
    EXPECT_EQ(changed_logits(name, {.scaling = linear}),
              logits_of(decoder, golden_ids(name), {.capacity = 256, .scaling = linear}))
        << name;
  }
}

TEST(ChangeRope, Refusals) {
  EXPECT_EQ(refusal_code("gemma3_local_global", {.base = 500.0}), ErrorCode::unsupported);
  EXPECT_EQ(refusal_code("llama_gqa_llama3", {.base = -1.0}), ErrorCode::invalid_argument);
  EXPECT_EQ(refusal_code("llama_gqa_llama3", {.scaling = encodings::LinearScaling{0.0}}),
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace phasor::models::testing
