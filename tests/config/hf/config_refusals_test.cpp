// What is refused, and in which words.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "phasor/config/config.hpp"

namespace phasor::config {
namespace {

struct Refusal {
  std::string text;
  std::string message;
};

std::string refusal_of(const std::string& text) {
  const Result<ModelConfig> config = parse_config(text, "c.json");
  return config.ok() ? "" : config.error().what();
}

// A Llama config with some more keys.
std::string llama(const std::string& more) {
  return R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128)" +
         (more.empty() ? "" : ", " + more) + "}";
}

void expect_refusals(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals)
    EXPECT_EQ(refusal_of(refusal.text), refusal.message) << refusal.text;
}

TEST(ConfigRefusals, NotJson) {
  expect_refusals({
      {"", "c.json: expected JSON, got something else at line 1, column 1"},
      {"{\n  \"head_dim\": eight\n}",
       "c.json: expected JSON, got something else at line 2, column 15"},
      {"[1, 2]", "c.json: expected a JSON object, got [1,2]"},
      {R"({"head_dim": 8, "base": 1e999})",
       "c.json: expected JSON with numbers in the range of float64, got others"},
      {R"({"head_dim": 8, "head_dim": 16})",
       "c.json: head_dim: a key must appear once in an object, got it twice"},
      {llama(R"("rope_scaling": {"type": "linear", "factor": 2, "factor": 4})"),
       "c.json: factor: a key must appear once in an object, got it twice"},
      {R"({"head_dim": )" + std::string(100, '[') + std::string(100, ']') + "}",
       "c.json: JSON must be nested at most 64 deep, got more"},
  });
  EXPECT_NE(refusal_of("{\"head_dim\": \"\xff\"}"), "");
}

TEST(ConfigRefusals, PlainSpec) {
  expect_refusals({
      {"{}", "c.json: head_dim: expected an integer, got nothing"},
      {R"({"head_dim": "8"})", "c.json: head_dim: expected an integer, got \"8\""},
      {R"({"head_dim": 8.5})", "c.json: head_dim: expected an integer, got 8.5"},
      {R"({"head_dim": 8, "base": "10000"})", "c.json: base: expected a number, got \"10000\""},
      {R"({"head_dim": 8, "layout": "halves"})",
       "c.json: layout: expected interleaved, half or interleaved_to_half, got \"halves\""},
      {R"({"head_dim": 8, "layout": "half", "rope_theta": 10000})",
       "c.json: rope_theta: expected base in a plain spec, got rope_theta"},
      {R"({"head_dim": 8, "theta": 10000})",
       "c.json: theta: expected base in a plain spec, got theta"},
      {R"({"head_dim": 8, "base": 10, "partial_rotary_factor": 0.5})",
       "c.json: partial_rotary_factor: expected rotary_dim in a plain spec, got "
       "partial_rotary_factor"},
      {R"({"head_dim": 8, "colour": "red"})",
       "c.json: colour: expected one of head_dim, rotary_dim, rotary_offset, base, layout, "
       "max_position_embeddings, "
       "scaling, mrope, axial, xpos, got an unknown key"},
      {R"({"head_dim": 8, "rotary_dim": 7})", "c.json: rope: rotary_dim must be even, got 7"},
      {R"({"head_dim": 8, "rotary_dim": 10})",
       "c.json: rope: rotary_dim must be at most head_dim = 8, got 10"},
      {R"({"head_dim": 8, "base": 0})", "c.json: rope: base must be positive and finite, got 0"},
      {R"({"head_dim": 8, "scaling": {"factor": 2}})",
       "c.json: scaling.rope_type: expected a type, got nothing"},
      {R"({"head_dim": 8, "scaling": {"type": "linear", "factor": 2, "rope_theta": 5}})",
       "c.json: scaling.rope_theta: expected a key of type linear: factor, type, got an unknown "
       "one (the spec's own "
       "base is meant?)"},
      {R"({"head_dim": 8, "scaling": {"type": "axial"}})",
       "c.json: scaling.type: expected one of default, linear, ntk, dynamic, ntk_by_parts, yarn, "
       "longrope, llama3, "
       "proportional, got \"axial\""},
      {R"({"head_dim": 8, "mrope": {"sections": [2, 2]}})",
       "c.json: rope: mrope sections must be three (temporal, height, width), got 2"},
      {R"({"head_dim": 8, "mrope": {"sections": [2, 1, 1], "order": "sorted"}})",
       "c.json: mrope.order: expected chunked, interleaved or alternating, got \"sorted\""},
      {R"({"head_dim": 8, "axial": "rows"})",
       "c.json: axial: expected concatenated, alternating or per_half_head, got \"rows\""},
      {R"({"head_dim": 8, "axial": "alternating", "mrope": {"sections": [2, 1, 1]}})",
       "c.json: axial: expected mrope or axial, got both"},
      {R"({"head_dim": 8, "xpos": {"centre": "left"}})",
       "c.json: xpos.centre: expected a number, middle_floor or middle_ceil, got \"left\""},
      {R"({"head_dim": 8, "xpos": {"scale": 512}})",
       "c.json: xpos.scale: expected one of scale_base, gamma, centre, got an unknown key"},
  });
}

