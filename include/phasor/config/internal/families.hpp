// The table of model families: one row per model_type, with the parts that Phasor knows about it. The
// rows are in src/config/families, grouped by lineage. Rooms keep the code (how to read, convert and
// run a model) and take every fact about a family from here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::config {

// ---- config.json: how q and k are rotated ----

// Which layers share an encoding when the config has one rope dictionary.
enum class LayerRule : std::uint8_t {
  all_alike,
  windows,         // sliding layers rotate as the full ones do (CWM)
  local_base,      // sliding layers: their own base, unscaled (Gemma 3, ModernBERT, OLMo 3)
  full_unrotated,  // full-attention layers do not rotate (Cohere2, EXAONE 4)
  skip_interval,   // every n-th layer does not rotate (SmolLM3, Llama 4)
  linear_but,      // linear attention but in every n-th layer (Qwen3-Next)
  listed,          // attn_layer_indices lists the layers that attend (Bamba)
};

enum class SoftmaxRule : std::uint8_t {
  unknown,
  head_dim,               // head_dim^-1/2
  query_pre_attn_scalar,  // its -1/2 power (Gemma 2 and 3)
  attention_multiplier,   // itself (Granite)
  latent,  // (qk_nope_head_dim + qk_rope_head_dim)^-1/2 g(mscale_all_dim)^2 (DeepSeek)
};

// Which layers have a sliding window when layer_types is missing.
enum class WindowRule : std::uint8_t {
  by_layer_type,  // only sliding layers
  every_layer,    // all layers, when a width is given (Mistral, Phi-3)
  above_layer,    // use_sliding_window, from layer max_window_layers on (Qwen2)
  alternating,    // layers 0, 2, 4, ... (Gemma 2, gpt-oss)
};

// Rules that only single families have.
enum class Quirk : std::uint8_t {
  none,
  rope_ratio,  // ChatGLM: base = 10000 rope_ratio; the first generation has two position streams
  baichuan,    // the 13B model of this type uses ALiBi without saying so in its config
  rope_interleave,         // DeepSeek V3: false means the half layout
  nomic,                   // rotary_emb_interleaved gives the layout
  absolute_is_stale,       // ModernBERT: position_embedding_type "absolute" has no effect
  scaling_required,        // gpt-oss: a missing rope dictionary would not mean the default type
  rotates_without_window,  // EXAONE 4: without sliding_window every layer is full and rotates
  one_listed_base,         // Muse: layer_rope_theta only says which layers rotate
  optional_rotation,       // Zamba2: only with use_mem_rope
  learned_if_absolute,     // ESM: position_embedding_type "absolute" means learned positions
  temperature,             // Llama 4: layers without rotation scale their queries by position
  ignores_rotary_dim,      // MiniMax M3: the width is head_dim * partial_rotary_factor alone
  dense_rotates,           // Cohere 2 MoE: full-attention layers with a dense feed-forward rotate
  repeats_width,           // Bamba: attn_rotary_emb repeats the width that rotates
  falcon,                  // key heads by multi_query and new_decoder_architecture; or ALiBi
};

// Sizes of the config class of transformers, for parts that leave them out (Gemma 3, LLaVA).
struct SizeDefaults {
  std::int64_t hidden = 0, heads = 0, key_heads = 0, layers = 0, max_position = 0;
};

// What a model_type implies and its config.json leaves out. Layouts are those of the Hugging Face
// weights; a base is set only if the family's own code has that default.
struct RotaryFacts {
  std::optional<core::PairLayout> layout = std::nullopt;
  std::optional<double> base = std::nullopt;  // when the config has none
  double partial = 1.0;                       // share of the head that rotates
  std::int64_t head_dim = 0;                  // 0: hidden size / heads
  std::string_view head_dim_key = "head_dim";
  std::int64_t rotary_dim = 0;  // 0: head_dim * partial
  LayerRule layers = LayerRule::all_alike;
  std::int64_t layer_interval = 0;  // of the rule, when the config has none
  bool full_first = false;  // the first layer of each interval is the full one, not the last
  SoftmaxRule softmax = SoftmaxRule::head_dim;
  WindowRule window = WindowRule::by_layer_type;
  Quirk quirk = Quirk::none;
  std::optional<double> local_base = std::nullopt;
  std::optional<encodings::AxialAxes::Kind> axial = std::nullopt;
  std::optional<encodings::MropeAxes::Order> mrope = std::nullopt;  // set: sections are required
  // Sections (t, h, w) when the config has none; used only if they fill the rotary width.
  std::array<std::int64_t, 3> sections = {0, 0, 0};
  SizeDefaults sizes = {};
};

// ---- config.json: positions that are not rotations ----

