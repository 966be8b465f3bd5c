// What the metadata of a GGUF file is read as, architecture by architecture.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/io/tensors.hpp"
#include "support/errors.hpp"
#include "support/gguf_writer.hpp"

namespace phasor::config {
namespace {

using encodings::Llama3Scaling;
using encodings::LongRopeScaling;
using encodings::MropeAxes;
using encodings::RopeSpec;
using encodings::YarnScaling;
using io::testing::GgufWriter;
using Indices = std::vector<std::int64_t>;

Result<ModelConfig> read(const GgufWriter& writer) {
  const std::string bytes = writer.bytes();
  const auto file = io::GgufFile::parse(std::as_bytes(std::span(bytes)), "m.gguf").value_or_throw();
  return config_of_gguf(file);
}
ModelConfig config_of(const GgufWriter& writer) { return read(writer).value_or_throw(); }

void expect_refused(const GgufWriter& writer, std::initializer_list<std::string_view> values,
                    ErrorCode code = ErrorCode::invalid_argument) {
  const Result<ModelConfig> config = read(writer);
  tests::expect_error(code, {"m.gguf: "}, config);
  tests::expect_error(code, values, config);
}

// A model of `layers` layers with 8 heads of 64.
GgufWriter model(const std::string& architecture, std::uint32_t layers = 4) {
  GgufWriter writer;
  writer.text("general.architecture", architecture);
  writer.number<std::uint32_t>(architecture + ".block_count", layers);
  writer.number<std::uint32_t>(architecture + ".context_length", 4096);
  writer.number<std::uint32_t>(architecture + ".embedding_length", 512);
  writer.number<std::uint32_t>(architecture + ".attention.head_count", 8);
  return writer;
}

const RopeSpec& only_spec(const ModelConfig& config) {
  EXPECT_EQ(config.groups.size(), 1U);
  return config.groups.at(0).rope.value();
}
const LayerGroup& group(const ModelConfig& config, const std::string& type) {
  for (const LayerGroup& one : config.groups) {
    if (one.layer_type == type) return one;
  }
  throw Error(ErrorCode::invalid_argument, "no group " + type);
}
std::string source_of(const LayerGroup& group, const std::string& what) {
  std::string keys;
  for (const Source& source : group.sources) {
    if (source.what == what) keys += (keys.empty() ? "" : "; ") + source.key;
  }
  return keys;
}
std::string note_on(const ModelConfig& config, const std::string& key) {
  for (const KeyNote& note : config.notes) {
    if (note.key == key) return note.note;
  }
  return "";
}

TEST(GgufConfig, ReadsAPlainLlama) {
  GgufWriter writer = model("llama", 2);
  writer.number<std::uint32_t>("llama.attention.head_count_kv", 2);
  writer.number<float>("llama.rope.freq_base", 500000.0F);
  writer.number<std::uint32_t>("llama.rope.dimension_count", 64);
  writer.number<std::uint32_t>("llama.feed_forward_length", 2048).text("tokenizer.ggml.model", "x");
  const ModelConfig config = config_of(writer);
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.max_position, 4096);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.heads, 8);
  EXPECT_EQ(config.key_heads, 2);
  const RopeSpec& spec = only_spec(config);
  EXPECT_EQ(spec.head_dim, 64);
  EXPECT_EQ(spec.rotary_dim, 64);
  EXPECT_EQ(spec.base, 500000.0);
  EXPECT_EQ(spec.layout, core::PairLayout::interleaved);
  EXPECT_TRUE(std::holds_alternative<encodings::DefaultScaling>(spec.scaling));
  const LayerGroup& only = config.groups[0];
  EXPECT_EQ(only.layer_type, "");
  EXPECT_EQ(only.layers, (Indices{0, 1}));
  EXPECT_EQ(only.softmax_scale, 0.125);
  EXPECT_EQ(source_of(only, "base"), "llama.rope.freq_base");
  EXPECT_EQ(source_of(only, "rotary_dim"), "llama.rope.dimension_count");
  EXPECT_EQ(source_of(only, "head_dim"), "llama.embedding_length / llama.attention.head_count");
  EXPECT_EQ(source_of(only, "layout"), "architecture llama (pairing of llama.cpp's kernel)");
  EXPECT_EQ(config.unread_keys, (std::vector<std::string>{"llama.feed_forward_length"}));
}