TEST(ConfigRefusals, RopeDictionaries) {
  expect_refusals({
      {llama(R"("rope_scaling": {"type": "linear", "factor": "eight"})"),
       "c.json: rope_scaling.factor: expected a number, got \"eight\""},
      {llama(R"("rope_scaling": "linear")"),
       "c.json: rope_scaling: expected an object, got \"linear\""},
      {llama(R"("rope_scaling": {"factor": 2.0})"),
       "c.json: rope_scaling.rope_type: expected a type, got nothing"},
      {llama(R"("rope_scaling": {"type": "linear"})"),
       "c.json: rope_scaling.factor: expected a number, got nothing"},
      {llama(R"("rope_scaling": {"type": "linear", "factor": 0})"),
       "c.json: rope: linear factor must be positive and finite, got 0"},
      {llama(R"("rope_scaling": {"type": "spiral", "factor": 2})"),
       "c.json: rope_scaling.type: expected one of default, axial, linear, ntk, dynamic, "
       "ntk_by_parts, "
       "yarn, longrope, "
       "llama3, proportional, got \"spiral\""},
      {llama(R"("rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2})"),
       "c.json: rope_scaling.type: expected the same as rope_type \"dynamic\", got \"linear\""},
      {llama(R"("rope_scaling": {"type": "linear", "factor": 2, "beta_fast": 32})"),
       "c.json: rope_scaling.beta_fast: expected a key of type linear: factor, rope_type, "
       "rope_theta, "
       "partial_rotary_factor, mrope_section, mrope_interleaved, got an unknown one"},
      {llama(R"("rope_scaling": {"type": "yarn", "factor": 2, "attn_factor": 1.0})"),
       "c.json: rope_scaling.attn_factor: expected a key of type yarn: factor, "
       "original_max_position_embeddings, "
       "beta_fast, beta_slow, truncate, attention_factor, mscale, mscale_all_dim, finetuned, "
       "rope_type, rope_theta, "
       "partial_rotary_factor, mrope_section, mrope_interleaved, got an unknown one "
       "(attention_factor is meant?)"},
      {llama(R"("rope_scaling": {"type": "yarn"})"),
       "c.json: rope_scaling.factor: expected a number, or null for max / original, got nothing"},
      {llama(R"("rope_scaling": {"type": "yarn", "factor": 2, "truncate": 1})"),
       "c.json: rope_scaling.truncate: expected true or false, got 1"},
      {llama(R"("rope_scaling": {"type": "yarn", "factor": 2, "llama_4_scaling_beta": 0.1})"),
       "c.json: rope_scaling.llama_4_scaling_beta: expected no scaling of queries by position, got "
       "0.1"},
      {llama(
           R"("rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 0})"),
       "c.json: rope_scaling.original_max_position_embeddings: expected a positive length, got 0"},
      {llama(
           R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4})"),
       "c.json: rope_scaling.original_max_position_embeddings: expected an integer, got nothing"},
      {llama(
           R"("rope_scaling": {"type": "longrope", "short_factor": [1, 1], "long_factor": [1, 1]})"),
       "c.json: rope: longrope short_factor must have rotary_dim / 2 = 8 entries, got 2"},
      {llama(
           R"("rope_scaling": {"type": "longrope", "short_factor": [1, "x"], "long_factor": [1, 1]})"),
       "c.json: rope_scaling.short_factor: expected a list of numbers, got \"x\" in it"},
      {llama(R"("rope_scaling": {"type": "mrope"})"),
       "c.json: rope_scaling.mrope_section: expected three integers for type mrope, got nothing"},
      {llama(R"("rope_scaling": {"type": "default", "mrope_section": [2, 3, 3]})"),
       "c.json: rope_scaling.mrope_section: expected mrope_interleaved beside it for model_type "
       "\"llama\" (its order "
       "is not known), got nothing"},
      {llama(R"("rope_parameters": {"rope_type": "axial", "rope_theta": 100})"),
       "c.json: rope_parameters.rope_type: expected another type for model_type \"llama\" (its "
       "order of axes is not "
       "known), got \"axial\""},
      {llama(R"("rope_parameters": {"rope_theta": 1e4, "factor": 2})"),
       "c.json: rope_parameters.factor: expected a key of type default: rope_type, rope_theta, "
       "partial_rotary_factor, mrope_section, mrope_interleaved, got an unknown one"},
      {R"({"head_dim": 8, "rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "factor": 2}})",
       "c.json: rope_scaling.original_max_position_embeddings: expected it here, or "
       "max_position_embeddings in the "
       "config, got neither"},
  });
}

