// Golden safetensors rewritten as GGUF, as its converters do: names, rows and norms differ, logits must not.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "decoder_support.hpp"
#include "phasor/io/internal/json.hpp"
#include "support/gguf_writer.hpp"

namespace phasor::models::testing {

using io::testing::GgufWriter;

struct Conversion {
  const char* golden;
  const char* architecture;
  // From a name of the checkpoint to that of the file, layer and all; empty: handled elsewhere.
  std::function<std::string(const std::string&)> name;
  std::function<void(Weights&)> reorder;
  std::function<void(GgufWriter&, const std::string&)> metadata;
  // What the file cannot say, in the config of the safetensors.
  std::function<void(io::Json&)> config = {};
};

inline std::string with(std::string text,
                        const std::vector<std::pair<std::string, std::string>>& rules) {
  for (const auto& [from, to] : rules) {
    if (const std::size_t place = text.find(from); place != std::string::npos) {
      text.replace(place, from.size(), to);
    }
  }
  return text;
}

inline std::string llama_name(const std::string& name) {
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
inline void permute(Weights& weights, std::size_t i, const std::vector<std::int64_t>& order) {
  const std::int64_t rows = weights.tensors[i].shape.front();
  const std::size_t width = weights.bytes[i].size() / static_cast<std::size_t>(rows);
  std::string out;
  for (const std::int64_t row : order) {
    out += weights.bytes[i].substr(static_cast<std::size_t>(row) * width, width);
  }
  weights.bytes[i] = out;
}

// Half to interleaved, as for the llama architecture.
inline void interleave(Weights& weights, std::int64_t head_dim) {
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

inline void stack_experts(Weights& weights) {
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
inline void to_sections(Weights& weights, std::int64_t heads, std::int64_t head_dim) {
  for (std::size_t i = 0; i < weights.tensors.size(); ++i) {
    if (weights.tensors[i].name.find("query_key_value") == std::string::npos) continue;
    std::vector<std::int64_t> order;
    for (std::int64_t part = 0; part < 3; ++part) {
      for (std::int64_t head = 0; head < heads; ++head) {
        for (std::int64_t d = 0; d < head_dim; ++d)
          order.push_back((head * 3 + part) * head_dim + d);
      }
    }
    permute(weights, i, order);
  }
}

inline void common_metadata(GgufWriter& writer, const std::string& arch, std::uint32_t layers,
                            std::uint32_t hidden, std::uint32_t wide, std::uint32_t key_heads,
                            std::uint32_t head_dim, float base, std::uint32_t heads = 4) {
  writer.text("general.architecture", arch)
      .number(arch + ".block_count", layers)
      .number(arch + ".context_length", std::uint32_t{128})
      .number(arch + ".embedding_length", hidden)
      .number(arch + ".feed_forward_length", wide)
      .number(arch + ".attention.head_count", heads)
      .number(arch + ".attention.head_count_kv", key_heads)
      .number(arch + ".attention.key_length", head_dim)
      .number(arch + ".attention.value_length", head_dim)
      .number(arch + ".rope.freq_base", base);
}

class GgufFolder : public io::testing::TemporaryFolder {
 protected:
  // The logits of the file are those of the safetensors.
  void expect_same_logits(const Conversion& conversion) {
    SCOPED_TRACE(conversion.golden);
    Weights weights = Weights::of(conversion.golden);
    const std::filesystem::path folder = at("original");
    std::filesystem::create_directories(folder);
    weights.write(folder);
    io::Json config =
        io::parse_object(io::testing::get(golden_model(conversion.golden) / "config.json"));
    if (conversion.config) conversion.config(config);
    io::testing::put(folder / "config.json", config.dump());
    Decoder original = load(folder);

    conversion.reorder(weights);
    GgufWriter writer;
    conversion.metadata(writer, conversion.architecture);
    for (std::size_t i = 0; i < weights.tensors.size(); ++i) {
      const std::vector<std::int64_t>& shape = weights.tensors[i].shape;
      writer.tensor(conversion.name(weights.tensors[i].name), 0,
                    std::vector<std::uint64_t>(shape.rbegin(), shape.rend()), weights.bytes[i]);
    }
    io::testing::put(at("model.gguf"), writer.bytes());
    Decoder decoder = load(at("model.gguf"));
    const std::vector<std::int64_t> ids = golden_ids(conversion.golden);
    // Logits of up to 16: ten float32 roundings, since features in another order add up otherwise.
    EXPECT_LE(largest_difference(logits_of(decoder, ids), logits_of(original, ids)), 2e-5);
    EXPECT_EQ(decoder.facts().parameters, original.facts().parameters);
    EXPECT_EQ(decoder.facts().position_limit, original.facts().position_limit);
  }
};

}  // namespace phasor::models::testing
