// What is refused, with which code and values.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "phasor/config/config.hpp"
#include "support/errors.hpp"

namespace phasor::config {
namespace {

struct Refusal {
  std::string text;
  std::vector<std::string> values;  // that the message shows
  ErrorCode code = ErrorCode::invalid_argument;
};
constexpr auto kUnsupported = ErrorCode::unsupported;

// A Llama config with some more keys.
std::string llama(const std::string& more) {
  return R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128)" +
         (more.empty() ? "" : ", " + more) + "}";
}

void expect_refusals(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    const Result<ModelConfig> config = parse_config(refusal.text, "c.json");
    for (const std::string& value : refusal.values)
      tests::expect_error(refusal.code, {"c.json: ", value}, config);
  }
}

TEST(ConfigRefusals, NotJson) {
  expect_refusals({
      {"", {"1"}},
      {"{\n  \"head_dim\": eight\n}", {"2", "15"}},
      {"[1, 2]", {"[1,2]"}},
      {R"({"head_dim": 8, "base": 1e999})", {"float64"}},
      {R"({"head_dim": 8, "head_dim": 16})", {"head_dim"}},
      {llama(R"("rope_scaling": {"type": "linear", "factor": 2, "factor": 4})"), {"factor"}},
      {R"({"head_dim": )" + std::string(100, '[') + std::string(100, ']') + "}", {"64"}},
  });
  EXPECT_FALSE(parse_config("{\"head_dim\": \"\xff\"}").ok());
}

TEST(ConfigRefusals, PlainSpec) {
  expect_refusals({
      {"{}", {"head_dim"}},
      {R"({"head_dim": "8"})", {"head_dim", "8"}},
      {R"({"head_dim": 8.5})", {"head_dim", "8.5"}},
      {R"({"head_dim": 8, "base": "10000"})", {"base", "10000"}},
      {R"({"head_dim": 8, "layout": "halves"})", {"layout", "halves"}},
      {R"({"head_dim": 8, "layout": "half", "rope_theta": 10000})", {"rope_theta"}},
      {R"({"head_dim": 8, "theta": 10000})", {"theta"}},
      {R"({"head_dim": 8, "base": 10, "partial_rotary_factor": 0.5})", {"partial_rotary_factor"}},
      {R"({"head_dim": 8, "colour": "red"})", {"colour"}},
      {R"({"head_dim": 8, "rotary_dim": 7})", {"rotary_dim", "7"}},
      {R"({"head_dim": 8, "rotary_dim": 10})", {"rotary_dim", "8", "10"}},
      {R"({"head_dim": 8, "base": 0})", {"base", "0"}},
      {R"({"head_dim": 8, "scaling": {"factor": 2}})", {"scaling.rope_type"}},
      {R"({"head_dim": 8, "scaling": {"type": "linear", "factor": 2, "rope_theta": 5}})",
       {"rope_theta"}},
      {R"({"head_dim": 8, "scaling": {"type": "linear", "factor": 2, "beta_fast": 32}})",
       {"beta_fast"}},
      {R"({"head_dim": 8, "scaling": {"type": "axial"}})", {"scaling.type", "axial"}},
      {R"({"head_dim": 8, "mrope": {"sections": [2, 2]}})", {"mrope", "2"}},
      {R"({"head_dim": 8, "mrope": {"sections": [2, 1, 1], "order": "sorted"}})",
       {"mrope.order", "sorted"}},
      {R"({"head_dim": 8, "axial": "rows"})", {"axial", "rows"}},
      {R"({"head_dim": 8, "axial": "alternating", "mrope": {"sections": [2, 1, 1]}})", {"axial"}},
      {R"({"head_dim": 8, "xpos": {"centre": "left"}})", {"xpos.centre", "left"}},
      {R"({"head_dim": 8, "xpos": {"scale": 512}})", {"scale"}},
      {R"({"head_dim": 8, "mrope": {"sections": [1, 1, 1, 1], "order": "alternating"}})",
       {"mrope", "4"}},
      {R"({"head_dim": 8, "frequencies": []})", {"frequencies", "0 entries"}},
      {R"({"frequencies": []})", {"frequencies", "0 entries"}},
      {R"({"head_dim": 8, "frequency_factors": []})", {"frequency_factors", "0 entries"}},
      {R"({"head_dim": 8, "frequencies": [1, 2, 3]})", {"frequencies", "4", "3"}},
      {R"({"head_dim": 8, "frequencies": [1, 2, 3, "4"]})", {"frequencies"}},
      {R"({"head_dim": 8, "frequencies": 1})", {"frequencies"}},
      {R"({"head_dim": 7, "rotary_dim": 7, "frequencies": [1, 2, 3]})", {"rotary_dim", "7"}},
      {R"({"frequencies": [1, 2], "base": 500000})", {"base", "frequencies", "500000"}},
      {R"({"frequencies": [1, 2], "scaling": {"type": "ntk", "factor": 2}})",
       {"ntk", "frequencies"}},
      {R"({"frequencies": [1, 2], "rotary_offset": 2})", {"frequencies", "1", "2"}},
      {R"({"head_dim": 8, "rotary_offset": -9223372036854775807})",
       {"rotary_offset", "-9223372036854775807"}},
      {R"({"frequency_factors": [1, 2]})", {"head_dim"}},
      {R"({"head_dim": 4, "frequency_factors": [1, 0]})", {"frequency_factors[1]", "0"}},
      {R"({"head_dim": 8, "amplitude": 0})", {"amplitude", "0"}},
      {R"({"head_dim": 8, "amplitude": -1})", {"amplitude", "-1"}},
      {R"({"head_dim": 8, "scaling": {"type": "yarn", "factor": 2,
          "original_max_position_embeddings": 64, "extrapolation_factor": 1.5}})",
       {"extrapolation_factor", "1.5"}},
      {R"({"head_dim": 8, "scaling": {"type": "yarn", "factor": 2,
          "original_max_position_embeddings": 64, "ext_factor": 0.5}})",
       {"ext_factor", "extrapolation_factor"}},
  });
}

