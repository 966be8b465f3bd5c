#include "config/hf/known_keys.hpp"

#include <algorithm>
#include <array>

namespace phasor::config {
namespace {

// Any of these inside a key means that it may be about positions.
constexpr auto kPositionWords = std::to_array<std::string_view>(
    {"alibi",   "attn_type", "attention_type", "block_type", "bucket",     "chunk", "distance",
     "global",  "interval",  "layer_type",     "local",      "max_len",    "ntk",   "offset",
     "period",  "posit",     "pos_emb",        "relative",   "rel_pos",    "rope",  "rotary",
     "segment", "seq_len",   "seq_length",     "sink",       "slope",      "span",  "temporal",
     "theta",   "window",    "nope",           "interpolat", "extrapolat", "yarn",  "freq"});

constexpr auto kKnownEndings = std::to_array<std::string_view>(
    {"_token_id",    "_token_ids",   "_token_index", "_act",    "_activation", "_bias", "_channels",
     "_coefficient", "_coef",        "_dim",         "_drop",   "_dropout",    "_eps",  "_epsilon",
     "_experts",     "_factor_init", "_groups",      "_kernel", "_loss",       "_norm", "_pdrop",
     "_prob",        "_probs",       "_rank",        "_rate",   "_ratio",      "_size", "_std",
     "_width",       "_heads",       "_layernorm",   "_labels", "_type_vocab", "_limit"});

constexpr auto kKnownBeginnings = std::to_array<std::string_view>(
    {"architect",     "audio_",     "auto_map",     "begin_suppress", "bos_",
     "classifier_",   "conv_",      "ctc_",         "decoder_",       "dropout",
     "embd_",         "emb_pdrop",  "embedding",    "encoder_",       "eos_",
     "expert",        "ffn_",       "forced_",      "id2label",       "image_",
     "initializer_",  "label",      "layer_norm",   "layerdrop",      "linear_conv",
     "linear_key",    "linear_num", "linear_value", "logit",          "mamba_",
     "mask_",         "mlp_",       "mm_",          "moe_",           "mtp_",
     "n_group",       "n_routed",   "n_shared",     "norm_",          "num_expert",
     "num_experts",   "output_",    "pad_",         "pooler_",        "pretraining_",
     "quantization",  "resid_",     "rms_",         "router_",        "sep_",
     "shared_expert", "ssm_",       "summary_",     "suppress_",      "task_specific",
     "tie_",          "tokenizer_", "topk_",        "torch_",         "transformers_",
     "unk_",          "use_cache",  "vision_",      "vocab_"});

constexpr auto kKnownNames =
    std::to_array<std::string_view>({"_name_or_path",
                                     "activation",
                                     "activation_function",
                                     "add_bias_linear",
                                     "add_qkv_bias",
                                     "apply_residual_connection_post_layernorm",
                                     "attention_softmax_in_fp32",
                                     "attn_implementation",
                                     "attn_logit_softcapping",
                                     "attn_output_gate",
                                     "bias",
                                     "bias_dropout_fusion",
                                     "boi_token_index",
                                     "cache_implementation",
                                     "causal",
                                     "clip_qkv",
                                     "cls_token_id",
                                     "conv_L_cache",
                                     "cross_attention_frequency",
                                     "d_ff",
                                     "d_inner",
                                     "decoder_sparse_step",
                                     "dense_act_fn",
                                     "dense_seq_output",
                                     "dim_model_base",
                                     "disable_custom_kernels",
                                     "do_sample",
                                     "dtype",
                                     "early_stopping",
                                     "emb_layer_norm_before",
                                     "eoi_token_index",
                                     "esmfold_config",
                                     "expert_layer_offset",
                                     "expert_layer_period",
                                     "feed_forward_proj",
                                     "ff_factor",
                                     "ffn_config",
                                     "final_logit_softcapping",
                                     "finetuning_task",
                                     "first_k_dense_replace",
                                     "fp32_residual_connection",
                                     "gradient_checkpointing",
                                     "head_bias",
                                     "hidden_act",
                                     "hidden_activation",
                                     "hidden_dropout",
                                     "init_device",
                                     "initializer",
                                     "inner_group_num",
                                     "interleave_moe_layer_step",
                                     "intermediate_size",
                                     "is_decoder",
                                     "is_encoder_decoder",
                                     "is_folding_model",
                                     "kernel_config",
                                     "keys_to_ignore_at_inference",
                                     "length_penalty",
                                     "logits_soft_cap",
                                     "masked_softmax_fusion",
                                     "model_type",
                                     "n_ctx",
                                     "n_inner",
                                     "no_bias",
                                     "no_repeat_ngram_size",
                                     "normalize_before",
                                     "normalize_embedding",
                                     "num_beams",
                                     "num_ln_in_parallel_attn",
                                     "num_labels",
                                     "num_logits_to_keep",
                                     "num_mel_bins",
                                     "num_nextn_predict_layers",
                                     "num_random_blocks",
                                     "org_vocab_size",
                                     "parallel_attn",
                                     "parallel_residual",
                                     "prefix",
                                     "prenorm",
                                     "pretraining_tp",
                                     "problem_type",
                                     "qk_layernorm",
                                     "qkv_bias",
                                     "query_key_norm",
                                     "reorder_and_upcast_attn",
                                     "return_dict",
                                     "routed_scaling_factor",
                                     "scale_attn_by_inverse_layer_idx",
                                     "scale_attn_weights",
                                     "scale_decoder_outputs",
                                     "scale_depth",
                                     "scale_emb",
                                     "scale_embedding",
                                     "scoring_func",
                                     "slow_but_exact",
                                     "swiglu_limit",
                                     "token_dropout",
                                     "use_bias",
                                     "use_bfloat16",
                                     "use_flash_attn",
                                     "use_mamba_kernels",
                                     "use_parallel_residual",
                                     "use_qk_norm",
                                     "use_qkv_bias",
                                     "use_rms_norm",
                                     "z_loss_weight"});

}  // namespace

bool is_known_elsewhere(std::string_view key) noexcept {
  const auto one_of = [](const auto& list, auto matches) {
    return std::any_of(list.begin(), list.end(), matches);
  };
  if (one_of(kKnownNames, [&](std::string_view name) { return key == name; })) return true;
  if (one_of(kPositionWords,
             [&](std::string_view word) { return key.find(word) != std::string_view::npos; }))
    return false;
  return one_of(kKnownEndings, [&](std::string_view end) { return key.ends_with(end); }) ||
         one_of(kKnownBeginnings, [&](std::string_view begin) { return key.starts_with(begin); });
}

}  // namespace phasor::config
