// What a model_type says that its config.json leaves out.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "phasor/core/rotary.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::config {

// Which layers share an encoding when the config has one rope dictionary.
enum class LayerRule : std::uint8_t {
  all_alike,
  local_base,      // sliding layers: their own base, unscaled (Gemma 3, ModernBERT, OLMo 3)
  full_unrotated,  // full-attention layers do not rotate (Cohere2, EXAONE 4)
  skip_interval,   // every n-th layer does not rotate (SmolLM3, Llama 4)
};

enum class SoftmaxRule : std::uint8_t {
  unknown,
  head_dim,               // head_dim^-1/2
  query_pre_attn_scalar,  // its -1/2 power (Gemma 2 and 3)
  attention_multiplier,   // itself (Granite)
  latent,  // (qk_nope_head_dim + qk_rope_head_dim)^-1/2 g(mscale_all_dim)^2 (DeepSeek)
};

// Which layers see only a window of keys, when layer_types do not say it.
enum class WindowRule : std::uint8_t {
  by_layer_type,  // sliding layers alone
  every_layer,    // all of them, when a width is given (Mistral, Phi-3)
  above_layer,    // use_sliding_window, from layer max_window_layers on (Qwen2)
  alternating,    // the even ones (Gemma 2, gpt-oss)
};

// Quirks that single families have; most have none.
enum class Quirk : std::uint8_t {
  none,
  rope_ratio,  // ChatGLM: base = 10000 rope_ratio; the first generation has two position streams
  baichuan,    // the 13B model of this type uses ALiBi and its config does not say so
  rope_interleave,    // DeepSeek V3: false means the half layout
  nomic,              // rotary_emb_interleaved gives the layout
  absolute_is_stale,  // ModernBERT's configs say "absolute" and mean nothing by it
  scaling_required,   // gpt-oss: an absent rope dictionary would not mean the default type
};

struct Family {
  std::string_view model_type;
  std::optional<core::PairLayout> layout{};
  std::optional<double> base{};  // when the config gives none
  double partial = 1.0;
  std::int64_t head_dim = 0;    // 0: hidden size / heads
  std::int64_t rotary_dim = 0;  // 0: head_dim * partial
  LayerRule layers = LayerRule::all_alike;
  std::int64_t layer_interval = 0;  // of the rule, when the config gives none
  SoftmaxRule softmax = SoftmaxRule::head_dim;
  WindowRule window = WindowRule::by_layer_type;
  Quirk quirk = Quirk::none;
  std::optional<double> local_base{};
  std::optional<encodings::AxialAxes::Kind> axial{};
  std::optional<encodings::MropeAxes::Order> mrope{};  // set: sections are required
};

// Null for a model_type that is not in the table.
[[nodiscard]] const Family* find_family(std::string_view model_type) noexcept;

}  // namespace phasor::config