TEST(GgufConfig, FallsBackAsLlamaCppDoes) {
  const ModelConfig config = config_of(model("qwen2"));
  EXPECT_EQ(only_spec(config).base, 10000.0);
  EXPECT_EQ(only_spec(config).rotary_dim, 64);
  EXPECT_EQ(config.key_heads, 8);
  EXPECT_EQ(source_of(config.groups[0], "base"), "default of llama.cpp: 10000");
  EXPECT_EQ(source_of(config.groups[0], "rotary_dim"), "the whole head");
}

TEST(GgufConfig, PairsAsTheArchitecturesKernelDoes) {
  for (const char* name :
       {"llama", "deci", "internlm2", "command-r", "olmo", "deepseek", "chatglm", "granite",
        "granitemoe", "minicpm", "xverse", "baichuan", "glm4", "ernie4_5", "mistral3"}) {
    EXPECT_EQ(only_spec(config_of(model(name))).layout, core::PairLayout::interleaved) << name;
  }
  for (const char* name :
       {"falcon",     "grok",       "gptneox",  "stablelm",  "qwen",  "qwen2",
        "qwen2moe",   "qwen3",      "qwen3moe", "phi2",      "phi3",  "plamo",
        "gemma",      "starcoder2", "openelm",  "codeshell", "olmo2", "olmoe",
        "nomic-bert", "exaone",     "nemotron", "glm4moe",   "dots1", "apertus"}) {
    EXPECT_EQ(only_spec(config_of(model(name))).layout, core::PairLayout::half) << name;
  }
}

TEST(GgufConfig, SaysWhatDoesNotRotate) {
  for (const char* name : {"bloom", "mpt", "gpt2", "bert", "starcoder", "refact", "t5", "mamba"}) {
    const ModelConfig config = config_of(model(name));
    ASSERT_EQ(config.groups.size(), 1U) << name;
    EXPECT_FALSE(config.groups[0].rope) << name;
    EXPECT_EQ(config.groups[0].layers.size(), 4U) << name;
  }
  for (const auto& [name, encoding] :
       {std::pair("bloom", "alibi"), std::pair("mpt", "alibi"),
        std::pair("gpt2", "learned_absolute"), std::pair("bert", "learned_absolute"),
        std::pair("t5", "t5")}) {
    const ModelConfig config = config_of(model(name));
    ASSERT_EQ(config.groups[0].positions.size(), 1U) << name;
    EXPECT_EQ(config.groups[0].positions[0].name, encoding);
  }
  EXPECT_TRUE(config_of(model("mamba")).groups[0].positions.empty());
  const ModelConfig large = config_of(model("baichuan", 40));
  EXPECT_EQ(large.groups[0].positions.at(0).name, "alibi");
  EXPECT_FALSE(large.groups[0].rope);
  EXPECT_FALSE(note_on(large, "baichuan.block_count").empty());
  const ModelConfig off =
      config_of(model("granite").number<bool>("granite.rope.scaling.finetuned", false));
  EXPECT_FALSE(off.groups[0].rope);
  const ModelConfig unused =
      config_of(model("gpt2").number<std::uint32_t>("gpt2.rope.dimension_count", 64));
  EXPECT_FALSE(note_on(unused, "gpt2.rope.dimension_count").empty());
}

TEST(GgufConfig, ReadsWidths) {
  GgufWriter writer = model("gptneox");
  writer.number<std::uint32_t>("gptneox.rope.dimension_count", 16);
  EXPECT_EQ(only_spec(config_of(writer)).rotary_dim, 16);
  GgufWriter wide = model("qwen3");
  wide.number<std::uint32_t>("qwen3.attention.key_length", 128);
  EXPECT_EQ(only_spec(config_of(wide)).head_dim, 128);
  EXPECT_EQ(source_of(config_of(wide).groups[0], "head_dim"), "qwen3.attention.key_length");
}

