#include "config/hf/model_keys.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace phasor::config {
namespace {

using encodings::AxialAxes;

[[nodiscard]] bool has_quirk(const ModelKeys& keys, Quirk quirk) noexcept {
  return keys.family != nullptr && keys.family->quirk == quirk;
}

struct NamedNumber {
  double value = 0.0;
  std::string_view key;
};

// The number under any of several names; if two are given, they must be equal.
[[nodiscard]] std::optional<NamedNumber> one_of(const ObjectReader& top,
                                                std::initializer_list<std::string_view> names) {
  std::optional<NamedNumber> first;
  for (const std::string_view key : names) {
    const std::optional<double> value = top.number(key);
    if (!value) continue;
    if (first && first->value != *value) {
      top.refuse(key,
                 message("must be equal to ", first->key, " ", first->value, ", got ", *value));
    }
    if (!first) first = NamedNumber{*value, key};
  }
  return first;
}

// `found`, if not null, receives the path of the key.
[[nodiscard]] std::optional<std::int64_t> first_integer(
    const ObjectReader& top, std::initializer_list<std::string_view> names,
    std::string* found = nullptr) {
  for (const std::string_view key : names) {
    if (const std::optional<std::int64_t> value = top.integer(key)) {
      if (*value <= 0) top.refuse(key, message("must be a positive integer, got ", *value));
      if (found != nullptr) *found = top.path_of(key);
      return value;
    }
  }
  return std::nullopt;
}

// The size of a part that leaves it out, with a note; 0: not known.
[[nodiscard]] std::int64_t class_default(const ObjectReader& top, ModelKeys& keys,
                                         std::string_view key, std::int64_t SizeDefaults::*size) {
  if (keys.family == nullptr || !is_part(top)) return 0;
  const std::int64_t value = keys.family->sizes.*size;
  if (value != 0) {
    keys.notes.push_back({top.path_of(key),
                          message("missing in the config; ", value, " is the ", default_of(keys))});
  }
  return value;
}

void read_lengths(const ObjectReader& top, ModelKeys& keys) {
  keys.lengths.max_position = first_integer(
      top, {"max_position_embeddings", "n_positions", "max_seq_len"}, &keys.length_key);
  if (!keys.lengths.max_position && has_quirk(keys, Quirk::baichuan))
    keys.lengths.max_position = first_integer(top, {"model_max_length"}, &keys.length_key);
  if (!keys.lengths.max_position && has_quirk(keys, Quirk::rope_ratio)) {
    keys.lengths.max_position =
        first_integer(top, {"seq_length", "max_sequence_length"}, &keys.length_key);
  }
  if (!keys.lengths.max_position) {
    const std::int64_t length =
        class_default(top, keys, "max_position_embeddings", &SizeDefaults::max_position);
    if (length != 0) {
      keys.lengths.max_position = length;
      keys.length_key = default_of(keys);
    }
  }
  keys.lengths.original = first_integer(top, {"original_max_position_embeddings"});
  if (has_quirk(keys, Quirk::nomic)) {
    keys.trained_length = first_integer(top, {"max_trained_positions"}, &keys.trained_length_key);
  }
}

// Falcon: 40B and later have num_kv_heads, 7B has one key head, the small ones with ALiBi have all.
void read_falcon_key_heads(const ObjectReader& top, ModelKeys& keys) {
  const std::optional<std::int64_t> listed = first_integer(top, {"num_kv_heads", "n_head_kv"});
  const bool grouped = top.flag("new_decoder_architecture").value_or(top.has("n_head_kv"));
  const bool one = top.flag("multi_query").value_or(true);
  if (grouped) {
    keys.key_heads = listed ? listed : keys.heads;
  } else {
    keys.key_heads = one ? std::optional<std::int64_t>(1) : keys.heads;
  }
}

// Layers with a head of their own (Gemma 4): {"05": {"head_dim": 512}}. Full-attention layers may have
// one; anything else is refused.
void read_layer_heads(const ObjectReader& top, ModelKeys& keys) {
  constexpr std::string_view kKey = "per_layer_config";
  const std::optional<ObjectReader> layers = top.object(kKey);
  if (!layers) return;
  const auto unsupported = [&](const std::string& key) {
    top.refuse_as(ErrorCode::unsupported, kKey,
                  message("only the full-attention layers, all of them, may have a head_dim of "
                          "their own, got ",
                          shown(top.value(kKey)), key.empty() ? "" : " at " + key));
  };
  const std::vector<std::string> types =
      top.texts("layer_types").value_or(std::vector<std::string>());
  std::int64_t with_own = 0;
  for (const std::string& key : layers->keys()) {
    const std::optional<ObjectReader> entry = layers->object(key);
    const std::optional<std::int64_t> width =
        entry ? first_integer(*entry, {"head_dim"}) : std::nullopt;
    if (!width) continue;
    const bool digits = key.find_first_not_of("0123456789") == std::string::npos && key.size() < 7;
    const std::size_t layer = digits ? std::stoul(key) : types.size();
    if (layer >= types.size() || types[layer] != "full_attention" ||
        (with_own > 0 && keys.global_head_dim != *width)) {
      unsupported(key);
    }
    keys.global_head_dim = *width;
    ++with_own;
  }
  if (with_own > 0 && with_own != std::count(types.begin(), types.end(), "full_attention"))
    unsupported("");
}

void read_heads(const ObjectReader& top, ModelKeys& keys) {
  keys.heads = first_integer(
      top, {"num_attention_heads", "n_head", "num_heads", "n_heads", "decoder_num_attention_heads"},
      &keys.heads_key);
  keys.key_heads = first_integer(top, {"num_key_value_heads", "multi_query_group_num"});
  if (!keys.heads) {
    const std::int64_t heads =
        class_default(top, keys, "num_attention_heads", &SizeDefaults::heads);
    if (heads != 0) {
      keys.heads = heads;
      keys.heads_key = default_of(keys);
      if (!keys.key_heads) {
        const std::int64_t key_heads =
            class_default(top, keys, "num_key_value_heads", &SizeDefaults::key_heads);
        if (key_heads != 0) keys.key_heads = key_heads;
      }
    }
  }
  if (has_quirk(keys, Quirk::falcon)) read_falcon_key_heads(top, keys);
  const bool latent_family = keys.family != nullptr && keys.family->softmax == SoftmaxRule::latent;
  if (latent_family || top.has("qk_rope_head_dim")) {
    const std::optional<std::int64_t> rotating =
        first_integer(top, {"qk_rope_head_dim"}, &keys.head_dim_key);
    if (!rotating) top.refuse_missing("qk_rope_head_dim", "latent attention needs it");
    keys.latent = true;
    keys.head_dim = *rotating;
    keys.latent_width = *rotating + top.integer("qk_nope_head_dim").value_or(0);
    if (!top.has("qk_nope_head_dim")) keys.latent_width = 0;
    return;
  }
  std::optional<std::int64_t> head_dim = first_integer(top, {"head_dim"}, &keys.head_dim_key);
  if (!head_dim && keys.family != nullptr)
    head_dim = first_integer(top, {keys.family->head_dim_key}, &keys.head_dim_key);
  // embed_dim first: in Qwen2-VL's vision tower, hidden_size is the width of the text model it
  // feeds.
  std::string width_key;
  std::optional<std::int64_t> width =
      first_integer(top, {"embed_dim", "n_embd", "hidden_size", "d_model"}, &width_key);
  const std::optional<std::int64_t>& heads = keys.heads;
  if (!head_dim && keys.family != nullptr && keys.family->head_dim > 0) {
    head_dim = keys.family->head_dim;
    keys.head_dim_key = default_of(keys);
  }
  if (!head_dim) {
    if (!width) {
      const std::int64_t hidden = class_default(top, keys, "hidden_size", &SizeDefaults::hidden);
      if (hidden != 0) width = hidden;
      width_key = "hidden_size";
    }
    if (!width || !heads) {
      top.refuse_missing("head_dim", "expected it, or hidden_size and num_attention_heads");
    }
    if (*width % *heads != 0) {
      top.refuse("hidden_size",
                 message("must be a multiple of num_attention_heads ", *heads, ", got ", *width));
    }
    head_dim = *width / *heads;
    keys.head_dim_key = message(width_key, " / ", keys.heads_key);
  }
  keys.head_dim = *head_dim;
  keys.global_head_dim = first_integer(top, {"global_head_dim"}).value_or(0);
  read_layer_heads(top, keys);
}

// Position encodings other than RoPE, which are refused, and flags that only confirm RoPE.
void read_other_encodings(const ObjectReader& top, ModelKeys& keys) {
  const auto unsupported = [&](std::string_view key, std::string_view expected) {
    top.refuse_as(ErrorCode::unsupported, key,
                  message("must be ", expected, ", got ", shown(top.value(key))));
  };
  const auto use_alibi = [&](std::string why) {
    keys.no_rotation = std::move(why);
    keys.other_positions = kAlibiPositions;
    keys.positions =
        PositionFacts{.kind = PositionKind::alibi, .scaled_bias = has_quirk(keys, Quirk::falcon)};
  };
  if (top.flag("alibi").value_or(false)) {
    if (!has_quirk(keys, Quirk::falcon)) unsupported("alibi", "false for this model_type");
    use_alibi("alibi is true");
  }
  // The larger model of this type does not say so.
  if (has_quirk(keys, Quirk::baichuan) && top.integer("hidden_size") == 5120)
    use_alibi("model_type baichuan with hidden_size 5120");
  for (const std::string_view key : {"rotary", "use_rotary_pos_emb"}) {
    if (!top.flag(key).value_or(true)) unsupported(key, "true");
  }
  if (const std::optional<std::string> type = top.text("position_embedding_type")) {
    if (*type == "nope") keys.no_rotation = "position_embedding_type is \"nope\"";
    if (*type == "absolute" && has_quirk(keys, Quirk::learned_if_absolute)) {
      keys.no_rotation = "position_embedding_type is \"absolute\"";
      keys.other_positions = "learned positions";
      keys.positions = PositionFacts{.kind = PositionKind::learned, .after_padding = true};
    }
    const bool stale = has_quirk(keys, Quirk::absolute_is_stale) && *type == "absolute";
    // Cohere's name for the interleaved layout.
    const bool interleaved = *type == "rope_gptj" && keys.family != nullptr &&
                             keys.family->layout == core::PairLayout::interleaved;
    const bool rotary = *type == "rotary" || *type == "rope" || interleaved;
    if (!rotary && keys.no_rotation.empty() && !stale) {
      unsupported("position_embedding_type", "rotary, rope or nope");
    }
  }
  if (has_quirk(keys, Quirk::optional_rotation) && !top.flag("use_mem_rope").value_or(false))
    keys.no_rotation = "use_mem_rope is not true";
  if (top.flag("use_mrope").value_or(false) && !keys.mrope) {
    unsupported("use_mrope", "false for this model_type");
  }
  // Tables added to the input and training lengths: they do not affect the rotation.
  if (keys.axial) {
    static_cast<void>(top.integer("position_embedding_size"));
    static_cast<void>(top.integer("num_position_embeddings"));
  }
  keys.rotates_values = top.flag("rotary_value").value_or(false);
}

void read_base(const ObjectReader& top, ModelKeys& keys) {
  const bool two_bases = keys.family != nullptr && keys.family->layers == LayerRule::local_base;
  std::optional<NamedNumber> base = two_bases ? one_of(top, {"rope_theta", "global_rope_theta"})
                                              : one_of(top, {"rope_theta", "rotary_emb_base"});
  if (two_bases) {
    const std::optional<NamedNumber> local =
        one_of(top, {"rope_local_base_freq", "local_rope_theta"});
    if (local) {
      keys.local_base = local->value;
      keys.local_base_key = local->key;
    }
  }
  if (has_quirk(keys, Quirk::rope_ratio)) {
    if (const std::optional<double> ratio = top.number("rope_ratio")) {
      const double scaled = keys.family->base.value_or(0.0) * *ratio;
      if (base && base->value != scaled) {
        top.refuse("rope_ratio",
                   message("must agree with ", base->key, " ", base->value, ", got ", *ratio));
      }
      base = NamedNumber{scaled, "rope_ratio"};
    }
  }
  if (base) {
    keys.base = base->value;
    keys.base_key = base->key;
  }
  // DBRX keeps its attention's keys apart.
  if (const std::optional<ObjectReader> attention = top.object("attn_config")) {
    if (!keys.key_heads) keys.key_heads = first_integer(*attention, {"kv_n_heads"});
    const std::optional<double> inner = attention->number("rope_theta");
    if (inner && keys.base && *inner != *keys.base) {
      top.refuse(keys.base_key,
                 message("must be equal to attn_config.rope_theta ", *inner, ", got ", *keys.base));
    }
    if (inner) {
      keys.base = inner;
      keys.base_key = attention->path_of("rope_theta");
    }
  }
}

void read_width(const ObjectReader& top, ModelKeys& keys) {
  const std::optional<NamedNumber> partial =
      one_of(top, {"partial_rotary_factor", "rotary_pct", "rotary_emb_fraction", "rope_pct"});
  if (partial) {
    if (!(partial->value > 0.0 && partial->value <= 1.0)) {
      top.refuse(partial->key, message("must be above 0 and at most 1, got ", partial->value));
    }
    keys.partial = partial->value;
    keys.partial_key = partial->key;
  }
  if (has_quirk(keys, Quirk::ignores_rotary_dim)) {
    top.mark_understood("rotary_dim");
    return;
  }
  keys.rotary_dim = top.integer("rotary_dim");
  if (!keys.rotary_dim && top.has_even_null("rotary_dim")) {
    top.refuse("rotary_dim", "must be an integer, got null");
  }
}

// layer_rope_theta: a base for each layer, 0 for one that does not rotate.
void read_layer_bases(const ObjectReader& top, ModelKeys& keys) {
  keys.layer_bases = top.numbers("layer_rope_theta").value_or(std::vector<double>());
  for (const double base : keys.layer_bases) {
    if (!(base >= 0.0))
      top.refuse("layer_rope_theta", message("entries must not be negative, got ", base));
  }
}

void read_layout(const ObjectReader& top, ModelKeys& keys) {
  if (keys.family != nullptr && keys.family->layout) {
    keys.layout = keys.family->layout;
    keys.layout_key = "model_type " + keys.model_type;
  }
  if (has_quirk(keys, Quirk::rope_interleave) && !top.flag("rope_interleave").value_or(true)) {
    keys.layout = core::PairLayout::half;
    keys.layout_key = "rope_interleave";
  }
  if (has_quirk(keys, Quirk::nomic)) {
    if (top.flag("rotary_emb_interleaved").value_or(false)) {
      keys.layout = core::PairLayout::interleaved;
      keys.layout_key = "rotary_emb_interleaved";
    }
    for (const std::string_view key : {"rotary_emb_scale_base", "rotary_scaling_factor"}) {
      if (top.number(key))
        top.refuse_as(ErrorCode::unsupported, key, "must be null, got " + shown(top.value(key)));
    }
  }
  std::optional<core::PairLayout> given;
  std::string_view key = "rope_layout";
  if (const std::optional<std::string> name = top.text(key)) {
    given = core::pair_layout_of(*name);
    if (!given) {
      top.refuse(key,
                 message("must be interleaved, half or interleaved_to_half, got \"", *name, "\""));
    }
  } else if (const std::optional<bool> interleaved = top.flag("rope_interleaved")) {
    // SmolLM2's configs state it, false.
    key = "rope_interleaved";
    given = *interleaved ? core::PairLayout::interleaved : core::PairLayout::half;
  }
  if (!given) return;
  if (keys.layout && *keys.layout != *given) {
    top.refuse(key, message("must be the layout of model_type ", keys.model_type, ", ",
                            name_of(*keys.layout), ", got ", shown(top.value(key))));
  }
  keys.layout = given;
  keys.layout_key = key;
}

// ChatGLM: the first generation rotates each half of a head by its own row of positions.
void read_chatglm(const ObjectReader& top, ModelKeys& keys) {
  if (!has_quirk(keys, Quirk::rope_ratio)) return;
  if (!top.flag("original_rope").value_or(true)) {
    top.refuse_as(ErrorCode::unsupported, "original_rope", "must be true, got false");
  }
  if (top.flag("position_encoding_2d").value_or(false)) {
    keys.axial = AxialAxes::Kind::per_half_head;
    keys.layout = core::PairLayout::half;
    keys.layout_key = "position_encoding_2d";
    if (!keys.partial) keys.partial = 1.0;
  }
}

}  // namespace

ModelKeys read_model_keys(const ObjectReader& top) {
  ModelKeys keys;
  keys.model_type = top.text("model_type").value_or("");
  top.require_name("model_type", keys.model_type);
  if (const Family* row = find_family(keys.model_type); row != nullptr && row->rotary) {
    keys.family = &*row->rotary;
  }
  if (keys.family != nullptr) {
    keys.axial = keys.family->axial;
    keys.mrope = keys.family->mrope;
  }
  read_other_encodings(top, keys);
  read_lengths(top, keys);
  read_heads(top, keys);
  read_base(top, keys);
  read_layer_bases(top, keys);
  read_width(top, keys);
  read_layout(top, keys);
  read_chatglm(top, keys);
  keys.query_pre_attn_scalar = top.number("query_pre_attn_scalar");
  keys.attention_multiplier = top.number("attention_multiplier");
  return keys;
}

bool is_about_positions(std::string_view key) noexcept {
  // How positions of sound are counted, and dropout of a table that is added to the input.
  if (key == "position_id_per_seconds" || key == "dropout_positions") return false;
  for (const std::string_view word : {"rope", "rotary", "alibi", "position", "ntk"}) {
    if (key.find(word) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace phasor::config