TEST(ConfigRefusals, KeysThatContradict) {
  expect_refusals({
      {llama(
           R"("rope_theta": 500000, "rope_parameters": {"rope_type": "default", "rope_theta": 10000})"),
       "c.json: rope_theta: expected the same as rope_parameters.rope_theta 10000, got 500000"},
      {llama(R"("rope_scaling": {"type": "linear", "factor": 2},
                "rope_parameters": {"rope_type": "linear", "factor": 4, "rope_theta": 10000})"),
       "c.json: rope_scaling: expected the same as rope_parameters, got another scaling"},
      {llama(
           R"("partial_rotary_factor": 0.5, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25})"),
       "c.json: partial_rotary_factor: expected the same as rope_parameters.partial_rotary_factor "
       "0.25, got 0.5"},
      {llama(R"("partial_rotary_factor": 0.5, "rotary_dim": 4)"),
       "c.json: rotary_dim: expected head_dim * partial_rotary_factor = 8, got 4"},
      {llama(R"("rope_theta": 10000, "rotary_emb_base": 500)"),
       "c.json: rotary_emb_base: expected the same as rope_theta 10000, got 500"},
      {llama(R"("rope_layout": "interleaved")"),
       "c.json: rope_layout: expected the layout of model_type llama (half), got \"interleaved\""},
      {llama(R"("rope_interleaved": true)"),
       "c.json: rope_interleaved: expected the layout of model_type llama (half), got true"},
      {llama(R"("num_hidden_layers": 2, "layer_types": ["full_attention"])"),
       "c.json: layer_types: expected one entry per layer (2), got 1"},
      {R"({"model_type": "qwen2_vl", "head_dim": 16,
           "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3], "mrope_interleaved": true}})",
       "c.json: rope_scaling.mrope_interleaved: expected false for model_type qwen2_vl, got true"},
      {R"({"model_type": "gemma3_text", "num_hidden_layers": 2, "layer_types": ["full_attention", "chunked_attention"]})",
       "c.json: layer_types: expected types that have an encoding here (full_attention, "
       "sliding_attention), got "
       "\"chunked_attention\""},
      {R"({"model_type": "gemma3_text", "rope_local_base_freq": 5000, "rope_parameters":
           {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 10000}}})",
       "c.json: rope_local_base_freq: expected the same as "
       "rope_parameters.sliding_attention.rope_theta 10000, got "
       "5000"},
  });
}