TEST(GgufConfig, TakesHeadsLayerByLayer) {
  GgufWriter writer;
  writer.text("general.architecture", "openelm").number<std::uint32_t>("openelm.block_count", 3);
  writer.numbers<std::int32_t>("openelm.attention.head_count", {12, 12, 16});
  writer.numbers<std::int32_t>("openelm.attention.head_count_kv", {3, 3, 3});
  writer.number<std::uint32_t>("openelm.attention.key_length", 64);
  const ModelConfig config = config_of(writer);
  EXPECT_FALSE(config.heads);
  EXPECT_EQ(config.key_heads, 3);
  EXPECT_FALSE(note_on(config, "openelm.attention.head_count").empty());
  // Layers without keys: convolutions.
  GgufWriter mixed = model("lfm2");
  mixed.numbers<std::uint32_t>("lfm2.attention.head_count_kv", {0, 2, 0, 2});
  const ModelConfig two = config_of(mixed);
  EXPECT_EQ(group(two, "full_attention").layers, (Indices{1, 3}));
  EXPECT_EQ(group(two, "recurrent").layers, (Indices{0, 2}));
  EXPECT_FALSE(group(two, "recurrent").rope);
  EXPECT_EQ(source_of(group(two, "recurrent"), "layers"), "lfm2.attention.head_count_kv");
  EXPECT_EQ(two.key_heads, 2);
}

TEST(GgufConfig, ReadsLinearScalingUnderBothNames) {
  const auto factor_of = [](const ModelConfig& config) {
    return std::get<encodings::LinearScaling>(only_spec(config).scaling).factor;
  };
  EXPECT_EQ(factor_of(config_of(model("llama").number<float>("llama.rope.scale_linear", 4.0F))),
            4.0);
  GgufWriter writer = model("llama").text("llama.rope.scaling.type", "linear");
  writer.number<float>("llama.rope.scaling.factor", 8.0F);
  const ModelConfig config = config_of(writer);
  EXPECT_EQ(factor_of(config), 8.0);
  EXPECT_EQ(source_of(config.groups[0], "scaling"),
            "llama.rope.scaling.type; llama.rope.scaling.factor");
  GgufWriter none = model("llama").text("llama.rope.scaling.type", "none");
  none.number<float>("llama.rope.scaling.factor", 8.0F);
  EXPECT_TRUE(
      std::holds_alternative<encodings::DefaultScaling>(only_spec(config_of(none)).scaling));
  EXPECT_NE(note_on(config_of(none), "llama.rope.scaling.factor"), "");
}

TEST(GgufConfig, ReadsYarnWithTheAmplitudeOfLlamaCpp) {
  GgufWriter writer = model("qwen2").text("qwen2.rope.scaling.type", "yarn");
  writer.number<float>("qwen2.rope.scaling.factor", 4.0F);
  writer.number<std::uint32_t>("qwen2.rope.scaling.original_context_length", 32768);
  ModelConfig config = config_of(writer);
  const auto& plain = std::get<YarnScaling>(only_spec(config).scaling);
  EXPECT_EQ(plain.factor, 4.0);
  EXPECT_EQ(plain.original_length, 32768);
  EXPECT_FALSE(plain.attention_factor);
  EXPECT_DOUBLE_EQ(encodings::resolve_frequencies(only_spec(config)).amplitude(),
                   1.0 + 0.1 * std::log(4.0));

  writer.number<float>("qwen2.rope.scaling.attn_factor", 0.5F);
  writer.number<float>("qwen2.rope.scaling.yarn_beta_fast", 16.0F);
  writer.number<float>("qwen2.rope.scaling.yarn_attn_factor", 3.0F);
  config = config_of(writer);
  const auto& full = std::get<YarnScaling>(only_spec(config).scaling);
  EXPECT_EQ(full.beta_fast, 16.0);
  EXPECT_DOUBLE_EQ(full.attention_factor.value(), 0.5 * (1.0 + 0.1 * std::log(4.0)));
  EXPECT_NE(note_on(config, "qwen2.rope.scaling.yarn_attn_factor"), "");
}