enum class PositionKind : std::uint8_t {
  learned,         // a trained row per position, added to the input
  bert,            // the same, unless position_embedding_type names a relative encoding or ALiBi
  patches,         // a trained row per patch of an image, added to the input
  sinusoidal,      // RoFormer (4), added to the input
  axial,           // trained rows of two axes, joined; or learned ones (Reformer)
  boxes,           // trained rows of the coordinates of a box on a page (LayoutLM)
  alibi,           // a slope per head
  mpt,             // ALiBi, or learned positions without attn_config.alibi
  t5,              // a trained bias per bucket of the distance
  boxes_bias,      // a trained bias per bucket of the distances of boxes (LayoutLM v2 and v3)
  deberta,         // content and position terms, or learned positions without relative_attention
  xlnet,           // as transformer_xl, with segment terms
  transformer_xl,  // (q + u).k + (q + v).R
  conformer,       // position_embeddings_type: as transformer_xl, or Shaw's rows of keys
  shaw,            // rows added to keys, clipped
  window_bias,     // a trained bias per offset inside a window of an image (Swin)
  grid_bias,       // a trained bias per offset inside an image (BEiT)
  convolution,     // a convolution over time, added to the input
};

// The layers that have it.
enum class PositionSide : std::uint8_t { all, encoder, decoder, both };

// One encoding of a model_type that rotates nothing; a model may have several. Numbers are those of the
// family's code, used when the config has none.
struct PositionFacts {
  PositionKind kind = PositionKind::learned;
  PositionSide side = PositionSide::all;
  std::string_view length_key = "max_position_embeddings";
  std::int64_t length = 0;      // 0: without a limit, or not known
  std::int64_t first_row = 0;   // the row of position 0
  std::int64_t more_rows = 0;   // rows of the table beyond the length
  bool after_padding = false;   // position 0 has row pad_token_id + 1
  std::int64_t padding_id = 1;  // pad_token_id
  encodings::Sinusoidal::Variant variant = encodings::Sinusoidal::Variant::interleaved;
  bool cosines_first = false;  // [cos | sin]
  encodings::SlopeOrder slopes = encodings::SlopeOrder::bloom;
  bool scaled_bias = false;  // the bias is multiplied by the softmax scale, as q.k is
  std::string_view buckets_key = "relative_attention_num_buckets";
  std::int64_t buckets = 32;
  std::string_view distance_key = "relative_attention_max_distance";
  std::int64_t distance = 128;
  encodings::BucketRange range = encodings::BucketRange::bidirectional;
  bool table_per_layer = false;  // false: one table for all layers
  encodings::Deberta::Version version = encodings::Deberta::Version::v2;
};

// Texts of `other_positions`.
inline constexpr std::string_view kAbsolutePositions =
    "absolute positions, added to the input or to queries and keys";
inline constexpr std::string_view kRelativePositions = "relative positions in the scores";
inline constexpr std::string_view kAlibiPositions = "ALiBi, a bias by distance";

// In the order in which they act; empty: only `other_positions` of the family is known.
[[nodiscard]] std::vector<PositionFacts> position_facts(std::string_view model_type);

// ---- GGUF: what general.architecture implies and the metadata leave out (llama.cpp's loader) ----

// How the kernel of an architecture pairs features.
enum class GgufRotation : std::uint8_t {
  none,               // no rotation: learned or sinusoidal positions, ALiBi, recurrence
  interleaved,        // adjacent features
  half,               // features half the rotary width apart
  sections,           // half; sections t, h, w in frequency order
  mixed_sections,     // half; thwthw...
  half_or_sections,   // half without sections, else as `sections`
  pairs_or_sections,  // interleaved without sections, else as `sections`
};

enum class GgufLayers : std::uint8_t {
  all_alike,
  windows,         // sliding layers rotate as the full ones do
  local_base,      // sliding layers have their own base and no scaling
  full_unrotated,  // full layers do not rotate
  skip_interval,   // every n-th layer does not rotate
  linear_but,      // every n-th layer attends, the others are recurrent
};

enum class GgufSoftmax : std::uint8_t {
  head_dim,  // head_dim^-1/2
  one,
  latent,   // width of the whole key ^-1/2, with YaRN's amplitude squared
  largest,  // as head_dim, but (embedding_length / heads)^-1/2 at `largest_layers`
  unknown,
};

// What rope.scaling.yarn_log_multiplier holds.
enum class GgufLogMultiplier : std::uint8_t {
  refused,
  all_dim,        // mscale_all_dim, with mscale 1
  tenth_all_dim,  // 0.1 mscale_all_dim, with an equal mscale
};