TEST(ConfigRefusals, ModelKeys) {
  expect_refusals({
      {R"({"model_type": "llama"})",
       "c.json: head_dim: expected head_dim, or hidden_size and num_attention_heads, got neither"},
      {R"({"model_type": "llama", "hidden_size": 65, "num_attention_heads": 4})",
       "c.json: hidden_size: expected a multiple of num_attention_heads 4, got 65"},
      {R"({"model_type": "novel", "head_dim": 64})",
       "c.json: rope_theta: expected a base, here or in rope_parameters, got none, and model_type "
       "\"novel\" has no "
       "default that is known"},
      {llama(R"("use_spiral_rope": true)"),
       "c.json: use_spiral_rope: expected no key about positions that is not understood, got true"},
      {llama(R"("rotary_style": "x")"),
       "c.json: rotary_style: expected no key about positions that is not understood, got \"x\""},
      {llama(R"("relative_position_bias": 1)"),
       "c.json: relative_position_bias: expected no key about positions that is not understood, "
       "got 1"},
      {llama(R"("rope_local_base_freq": 10000)"),
       "c.json: rope_local_base_freq: expected no key about positions that is not understood, got "
       "10000"},
      {llama(R"("alibi": true)"),
       "c.json: alibi: expected false (ALiBi rotates nothing), got true"},
      {R"({"model_type": "gptj", "n_embd": 64, "n_head": 4, "rotary": false})",
       "c.json: rotary: expected true, got false"},
      {llama(R"("position_embedding_type": "rope_gptj")"),
       "c.json: position_embedding_type: expected rotary, rope or nope, got \"rope_gptj\""},
      {llama(R"("position_embedding_type": "absolute")"),
       "c.json: position_embedding_type: expected rotary, rope or nope, got \"absolute\""},
      {llama(R"("rope_theta": "1e4")"), "c.json: rope_theta: expected a number, got \"1e4\""},
      {llama(R"("partial_rotary_factor": 1.5)"),
       "c.json: partial_rotary_factor: expected a share above 0 and at most 1, got 1.5"},
      {R"({"model_type": "gpt_oss", "rope_theta": 150000})",
       "c.json: rope_parameters: expected it, or rope_scaling, for model_type gpt_oss, got "
       "neither"},
      {R"({"model_type": "qwen3_vl_text", "head_dim": 64})",
       "c.json: rope_parameters.mrope_section: expected three integers for model_type "
       "qwen3_vl_text, got nothing"},
      {R"({"model_type": "deepseek_v3", "hidden_size": 64})",
       "c.json: qk_rope_head_dim: expected a positive integer, got nothing"},
      {R"({"model_type": "baichuan", "hidden_size": 5120, "num_attention_heads": 40})",
       "c.json: hidden_size: expected the rotary model of this type (hidden_size 5120 is the one "
       "that uses ALiBi), "
       "got 5120"},
      {R"({"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 4, "no_rope_layers": [1, 0]})",
       "c.json: no_rope_layers: expected one entry per layer (4), got 2"},
      {R"({"model_type": "llava", "rope_theta": 1e4, "text_config": {"model_type": "llama", "head_dim": 64}})",
       "c.json: rope_theta: expected the same as text_config.rope_theta, got 10000.0"},
      {R"({"model_type": "llava", "text_config": {"model_type": "llama", "head_dim": 64, "rope_scaling": {"type": 1}}})",
       "c.json: text_config.rope_scaling.type: expected a string, got 1"},
  });
}

TEST(ConfigRefusals, WhatIsKnownButNotSupportedSaysSo) {
  const Result<ModelConfig> config = parse_config(llama(R"("alibi": true)"));
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code(), ErrorCode::unsupported);
}

TEST(ConfigRefusals, FilesThatCannotBeRead) {
  EXPECT_FALSE(read_config("no/such/config.json").ok());
  EXPECT_FALSE(read_config(PHASOR_GOLDEN_DIR).ok()) << "a directory without config.json";
}

}  // namespace
}  // namespace phasor::config