TEST(GgufConfig, ReadsDeepSeekAsLatentAttention) {
  GgufWriter writer = model("deepseek2").text("deepseek2.rope.scaling.type", "yarn");
  writer.number<std::uint32_t>("deepseek2.attention.key_length", 576);
  writer.number<std::uint32_t>("deepseek2.attention.key_length_mla", 192);
  writer.number<std::uint32_t>("deepseek2.rope.dimension_count", 64);
  writer.number<float>("deepseek2.rope.scaling.factor", 40.0F);
  writer.number<std::uint32_t>("deepseek2.rope.scaling.original_context_length", 4096);
  writer.number<float>("deepseek2.rope.scaling.yarn_log_multiplier", 0.1F);
  const ModelConfig config = config_of(writer);
  const RopeSpec& spec = only_spec(config);
  EXPECT_EQ(spec.head_dim, 64);
  EXPECT_EQ(spec.rotary_dim, 64);
  EXPECT_NEAR(std::get<YarnScaling>(spec.scaling).mscale_all_dim, 1.0, 1e-7);
  EXPECT_DOUBLE_EQ(encodings::resolve_frequencies(spec).amplitude(), 1.0);
  const double g = 1.0 + 0.1 * std::log(40.0);
  EXPECT_NEAR(config.groups[0].softmax_scale, g * g / std::sqrt(192.0), 1e-8);
}

std::vector<float> llama3_factors(double base, double factor) {
  std::vector<float> factors;
  for (int i = 0; i < 32; ++i) {
    const double wavelength = 2.0 * std::acos(-1.0) * std::pow(base, i / 32.0);
    const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
    factors.push_back(static_cast<float>(wavelength < 2048.0 ? 1.0
                                         : wavelength > 8192.0
                                             ? factor
                                             : 1.0 / ((1.0 - smooth) / factor + smooth)));
  }
  return factors;
}

TEST(GgufConfig, RecognisesLlama3InItsDivisors) {
  GgufWriter writer = model("llama").number<float>("llama.rope.freq_base", 500000.0F);
  writer.floats("rope_freqs.weight", llama3_factors(500000.0, 32.0));
  const ModelConfig config = config_of(writer);
  EXPECT_EQ(std::get<Llama3Scaling>(only_spec(config).scaling),
            (Llama3Scaling{32.0, 1.0, 4.0, 8192}));
  EXPECT_EQ(source_of(config.groups[0], "scaling"), "tensor rope_freqs.weight");
}

TEST(GgufConfig, KeepsOtherDivisorsAsTheyAre) {
  std::vector<float> factors = llama3_factors(500000.0, 32.0);
  factors[20] *= 1.01F;
  GgufWriter writer = model("llama").number<float>("llama.rope.freq_base", 500000.0F);
  writer.floats("rope_freqs.weight", factors);
  const RopeSpec spec = only_spec(config_of(writer));
  const auto& lists = std::get<LongRopeScaling>(spec.scaling);
  EXPECT_EQ(lists.short_factor, lists.long_factor);
  EXPECT_EQ(lists.attention_factor, 1.0);
  const core::Frequencies resolved = encodings::resolve_frequencies(spec, 1000000);
  EXPECT_DOUBLE_EQ(resolved.values()[20], std::pow(500000.0, -20.0 / 32.0) / factors[20]);
}

TEST(GgufConfig, ReadsShortAndLongFactors) {
  GgufWriter writer = model("phi3");
  writer.number<std::uint32_t>("phi3.rope.scaling.original_context_length", 2048);
  writer.number<float>("phi3.rope.scaling.attn_factor", 1.25F);
  writer.number<std::uint32_t>("phi3.attention.sliding_window", 2047);
  writer.floats("rope_factors_long.weight", std::vector<float>(32, 4.0F));
  writer.floats("rope_factors_short.weight", std::vector<float>(32, 2.0F));
  const ModelConfig config = config_of(writer);
  const RopeSpec& spec = only_spec(config);
  EXPECT_DOUBLE_EQ(encodings::resolve_frequencies(spec, 2048).values()[0], 0.5);
  EXPECT_DOUBLE_EQ(encodings::resolve_frequencies(spec, 2049).values()[0], 0.25);
  EXPECT_DOUBLE_EQ(encodings::resolve_frequencies(spec, 2049).amplitude(), 1.25);
  EXPECT_FALSE(config.groups[0].window);
  EXPECT_FALSE(note_on(config, "phi3.attention.sliding_window").empty());
}

TEST(GgufConfig, AppliesAnAmplitudeWithoutAnyScaling) {
  GgufWriter writer = model("llama").number<float>("llama.rope.scaling.attn_factor", 1.5F);
  writer.number<float>("llama.rope.scaling.factor", 2.0F);
  const core::Frequencies resolved = encodings::resolve_frequencies(only_spec(config_of(writer)));
  EXPECT_DOUBLE_EQ(resolved.amplitude(), 1.5);
  EXPECT_DOUBLE_EQ(resolved.values()[0], 0.5);
}