TEST(ConfigRefusals, RopeDictionaries) {
  expect_refusals({
      {llama(R"("rope_scaling": {"type": "linear", "factor": "eight"})"),
       {"rope_scaling.factor", "eight"}},
      {llama(R"("rope_scaling": "linear")"), {"rope_scaling", "linear"}},
      {llama(R"("rope_scaling": {"factor": 2.0})"), {"rope_scaling.rope_type"}},
      {llama(R"("rope_scaling": {"type": "linear"})"), {"rope_scaling.factor"}},
      {llama(R"("rope_scaling": {"type": "linear", "factor": 0})"), {"linear", "0"}},
      {llama(R"("rope_scaling": {"type": "spiral", "factor": 2})"),
       {"rope_scaling.type", "spiral"}},
      {llama(R"("rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2})"),
       {"rope_scaling.type", "dynamic", "linear"}},
      {llama(R"("rope_scaling": {"type": "linear", "factor": 2, "beta_slwo": 32})"),
       {"\"beta_slwo\"", "\"beta_slow\""}},
      {llama(R"("rope_scaling": {"type": "linear", "factor": 2, "spiral": 32})"), {"spiral"}},
      {llama(R"("rope_scaling": {"type": "yarn", "factor": 2, "attn_factor": 1.0})"),
       {"attn_factor"}},
      {llama(R"("rope_scaling": {"type": "yarn"})"), {"rope_scaling.factor"}},
      {llama(R"("rope_scaling": {"type": "yarn", "factor": 2, "truncate": 1})"),
       {"rope_scaling.truncate", "1"}},
      {llama(R"("rope_scaling": {"type": "yarn", "factor": 2, "llama_4_scaling_beta": -0.5})"),
       {"beta", "-0.5"}},
      {llama(
           R"("rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 0})"),
       {"rope_scaling.original_max_position_embeddings", "0"}},
      {llama(
           R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4})"),
       {"rope_scaling.original_max_position_embeddings"}},
      {llama(
           R"("rope_scaling": {"type": "longrope", "short_factor": [1, 1], "long_factor": [1, 1]})"),
       {"longrope", "2", "8"}},
      {llama(
           R"("rope_scaling": {"type": "longrope", "short_factor": [1, "x"], "long_factor": [1, 1]})"),
       {"rope_scaling.short_factor", "x"}},
      {llama(R"("rope_scaling": {"type": "mrope"})"), {"rope_scaling.mrope_section"}},
      {llama(R"("rope_scaling": {"type": "default", "mrope_section": [2, 3, 3]})"),
       {"rope_scaling.mrope_interleaved", "llama"}},
      {llama(R"("rope_parameters": {"rope_type": "axial", "rope_theta": 100})"),
       {"rope_parameters.rope_type", "llama", "axial"}},
      {R"({"head_dim": 8, "rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "factor": 2}})",
       {"rope_scaling.original_max_position_embeddings"}},
  });
}