// A window that files do not give, or that only some files have.
enum class GgufWindow : std::uint8_t {
  if_stated,        // without the key every layer is full
  default_4096,     // 4096 without the key
  chunks_of_8192,   // Llama 4: a query sees its chunk
  default_4096_64,  // EXAONE 4: 4096 when there are 64 layers, else no window at all
  both_sides,       // a query sees half of the width on each side
};

struct GgufArchitecture {
  std::string_view name;
  GgufRotation rotation = GgufRotation::none;
  GgufLayers layers = GgufLayers::all_alike;
  std::int64_t interval = 0;
  bool full_first = false;  // the first layer of each interval is the full one, not the last
  GgufWindow window = GgufWindow::if_stated;
  std::optional<double> local_base = std::nullopt;  // none: that of the full layers
  GgufSoftmax softmax = GgufSoftmax::head_dim;
  std::int64_t largest_layers = 0;
  bool latent = false;  // rope.dimension_count features rotate, next to the compressed key
  GgufLogMultiplier log_multiplier = GgufLogMultiplier::refused;
  bool finetuned_is_switch = false;  // rope.scaling.finetuned false: nothing rotates
  // attention.temperature_scale: queries grow with their position, counted in the original length.
  bool query_scale = false;
  std::int64_t alibi_layers = 0;  // the model with this many layers uses ALiBi instead
};

// ---- Checkpoints: where q and k are ----

// Order of the heads in the projection that `queries` names.
enum class HeadOrder : std::uint8_t {
  separate,       // q and k have a tensor each
  sections,       // all q heads, all k heads, all v heads
  per_head,       // for each head its q, k and v (GPT-NeoX)
  per_key_group,  // for each k head its q heads, then k and v (InternLM2)
};

struct AttentionNames {
  std::string_view before, after;  // the module is <prefix><before><layer><after>
  HeadOrder order = HeadOrder::separate;
  std::string_view queries = "q_proj", keys = "k_proj", values = "v_proj";
  std::string_view output = {};  // inside the module; read only if values rotate
  // Set: weights with these names have this layout, whatever the config says.
  std::optional<core::PairLayout> layout = std::nullopt;
};

// ---- Decoders: what a layer computes ----

// The order is that of the kernels' table of activations.
enum class Activation : std::uint8_t {
  silu,       // x / (1 + e^-x)
  gelu,       // x (1 + erf(x / sqrt 2)) / 2
  gelu_tanh,  // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
  relu,
};

enum class NormKind : std::uint8_t {
  rms,
  rms_from_one,        // multiplies by 1 + weight; GGUF files hold 1 + weight
  layer,               // mean and variance, weight and bias
  layer_without_bias,  // mean and variance, only a weight
};

// How attention A and feed-forward F are added to the residual x; N are norms.
enum class Block : std::uint8_t {
  sequential,    // x += A(N1 x); x += F(N2 x)
  parallel,      // x += A(N1 x) + F(N1 x)
  parallel_two,  // x += A(N1 x) + F(N2 x)
  sandwich,      // x += N2 A(N1 x); x += N4 F(N3 x)
  after,         // x += N1 A(x); x += N2 F(x)
};

// Of queries and keys, before the rotation.
enum class QueryKeyNorm : std::uint8_t {
  none,
  each_head,             // the family's norm over each head, one weight for all heads
  each_head_if_present,  // the same, only with the config's qk_layernorm
  layer_if_present,  // LayerNorm with a weight for each head, only with use_qk_norm or qk_layernorm
  whole,             // the family's norm over all heads together
};

// How a decoder knows positions.
enum class Positions : std::uint8_t {
  rotary,
  learned,  // a trained row for each position, added to the embedding
  alibi,    // a bias by distance
};

enum class FeedForward : std::uint8_t {
  gated,        // down(f(gate x) * up x)
  gated_fused,  // gate and up in one tensor, gate first
  plain,        // down(f(up x))
  experts,      // a router's top experts, each gated
};

enum class BiasRule : std::uint8_t {
  never,
  always,
  by_attention_bias,  // the config's attention_bias, or the key that the family has for it
  by_mlp_bias,        // the config's mlp_bias
  if_present,         // GGUF, which has no such keys
};

// Names without ".weight" and ".bias"; the first `{}` is the layer, the second the expert. Empty: the
// family has no such tensor.
struct TensorNames {
  std::string_view embedding, final_norm, head;
  std::string_view attention_norm, feed_forward_norm;
  std::string_view after_attention_norm = {}, after_feed_forward_norm = {};
  std::string_view query = {}, key = {}, value = {}, fused = {}, output = {};
  std::string_view query_norm = {}, key_norm = {};
  std::string_view gate = {}, up = {}, down = {};
  std::string_view router = {}, expert_gate = {}, expert_up = {}, expert_down = {};
  std::string_view positions = {}, embedding_norm = {};
  // Files that hold the model without its head leave this out of all names (GPT-2, BLOOM).
  std::string_view prefix = {};
};