TEST(GgufConfig, GivesGemma3ALocalBaseThatIsNotScaled) {
  GgufWriter writer = model("gemma3", 8);
  writer.number<std::uint32_t>("gemma3.attention.sliding_window", 1024);
  writer.number<std::uint32_t>("gemma3.attention.key_length", 256);
  writer.number<float>("gemma3.rope.freq_base", 1e6F);
  writer.text("gemma3.rope.scaling.type", "linear");
  writer.number<float>("gemma3.rope.scaling.factor", 8.0F);
  ModelConfig config = config_of(writer);
  const LayerGroup& full = group(config, "full_attention");
  const LayerGroup& sliding = group(config, "sliding_attention");
  EXPECT_EQ(full.layers, (Indices{5}));
  EXPECT_EQ(sliding.layers, (Indices{0, 1, 2, 3, 4, 6, 7}));
  EXPECT_EQ(full.rope->base, 1e6);
  EXPECT_EQ(std::get<encodings::LinearScaling>(full.rope->scaling).factor, 8.0);
  EXPECT_FALSE(full.window);
  EXPECT_EQ(sliding.rope->base, 1e4);
  EXPECT_TRUE(std::holds_alternative<encodings::DefaultScaling>(sliding.rope->scaling));
  EXPECT_EQ(sliding.window, 1024);
  EXPECT_EQ(source_of(sliding, "base"), "sliding layers of architecture gemma3");
  EXPECT_EQ(source_of(sliding, "window"), "gemma3.attention.sliding_window");
  EXPECT_EQ(full.softmax_scale, 1.0 / 16.0);
  EXPECT_EQ(source_of(sliding, "layers"), "architecture gemma3");
  EXPECT_FALSE(note_on(config, "general.architecture").empty());

  writer.number<float>("gemma3.rope.freq_base_swa", 5000.0F);
  writer.number<std::uint32_t>("gemma3.attention.sliding_window_pattern", 2);
  config = config_of(writer);
  EXPECT_EQ(group(config, "sliding_attention").rope->base, 5000.0);
  EXPECT_EQ(group(config, "full_attention").layers, (Indices{1, 3, 5, 7}));
  EXPECT_EQ(source_of(group(config, "full_attention"), "layers"),
            "gemma3.attention.sliding_window_pattern");
  EXPECT_TRUE(note_on(config, "general.architecture").empty());
}

TEST(GgufConfig, GivesLayersTheirWindows) {
  const ModelConfig gemma2 = config_of(model("gemma2"));
  EXPECT_EQ(group(gemma2, "sliding_attention").layers, (Indices{0, 2}));
  EXPECT_EQ(group(gemma2, "sliding_attention").window, 4096);
  EXPECT_EQ(group(gemma2, "full_attention").rope->base, 1e4);
  GgufWriter listed = model("olmo2");
  listed.number<std::uint32_t>("olmo2.attention.sliding_window", 4096);
  listed.numbers<bool>("olmo2.attention.sliding_window_pattern", {true, false, false, true});
  const ModelConfig olmo = config_of(listed);
  EXPECT_EQ(group(olmo, "sliding_attention").layers, (Indices{0, 3}));
  GgufWriter oss = model("gpt-oss").number<std::uint32_t>("gpt-oss.attention.sliding_window", 128);
  EXPECT_EQ(group(config_of(oss), "sliding_attention").layers, (Indices{0, 2}));
  GgufWriter modern = model("modern-bert", 6);
  modern.number<std::uint32_t>("modern-bert.attention.sliding_window", 128);
  EXPECT_EQ(group(config_of(modern), "full_attention").layers, (Indices{0, 3}));
  EXPECT_EQ(group(config_of(modern), "sliding_attention").window, 129);
}