TEST(ConfigRefusals, KeysThatContradict) {
  expect_refusals({
      {llama(
           R"("rope_theta": 500000, "rope_parameters": {"rope_type": "default", "rope_theta": 10000})"),
       {"rope_theta", "10000", "500000", "rope_parameters.rope_theta"}},
      {llama(R"("rope_scaling": {"type": "linear", "factor": 2},
                "rope_parameters": {"rope_type": "linear", "factor": 4, "rope_theta": 10000})"),
       {"rope_scaling"}},
      {llama(
           R"("partial_rotary_factor": 0.5, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25})"),
       {"partial_rotary_factor", "0.25", "0.5", "rope_parameters.partial_rotary_factor"}},
      {llama(R"("partial_rotary_factor": 0.5, "rotary_dim": 4)"), {"rotary_dim", "8", "4"}},
      {llama(R"("rope_theta": 10000, "rotary_emb_base": 500)"),
       {"rotary_emb_base", "10000", "500"}},
      {llama(R"("rope_layout": "interleaved")"), {"rope_layout", "interleaved"}},
      {llama(R"("rope_interleaved": true)"), {"rope_interleaved"}},
      {R"({"model_type": "qwen2_vl", "head_dim": 16,
           "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3], "mrope_interleaved": true}})",
       {"rope_scaling.mrope_interleaved"}},
      {R"({"model_type": "gemma3_text", "num_hidden_layers": 2, "layer_types": ["full_attention", "chunked_attention"]})",
       {"layer_types", "chunked_attention"}},
      {R"({"model_type": "gemma3_text", "rope_local_base_freq": 5000, "rope_parameters":
           {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 10000}}})",
       {"rope_local_base_freq", "10000", "5000", "rope_parameters.sliding_attention.rope_theta"}},
  });
}

TEST(ConfigRefusals, ModelKeys) {
  expect_refusals({
      {R"({"model_type": "llama"})", {"head_dim"}},
      {R"({"model_type": "llama", "hidden_size": 65, "num_attention_heads": 4})",
       {"hidden_size", "4", "65"}},
      {R"({"model_type": "novel", "head_dim": 64})", {"rope_theta", "novel"}},
      {llama(R"("use_spiral_rope": true)"), {"use_spiral_rope"}},
      {llama(R"("rotary_style": "x")"), {"rotary_style"}},
      {llama(R"("relative_position_bias": 1)"), {"relative_position_bias"}},
      {llama(R"("rope_local_base_freq": 10000)"), {"rope_local_base_freq"}},
      {llama(R"("alibi": true)"), {"alibi"}, kUnsupported},
      {R"({"model_type": "gptj", "n_embd": 64, "n_head": 4, "rotary": false})",
       {"rotary"},
       kUnsupported},
      {llama(R"("position_embedding_type": "rope_gptj")"),
       {"position_embedding_type", "rope_gptj"},
       kUnsupported},
      {llama(R"("position_embedding_type": "absolute")"),
       {"position_embedding_type", "absolute"},
       kUnsupported},
      {llama(R"("rope_theta": "1e4")"), {"rope_theta", "1e4"}},
      {llama(R"("partial_rotary_factor": 1.5)"), {"partial_rotary_factor", "0", "1", "1.5"}},
      {R"({"model_type": "gpt_oss", "rope_theta": 150000})", {"rope_parameters"}},
      {R"({"model_type": "qwen2_vl_text", "head_dim": 64})", {"rope_parameters.mrope_section"}},
      {R"({"model_type": "deepseek_v3", "hidden_size": 64})", {"qk_rope_head_dim"}},
      {R"({"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 4, "no_rope_layers": [1, 0]})",
       {"no_rope_layers", "4", "2"}},
      {R"({"model_type": "llava", "rope_theta": 1e4, "text_config": {"model_type": "llama", "head_dim": 64}})",
       {"rope_theta", "10000.0", "text_config.rope_theta"}},
      {R"({"model_type": "llava", "text_config": {"model_type": "llama", "head_dim": 64, "rope_scaling": {"type": 1}}})",
       {"text_config.rope_scaling.type", "1"}},
  });
}

TEST(ConfigRefusals, UnknownNamesGetASuggestion) {
  expect_refusals({
      {llama(R"("rope_scalling": {"type": "linear"})"), {"\"rope_scalling\"", "\"rope_scaling\""}},
      {R"({"model_type": "qwen", "head_dim": 64})", {"\"qwen\"", "\"qwen2\""}},
      {R"({"head_dim": 8, "xpos": {"gama": 0.4}})", {"xpos", "\"gama\"", "\"gamma\""}},
  });
}

TEST(ConfigRefusals, FilesThatCannotBeRead) {
  EXPECT_FALSE(read_config("no/such/config.json").ok());
  EXPECT_FALSE(read_config(PHASOR_GOLDEN_DIR).ok()) << "a directory without config.json";
}

}  // namespace
}  // namespace phasor::config
