// The one table of tensor names: where each family keeps its q and k projections.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "phasor/core/rotary.hpp"

namespace phasor::porting {

// How heads follow each other in the projection that `queries` names.
enum class HeadOrder : std::uint8_t {
  separate,       // q and k have a tensor each
  sections,       // all q heads, all k heads, all v heads
  per_head,       // for each head its q, k and v (GPT-NeoX)
  per_key_group,  // for each k head its q heads, then k and v (InternLM2)
};

struct Names {
  std::string_view model_types;    // each between spaces
  std::string_view before, after;  // the module is <prefix><before><layer><after>
  HeadOrder order = HeadOrder::separate;
  std::string_view queries = "q_proj", keys = "k_proj", values = "v_proj";
  std::string_view output = {};  // inside the module; read where values turn
  std::optional<core::PairLayout> layout = std::nullopt;
};

// The table. A family stands here when the order of its heads is certain.
inline constexpr std::array kNames = {
    Names{.model_types =
              " llama mistral ministral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 gemma3"
              " gemma3_text gemma4_text olmo olmo2 olmo3 olmoe starcoder2 stablelm stablelm_epoch"
              " phi phimoe granite granitemoe nemotron minicpm hunyuan_v1_dense hunyuan_v1_moe"
              " gpt_oss smollm3 apertus bitnet dots1 lfm2 arcee seed_oss exaone4 glm glm4 glm4_moe"
              " cohere cohere2 ernie4_5 ernie4_5_moe helium llama4 llama4_text qwen2_vl"
              " qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen3_vl qwen3_vl_text qwen3_vl_moe"
              " qwen3_vl_moe_text ",
          .before = "layers.",
          .after = ".self_attn."},
    Names{.model_types = " phi3 ",
          .before = "layers.",
          .after = ".self_attn.",
          .order = HeadOrder::sections,
          .queries = "qkv_proj"},
    Names{.model_types = " baichuan ",
          .before = "layers.",
          .after = ".self_attn.",
          .order = HeadOrder::sections,
          .queries = "W_pack"},
    Names{.model_types = " gpt_neox ",
          .before = "layers.",
          .after = ".attention.",
          .order = HeadOrder::per_head,
          .queries = "query_key_value"},
    Names{.model_types = " chatglm ",
          .before = "layers.",
          .after = ".self_attention.",
          .order = HeadOrder::sections,
          .queries = "query_key_value"},
    Names{.model_types = " internlm2 ",
          .before = "layers.",
          .after = ".attention.",
          .order = HeadOrder::per_key_group,
          .queries = "wqkv"},
    Names{.model_types = " modernbert nomic_bert ",
          .before = "layers.",
          .after = ".attn.",
          .order = HeadOrder::sections,
          .queries = "Wqkv"},
    Names{.model_types = " palm ", .before = "layers.", .after = ".attn."},
    Names{.model_types = " gptj ", .before = "h.", .after = ".attn."},
    Names{.model_types = " exaone ", .before = "h.", .after = ".attn.attention."},
    Names{.model_types = " roformer esm ",
          .before = "layer.",
          .after = ".attention.",
          .queries = "self.query",
          .keys = "self.key",
          .values = "self.value",
          .output = "output.dense"},
    // Files as Meta and Mistral publish them, beside a config.json of the Hugging Face weights.
    Names{.model_types = " llama mistral mixtral ",
          .before = "layers.",
          .after = ".attention.",
          .queries = "wq",
          .keys = "wk",
          .values = "wv",
          .layout = core::PairLayout::interleaved},
};

inline constexpr std::array<std::string_view, 5> kLatent = {"deepseek_v2", "deepseek_v3", "kimi_k2",
                                                            "minicpm3", "longcat_flash"};

// Of the text model. What stands under a tower of another kind is left alone; anything else is
// refused, an adapter's "base_model." for one.
inline constexpr std::array<std::string_view, 14> kPrefixes = {"",
                                                               "model.",
                                                               "language_model.",
                                                               "language_model.model.",
                                                               "model.language_model.",
                                                               "encoder.",
                                                               "transformer.",
                                                               "gpt_neox.",
                                                               "transformer.encoder.",
                                                               "roformer.encoder.",
                                                               "esm.encoder.",
                                                               "bert.encoder.",
                                                               "text_model.",
                                                               "model.text_model."};
inline constexpr std::array<std::string_view, 6> kTowers = {
    "vision_tower.", "vision_model.", "visual.", "audio_tower.", "audio_model.", "vision_encoder."};

inline constexpr std::array<std::string_view, 3> kQueryNorms = {"q_norm", "q_layernorm",
                                                                "query_layernorm"};
inline constexpr std::array<std::string_view, 3> kKeyNorms = {"k_norm", "k_layernorm",
                                                              "key_layernorm"};

// What may stand in the module and has no order of q and k features.
inline constexpr std::array<std::string_view, 18> kOthers = {"v_proj.",
                                                             "o_proj.",
                                                             "out_proj.",
                                                             "dense.",
                                                             "wv.",
                                                             "wo.",
                                                             "Wo.",
                                                             "rotary_emb.",
                                                             "sinks",
                                                             "attn_sub_norm.",
                                                             "self.value.",
                                                             "output.",
                                                             "self.rotary_embeddings.",
                                                             "LayerNorm.",
                                                             "bias",
                                                             "masked_bias",
                                                             "rotary.inv_freq",
                                                             "inv_freq"};

}  // namespace phasor::porting