TEST(GgufConfig, KnowsLayersThatDoNotRotate) {
  const ModelConfig smol = config_of(model("smollm3", 9));
  EXPECT_EQ(group(smol, "no_rope").layers, (Indices{3, 7}));
  EXPECT_FALSE(group(smol, "no_rope").rope);
  EXPECT_EQ(group(smol, "rope").rope->layout, core::PairLayout::interleaved);
  const ModelConfig cohere = config_of(
      model("cohere2", 8).number<std::uint32_t>("cohere2.attention.sliding_window", 4096));
  EXPECT_FALSE(group(cohere, "full_attention").rope);
  EXPECT_EQ(group(cohere, "full_attention").layers, (Indices{3, 7}));
  EXPECT_TRUE(group(cohere, "sliding_attention").rope);
  const ModelConfig llama4 = config_of(model("llama4", 8));
  EXPECT_FALSE(group(llama4, "full_attention").rope);
  EXPECT_EQ(group(llama4, "sliding_attention").window, 8192);
  EXPECT_TRUE(only_spec(config_of(model("exaone4", 30))).layout);
  EXPECT_FALSE(group(config_of(model("exaone4", 64)), "full_attention").rope);
  const ModelConfig next = config_of(model("qwen3next", 8));
  EXPECT_EQ(group(next, "full_attention").layers, (Indices{3, 7}));
  EXPECT_FALSE(group(next, "recurrent").rope);
}

TEST(GgufConfig, ReadsSections) {
  GgufWriter writer = model("qwen2vl");
  writer.numbers<std::int32_t>("qwen2vl.rope.dimension_sections", {8, 12, 12, 0});
  const RopeSpec spec = only_spec(config_of(writer));
  EXPECT_EQ(std::get<MropeAxes>(spec.axes).sections, (Indices{8, 12, 12}));
  EXPECT_EQ(std::get<MropeAxes>(spec.axes).order, MropeAxes::Order::chunked);
  GgufWriter third = model("qwen3vl");
  third.numbers<std::int32_t>("qwen3vl.rope.dimension_sections", {12, 10, 10, 0});
  EXPECT_EQ(std::get<MropeAxes>(only_spec(config_of(third)).axes).order,
            MropeAxes::Order::interleaved);
  GgufWriter four = model("qwen2vl");
  four.numbers<std::int32_t>("qwen2vl.rope.dimension_sections", {8, 8, 8, 8});
  EXPECT_EQ(std::get<MropeAxes>(only_spec(config_of(four)).axes).sections, (Indices{8, 8, 8, 8}));
  GgufWriter glm = model("glm4");
  glm.numbers<std::int32_t>("glm4.rope.dimension_sections", {8, 12, 12, 0});
  EXPECT_EQ(only_spec(config_of(glm)).layout, core::PairLayout::half);
  expect_refused(model("qwen2vl"), {"qwen2vl.rope.dimension_sections"});
}

TEST(GgufConfig, RefusesWhatItDoesNotKnow) {
  expect_refused(GgufWriter(), {"general.architecture"});
  expect_refused(GgufWriter().text("general.architecture", "no\nsuch"), {"no?such"},
                 ErrorCode::unsupported);
  expect_refused(GgufWriter().text("general.architecture", "lama"), {"\"lama\"", "\"llama\""},
                 ErrorCode::unsupported);
  expect_refused(GgufWriter().number<std::uint32_t>("general.architecture", 7),
                 {"general.architecture"});
  expect_refused(model("llama").number<float>("llama.rope.scaling.new_trick", 2.0F),
                 {"llama.rope.scaling.new_trick"}, ErrorCode::unsupported);
  expect_refused(model("llama").text("llama.rope.scaling.type", "dynamic"),
                 {"llama.rope.scaling.type", "longrope"});
  expect_refused(model("llama").number<float>("llama.rope.scaling.factor", -2.0F),
                 {"llama.rope.scaling.factor", "-2"});
  expect_refused(model("llama").number<float>("llama.rope.freq_base", -1.0F), {"base", "-1"});
  expect_refused(model("llama").text("llama.rope.scaling.type", "longrope"),
                 {"llama.rope.scaling.type", "longrope"});
  expect_refused(model("llama").floats("rope_factors_long.weight", std::vector<float>(32, 1.0F)),
                 {"rope_factors_long.weight", "rope_factors_short.weight"});
  expect_refused(model("llama").floats("rope_freqs.weight", {1.0F, 2.0F}),
                 {"rope_freqs.weight", "2", "32"});
  expect_refused(model("llama").tensor("rope_freqs.weight", 39, {32}, std::string(17, '\0')),
                 {"rope_freqs.weight", "MXFP4"}, ErrorCode::unsupported);
  GgufWriter yarn = model("llama").text("llama.rope.scaling.type", "yarn");
  yarn.number<float>("llama.rope.scaling.factor", 4.0F);
  expect_refused(GgufWriter(yarn).number<float>("llama.rope.scaling.yarn_log_multiplier", 0.5F),
                 {"llama.rope.scaling.yarn_log_multiplier", "0.5"});
  GgufWriter by_length =
      GgufWriter(yarn).floats("rope_factors_short.weight", std::vector<float>(32, 1.0F));
  expect_refused(by_length.floats("rope_factors_long.weight", std::vector<float>(32, 2.0F)),
                 {"llama.rope.scaling.type", "yarn", "rope_factors_long.weight"},
                 ErrorCode::unsupported);
}