struct DecoderPart {
  const TensorNames* names = nullptr;       // of safetensors
  const TensorNames* gguf_names = nullptr;  // null: GGUF files of this architecture are not run
  Positions positions = Positions::rotary;
  // Of q, k and v in a row without AttentionNames.
  HeadOrder fused_order = HeadOrder::separate;
  NormKind norm = NormKind::rms;
  Block block = Block::sequential;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  FeedForward feed_forward = FeedForward::gated;
  Activation activation = Activation::silu;   // when the config names none
  BiasRule attention_bias = BiasRule::never;  // of q, k and v
  BiasRule output_bias = BiasRule::never;
  BiasRule feed_forward_bias = BiasRule::never;
  BiasRule head_bias = BiasRule::never;
  bool attention_bias_default = false;  // attention_bias, when the config has no such key
  std::string_view attention_bias_key = "attention_bias";
  // Width of the feed-forward / hidden size when the config gives no width; 0: it must.
  std::int64_t feed_forward_multiple = 0;
  bool scales_embeddings = false;    // embeddings times sqrt(hidden)
  bool ties_embeddings = false;      // tie_word_embeddings, when the config has no such key
  bool gguf_ties_embeddings = true;  // a GGUF file without output.weight has a tied head
  std::optional<double> logit_scale = std::nullopt;  // set: logit_scale is read, with this default
  // Set: use_parallel_residual chooses this block or sequential; without the key it is `block`
  // (GPT-NeoX, StableLM).
  std::optional<Block> parallel_block = std::nullopt;
  // attn_logit_softcapping and final_logit_softcapping, when the config has no such keys (Gemma 2).
  double attention_soft_cap = 0.0, final_soft_cap = 0.0;
  // embedding_multiplier, residual_multiplier and logits_scaling are read (Granite).
  bool multipliers = false;
  bool transposed = false;  // weights of layers are stored as [in, out] (GPT-2); not in GGUF
};

// ---- Encoder-decoders of the T5 family ----

struct EncoderDecoderPart {
  std::string_view feed_forward = "relu";  // feed_forward_proj, when the config has no such key
  // The decoder's output is multiplied by hidden^-1/2 before the head if scale_decoder_outputs is true,
  // or, without that key, tie_word_embeddings; false: never.
  bool scales_output = true;
};

// ---- The row ----

struct Family {
  std::string_view model_type = {};  // of config.json; empty: known only as a GGUF architecture
  std::optional<RotaryFacts> rotary = std::nullopt;
  // Of a model that rotates nothing: the positions that it has instead.
  std::string_view other_positions = {};
  // Of a model that rotates in a way that no RopeSpec describes: which way. With rotary facts, only the
  // layout is not described.
  std::string_view unsupported = {};
  std::optional<GgufArchitecture> gguf = std::nullopt;
  // The architecture of another row that this family's GGUF files have (mistral: llama).
  std::string_view gguf_as = {};
  const AttentionNames* attention = nullptr;  // of the Hugging Face weights
  // Other names that the weights are published under (Meta's and Mistral's own files).
  const AttentionNames* published_attention = nullptr;
  // Latent attention: q and k have no rows that a conversion could permute.
  bool latent_attention = false;
  std::optional<DecoderPart> decoder = std::nullopt;
  bool encoder = false;                                              // models::RoFormer runs it
  std::optional<EncoderDecoderPart> encoder_decoder = std::nullopt;  // models::T5Model runs it

  // Of q, k and v in the Hugging Face weights of a decoder.
  [[nodiscard]] constexpr HeadOrder head_order() const noexcept {
    return attention != nullptr ? attention->order : decoder->fused_order;
  }
  [[nodiscard]] constexpr std::string_view architecture() const noexcept {
    return gguf ? gguf->name : gguf_as;
  }
};

// Every row, in the order of the files.
[[nodiscard]] std::span<const Family> families();

// Null when no row has this model_type.
[[nodiscard]] const Family* find_family(std::string_view model_type);
// The row whose `gguf` part describes this architecture; null when there is none.
[[nodiscard]] const Family* find_architecture(std::string_view name);

// For messages: what can be written instead of an unknown name, `; did you mean "llama"?` or "".
[[nodiscard]] std::string suggest_model_type(std::string_view model_type);
[[nodiscard]] std::string suggest_architecture(std::string_view name);

}  // namespace phasor::config
