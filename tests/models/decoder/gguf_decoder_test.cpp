// Golden safetensors rewritten as GGUF, as its converters do: names, rows and norms differ, logits
// must not.
#include <gtest/gtest.h>

#include "decoder_support.hpp"
#include "support/gguf_writer.hpp"

namespace phasor::models::testing {
namespace {

using io::testing::GgufWriter;

struct Conversion {
  const char* golden;
  const char* architecture;
  // From a name of the checkpoint to that of the file, layer and all; empty: handled elsewhere.
  std::function<std::string(const std::string&)> name;
  std::function<void(Weights&)> reorder;
  std::function<void(GgufWriter&, const std::string&)> metadata;
};

std::string with(std::string text, const std::vector<std::pair<std::string, std::string>>& rules) {
  for (const auto& [from, to] : rules) {
    if (const std::size_t place = text.find(from); place != std::string::npos) {
      text.replace(place, from.size(), to);
    }
  }
  return text;
}

std::string llama_name(const std::string& name) {
  return with(name, {{"model.layers.", "blk."},
                     {"model.embed_tokens", "token_embd"},
                     {"model.norm", "output_norm"},
                     {"lm_head", "output"},
                     {"input_layernorm", "attn_norm"},
                     {"post_attention_layernorm", "ffn_norm"},
                     {"self_attn.q_proj", "attn_q"},
                     {"self_attn.k_proj", "attn_k"},
                     {"self_attn.v_proj", "attn_v"},
                     {"self_attn.qkv_proj", "attn_qkv"},
                     {"self_attn.o_proj", "attn_output"},
                     {"self_attn.q_norm", "attn_q_norm"},
                     {"self_attn.k_norm", "attn_k_norm"},
                     {"mlp.gate_up_proj", "ffn_up"},
                     {"mlp.gate_proj", "ffn_gate"},
                     {"mlp.up_proj", "ffn_up"},
                     {"mlp.down_proj", "ffn_down"},
                     {"block_sparse_moe.gate", "ffn_gate_inp"}});
}

// Rows of a matrix in another order.
void permute(Weights& weights, std::size_t i, const std::vector<std::int64_t>& order) {
  const std::int64_t rows = weights.tensors[i].shape.front();
  const std::size_t width = weights.bytes[i].size() / static_cast<std::size_t>(rows);
  std::string out;
  for (const std::int64_t row : order) {
    out += weights.bytes[i].substr(static_cast<std::size_t>(row) * width, width);
  }
  weights.bytes[i] = out;
}

// Half to interleaved, as for the llama architecture.
void interleave(Weights& weights, std::int64_t head_dim) {
  for (std::size_t i = 0; i < weights.tensors.size(); ++i) {
    const std::string& name = weights.tensors[i].name;
    if (name.find("q_proj") == std::string::npos && name.find("k_proj") == std::string::npos) {
      continue;
    }
    std::vector<std::int64_t> order;
    for (std::int64_t row = 0; row < weights.tensors[i].shape.front(); ++row) {
      const std::int64_t head = row / head_dim;
      const std::int64_t d = row % head_dim;
      order.push_back(head * head_dim + d / 2 + (d % 2) * head_dim / 2);
    }
    permute(weights, i, order);
  }
}

void stack_experts(Weights& weights) {
  const std::pair<const char*, const char*> parts[] = {
      {"w1", "ffn_gate_exps"}, {"w2", "ffn_down_exps"}, {"w3", "ffn_up_exps"}};
  for (int layer = 0; layer < 2; ++layer) {
    for (const auto& [part, to] : parts) {
      std::string bytes;
      std::vector<std::int64_t> shape;
      for (int expert = 0; expert < 4; ++expert) {
        const std::string name = "model.layers." + std::to_string(layer) +
                                 ".block_sparse_moe.experts." + std::to_string(expert) + "." +
                                 part + ".weight";
        const std::size_t i = weights.find(name);
        bytes += weights.bytes[i];
        shape = weights.tensors[i].shape;
        weights.remove(name);
      }
      shape.insert(shape.begin(), 4);
      weights.add("blk." + std::to_string(layer) + "." + to + ".weight", shape);
      weights.bytes.back() = bytes;
    }
  }
}

// From query, key and value of each head to all queries, all keys, all values.
void to_sections(Weights& weights) {
  for (std::size_t i = 0; i < weights.tensors.size(); ++i) {
    if (weights.tensors[i].name.find("query_key_value") == std::string::npos) continue;
    std::vector<std::int64_t> order;
    for (std::int64_t part = 0; part < 3; ++part) {
      for (std::int64_t head = 0; head < 4; ++head) {
        for (std::int64_t d = 0; d < 16; ++d) order.push_back((head * 3 + part) * 16 + d);
      }
    }
    permute(weights, i, order);
  }
}

void common_metadata(GgufWriter& writer, const std::string& arch, std::uint32_t layers,
                     std::uint32_t hidden, std::uint32_t wide, std::uint32_t key_heads,
                     std::uint32_t head_dim, float base) {
  writer.text("general.architecture", arch)
      .number(arch + ".block_count", layers)
      .number(arch + ".context_length", std::uint32_t{128})
      .number(arch + ".embedding_length", hidden)
      .number(arch + ".feed_forward_length", wide)
      .number(arch + ".attention.head_count", std::uint32_t{4})
      .number(arch + ".attention.head_count_kv", key_heads)
      .number(arch + ".attention.key_length", head_dim)
      .number(arch + ".attention.value_length", head_dim)
      .number(arch + ".rope.freq_base", base);
}

const std::vector<Conversion>& conversions() {
  static const std::vector<Conversion> all = {
      {"mixtral_moe_top2", "llama", llama_name,
       [](Weights& weights) {
         interleave(weights, 12);
         stack_experts(weights);
       },
       [](GgufWriter& writer, const std::string& arch) {
         common_metadata(writer, arch, 2, 48, 56, 2, 12, 1e6F);
         writer.number(arch + ".rope.dimension_count", std::uint32_t{12})
             .number(arch + ".expert_count", std::uint32_t{4})
             .number(arch + ".expert_used_count", std::uint32_t{2})
             .number(arch + ".attention.layer_norm_rms_epsilon", 1e-5F);
       }},
      {"qwen3_qk_norm", "qwen3", llama_name, [](Weights&) {},
       [](GgufWriter& writer, const std::string& arch) {
         common_metadata(writer, arch, 3, 64, 112, 2, 24, 1e6F);
         writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-6F);
       }},
      {"gpt_neox_partial", "gptneox",
       [](const std::string& name) {
         return with(name, {{"gpt_neox.layers.", "blk."},
                            {"gpt_neox.embed_in", "token_embd"},
                            {"gpt_neox.final_layer_norm", "output_norm"},
                            {"embed_out", "output"},
                            {"input_layernorm", "attn_norm"},
                            {"post_attention_layernorm", "ffn_norm"},
                            {"attention.query_key_value", "attn_qkv"},
                            {"attention.dense", "attn_output"},
                            {"mlp.dense_h_to_4h", "ffn_up"},
                            {"mlp.dense_4h_to_h", "ffn_down"}});
       },
       to_sections,
       [](GgufWriter& writer, const std::string& arch) {
         common_metadata(writer, arch, 3, 64, 128, 4, 16, 1e4F);
         writer.number(arch + ".rope.dimension_count", std::uint32_t{4})
             .number(arch + ".use_parallel_residual", true)
             .number(arch + ".attention.layer_norm_epsilon", 1e-5F);
       }},
      {"cohere_interleaved", "command-r", llama_name, [](Weights&) {},
       [](GgufWriter& writer, const std::string& arch) {
         common_metadata(writer, arch, 3, 64, 96, 2, 16, 1e4F);
         writer.number(arch + ".logit_scale", 0.25F)
             .number(arch + ".attention.layer_norm_epsilon", 1e-5F);
       }},
  };
  return all;
}

class GgufDecoder : public io::testing::TemporaryFolder {};

TEST_F(GgufDecoder, SaysWhatItsSafetensorsSay) {
  for (const Conversion& conversion : conversions()) {
    SCOPED_TRACE(conversion.golden);
    Weights weights = Weights::of(conversion.golden);
    conversion.reorder(weights);
    GgufWriter writer;
    conversion.metadata(writer, conversion.architecture);
    for (std::size_t i = 0; i < weights.tensors.size(); ++i) {
      const std::vector<std::int64_t>& shape = weights.tensors[i].shape;
      writer.tensor(conversion.name(weights.tensors[i].name), 0,
                    std::vector<std::uint64_t>(shape.rbegin(), shape.rend()), weights.bytes[i]);
    }
    io::testing::put(at("model.gguf"), writer.bytes());
    Decoder original = load(golden_model(conversion.golden));
    Decoder decoder = load(at("model.gguf"));
    const std::vector<std::int64_t> ids = golden_ids(conversion.golden);
    EXPECT_LE(largest_difference(logits_of(decoder, ids), logits_of(original, ids)), 1e-5);
    EXPECT_EQ(decoder.facts().parameters, original.facts().parameters);
  }
}

TEST_F(GgufDecoder, ArchitecturesAndTypesThatItCannotRunAreNamed) {
  GgufWriter writer;
  common_metadata(writer, "starcoder2", 1, 64, 96, 2, 16, 1e4F);
  io::testing::put(at("model.gguf"), writer.bytes());
  const Result<Decoder> other = Decoder::load(at("model.gguf"));
  ASSERT_FALSE(other.ok());
  EXPECT_NE(std::string(other.error().what()).find("\"starcoder2\""), std::string::npos)
      << other.error().what();

  GgufWriter quantised;
  common_metadata(quantised, "llama", 1, 256, 256, 2, 64, 1e4F);
  quantised.tensor("token_embd.weight", 10, {256, 1}, std::string(84, '\0'));  // Q2_K
  io::testing::put(at("model.gguf"), quantised.bytes());
  const Result<Decoder> unknown = Decoder::load(at("model.gguf"));
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(std::string(unknown.error().what()).find("Q2_K"), std::string::npos)
      << unknown.error().what();
}

}  // namespace
}  // namespace phasor::models::testing