GgufWriter yarn_model(const std::string& architecture) {
  GgufWriter writer = model(architecture).text(architecture + ".rope.scaling.type", "yarn");
  writer.number<float>(architecture + ".rope.scaling.factor", 4.0F);
  writer.number<std::uint32_t>(architecture + ".rope.scaling.original_context_length", 4096);
  return writer;
}

TEST(GgufConfig, YarnGoesWithFrequencyFactors) {
  const RopeSpec spec = only_spec(
      config_of(yarn_model("llama").floats("rope_freqs.weight", std::vector<float>(32, 2.0F))));
  EXPECT_EQ(spec.frequency_factors, std::vector<double>(32, 2.0));
  RopeSpec plain = spec;
  plain.frequency_factors.clear();
  EXPECT_EQ(encodings::resolve_frequencies(spec).values()[5],
            encodings::resolve_frequencies(plain).values()[5] / 2.0);
}

// llama.cpp loads the key for this architecture alone.
TEST(GgufConfig, ExtrapolationFactorIsReadForGrok) {
  const auto read = [](const std::string& architecture, float weight) {
    return config_of(yarn_model(architecture)
                         .number<float>(architecture + ".rope.scaling.yarn_ext_factor", weight));
  };
  const RopeSpec half = only_spec(read("grok", 0.5F));
  EXPECT_EQ(std::get<encodings::YarnScaling>(half.scaling).extrapolation_factor, 0.5);
  EXPECT_GT(encodings::resolve_frequencies(half).amplitude(), 1.1);
  EXPECT_EQ(encodings::resolve_frequencies(only_spec(read("grok", 0.0F))).amplitude(), 1.0);
  EXPECT_EQ(
      std::get<encodings::YarnScaling>(only_spec(read("grok", -1.0F)).scaling).extrapolation_factor,
      1.0);
  const ModelConfig ignored = read("llama", 0.5F);
  EXPECT_EQ(std::get<encodings::YarnScaling>(only_spec(ignored).scaling).extrapolation_factor, 1.0);
  EXPECT_TRUE(std::any_of(ignored.notes.begin(), ignored.notes.end(), [](const KeyNote& note) {
    return note.key == "llama.rope.scaling.yarn_ext_factor";
  }));
  expect_refused(yarn_model("grok").number<float>("grok.rope.scaling.yarn_ext_factor", 1.5F),
                 {"extrapolation_factor", "1.5"});
}

TEST(GgufConfig, RefusesSizesThatNoModelHas) {
  GgufWriter writer;
  writer.text("general.architecture", "llama");
  expect_refused(writer, {"llama.attention.key_length", "embedding_length"});
  expect_refused(GgufWriter(writer).number<std::uint64_t>("llama.block_count", 1ULL << 40),
                 {"llama.block_count", "1", "100000", "1099511627776"});
  expect_refused(model("llama").number<std::int32_t>("llama.attention.key_length", -4),
                 {"llama.attention.key_length", "1", "65536", "-4"});
  expect_refused(model("llama").numbers<std::int32_t>("llama.attention.head_count_kv", {1, 2}),
                 {"llama.attention.head_count_kv", "4", "2"});
  GgufWriter odd = model("gemma3").number<std::uint32_t>("gemma3.attention.sliding_window", 8);
  expect_refused(odd.numbers<bool>("gemma3.attention.sliding_window_pattern", {true, false}),
                 {"gemma3.attention.sliding_window_pattern", "2"});
}

}  // namespace
}  // namespace phasor::config
