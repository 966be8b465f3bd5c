// Biases and terms by the distance of query and key.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "config/hf/position_reader.hpp"

namespace phasor::config {

std::optional<PositionEncoding> PositionReader::alibi(double max_bias, std::string from) {
  if (!(max_bias > 0.0 && std::isfinite(max_bias))) {
    top_.refuse("alibi_bias_max", message("must be a positive number, got ", max_bias));
  }
  start("alibi", kScores);
  put("max_bias", max_bias, std::move(from));
  const std::optional<FoundInteger> heads = find_heads(top_, side_);
  if (!heads) return std::move(made_);
  if (heads->value > kMaxHeads) {
    top_.refuse(heads->key, message("must be from 1 to ", kMaxHeads, ", got ", heads->value));
  }
  put("heads", heads->value, heads->key);
  put("slopes", encodings::alibi_slopes(heads->value, max_bias, facts_.slopes),
      "2^(-max_bias i / heads), " + heads->key);
  if (facts_.scaled_bias) put("scaled_with_qk", true, message("model_type ", model_type_));
  return std::move(made_);
}

std::optional<PositionEncoding> PositionReader::mpt() {
  const std::optional<ObjectReader> attention = top_.object("attn_config");
  const auto flag = [&](std::string_view key, bool known) {
    return attention ? attention->flag(key).value_or(known) : known;
  };
  if (flag("rope", false)) {
    top_.refuse_as(ErrorCode::unsupported, "attn_config.rope", "must be false, got true");
  }
  if (!flag("alibi", true)) {
    if (!top_.flag("learned_pos_emb").value_or(true)) return std::nullopt;
    return learned();
  }
  const std::optional<double> bias = attention ? attention->number("alibi_bias_max") : std::nullopt;
  std::optional<PositionEncoding> made =
      alibi(bias.value_or(8.0), bias ? attention->path_of("alibi_bias_max") : source());
  if (const std::optional<FoundInteger> length = given(facts_.length_key, facts_.length))
    made->parameters.push_back({"trained_length", length->value, length->key});
  return made;
}

std::optional<PositionEncoding> PositionReader::t5() {
  start("t5", kScores);
  put_integer("buckets", facts_.buckets_key, facts_.buckets);
  put_integer("max_distance", facts_.distance_key, facts_.distance);
  const bool past = facts_.side == PositionSide::both
                        ? side_ == PositionSide::decoder
                        : facts_.range == encodings::BucketRange::past_only;
  put_text("range", past ? "past_only" : "bidirectional", message("model_type ", model_type_));
  put_heads();
  put_text("table", facts_.table_per_layer ? "one per layer" : "one for all layers",
           message("model_type ", model_type_));
  if (side_ == PositionSide::encoder && top_.has("encoder_attention_type")) {
    const std::string type = *top_.text("encoder_attention_type");
    top_.require_name("encoder_attention_type", type);
    put_text("attention", type, top_.path_of("encoder_attention_type"));
    put_integer("local_radius", "local_radius", 127);
    if (type == "transient-global") put_integer("global_block_size", "global_block_size", 16);
  }
  return std::move(made_);
}

std::optional<PositionEncoding> PositionReader::boxes_bias() {
  const bool by_text = top_.flag("has_relative_attention_bias").value_or(true);
  const bool by_box = top_.flag("has_spatial_attention_bias").value_or(true);
  if (!by_text && !by_box) return std::nullopt;
  start("relative_bias_boxes", kScores);
  if (by_text) {
    put_integer("buckets", "rel_pos_bins", 32);
    put_integer("max_distance", "max_rel_pos", 128);
  }
  if (by_box) {
    put_integer("box_buckets", "rel_2d_pos_bins", 64);
    put_integer("box_max_distance", "max_rel_2d_pos", 256);
  }
  put_text("range", "bidirectional", message("model_type ", model_type_));
  put_heads();
  return std::move(made_);
}

std::vector<std::string> PositionReader::attention_terms() const {
  constexpr std::string_view kKey = "pos_att_type";
  std::vector<std::string> terms;
  if (top_.value(kKey).is_array()) {
    terms = *top_.texts(kKey);
  } else if (const std::optional<std::string> joined = top_.text(kKey)) {
    for (std::size_t from = 0; from < joined->size();) {
      const std::size_t end = std::min(joined->find('|', from), joined->size());
      if (end > from) terms.push_back(joined->substr(from, end - from));
      from = end + 1;
    }
  }
  for (std::string& term : terms) {
    std::transform(term.begin(), term.end(), term.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (term != "c2p" && term != "p2c") {
      top_.refuse_as(ErrorCode::unsupported, kKey,
                     message("must be c2p, p2c or both, got ", shown(top_.value(kKey))));
    }
  }
  return terms;
}

std::optional<PositionEncoding> PositionReader::deberta() {
  if (!top_.flag("relative_attention").value_or(false)) return learned();
  start("deberta", kScores);
  const bool first = facts_.version == encodings::Deberta::Version::v1;
  put_text("version", first ? "v1" : "v2", message("model_type ", model_type_));
  const std::vector<std::string> terms = attention_terms();
  std::string joined;
  for (const std::string& term : terms) joined += (joined.empty() ? "" : "|") + term;
  put_text("pos_att_type", joined, top_.path_of("pos_att_type"));
  std::optional<FoundInteger> length;
  if (const std::optional<std::int64_t> own = top_.integer("max_relative_positions");
      own && *own >= 1) {
    length = FoundInteger{*own, top_.path_of("max_relative_positions")};
  } else {
    length = given(facts_.length_key, facts_.length);
  }
  put("max_relative_positions", length->value, length->key);
  std::int64_t size = length->value;
  const std::int64_t buckets = first ? 0 : top_.integer("position_buckets").value_or(-1);
  if (buckets > 0) {
    put("position_buckets", buckets, top_.path_of("position_buckets"));
    size = buckets;
  }
  put("rows", 2 * size, buckets > 0 ? "2 position_buckets" : message("2 ", length->key));
  put_heads();
  if (!first) put_flag("share_att_key", "share_att_key", false);
  put("terms", static_cast<std::int64_t>(1 + terms.size()), "1 + the terms of pos_att_type");
  // The table that is added to the input as well.
  put_flag("position_biased_input", "position_biased_input", true);
  return std::move(made_);
}

void PositionReader::put_terms_of_transformer_xl(std::int64_t clamp) {
  put_width("dim");
  put("base", 10000.0, source("fixed"));
  if (const std::optional<std::int64_t> length = top_.integer("clamp_len")) clamp = *length;
  if (clamp > 0) {
    put("max_distance", clamp, top_.has("clamp_len") ? top_.path_of("clamp_len") : source());
  }
  put_text("biases", "u on content, v on positions", message("model_type ", model_type_));
  put_heads();
  if (const std::optional<std::int64_t> memory = top_.integer("mem_len"))
    put("mem_len", *memory, top_.path_of("mem_len"));
}

std::optional<PositionEncoding> PositionReader::transformer_xl() {
  start("transformer_xl", kScores);
  const bool funnel = model_type_ == "funnel";
  put_terms_of_transformer_xl(funnel ? 0 : 1000);
  if (funnel) {
    put_text("range", "bidirectional", message("model_type ", model_type_));
    const std::string type = top_.text("attention_type").value_or("relative_shift");
    top_.require_name("attention_type", type);
    put_text("attention_type", type,
             top_.has("attention_type") ? top_.path_of("attention_type") : source());
    put("segment_rows", std::int64_t{2}, message("model_type ", model_type_));
  } else {
    put_text("range", "past_only", message("model_type ", model_type_));
    put_flag("untie_r", "untie_r", true);
  }
  return std::move(made_);
}

std::optional<PositionEncoding> PositionReader::xlnet() {
  start("xlnet", kScores);
  put_terms_of_transformer_xl(0);
  const std::string type = top_.text("attn_type").value_or("bi");
  top_.require_name("attn_type", type);
  put_text("range", type == "bi" ? "bidirectional" : "past_only",
           top_.has("attn_type") ? top_.path_of("attn_type") : source());
  put("segment_rows", std::int64_t{2}, message("model_type ", model_type_));
  put_text("segments", "same or different segment", message("model_type ", model_type_));
  put_flag("bi_data", "bi_data", false);
  put_flag("untie_r", "untie_r", true);
  return std::move(made_);
}

std::optional<PositionEncoding> PositionReader::conformer() {
  constexpr std::string_view kKey = "position_embeddings_type";
  const bool by_keys = model_type_ == "wav2vec2-bert";
  if (top_.has_even_null(kKey) && !top_.has(kKey)) return std::nullopt;
  const std::string type = top_.text(kKey).value_or(by_keys ? "relative_key" : "relative");
  const std::string from = top_.has(kKey) ? top_.path_of(kKey) : source();
  if (type == "relative_key") {
    start("shaw", "keys");
    const std::int64_t left =
        find_integer(top_, {"left_max_position_embeddings"}).value_or(FoundInteger{64, {}}).value;
    const std::int64_t right =
        find_integer(top_, {"right_max_position_embeddings"}).value_or(FoundInteger{8, {}}).value;
    put("left", left, "left_max_position_embeddings");
    put("right", right, "right_max_position_embeddings");
    put("rows", left + right + 1, "left + right + 1");
  } else if (type == "relative") {
    start("transformer_xl", kScores);
    put_width("dim");
    put("base", 10000.0, source("fixed"));
    put_integer("max_distance", facts_.length_key, facts_.length);
    put_text("range", "bidirectional", from);
  } else {
    top_.refuse_as(ErrorCode::unsupported, kKey,
                   message("must be relative or relative_key, got ", shown(top_.value(kKey))));
  }
  put_heads();
  return std::move(made_);
}

std::optional<PositionEncoding> PositionReader::shaw() {
  const bool values = model_type_ == "vits";
  start("shaw", values ? "keys and values" : "keys");
  const std::optional<FoundInteger> clip = given(facts_.length_key, facts_.length);
  // SpeechT5 counts -160 .. 159.
  const std::int64_t right = values ? clip->value : clip->value - 1;
  put("left", clip->value, clip->key);
  put("right", right, values ? clip->key : clip->key + " - 1");
  put("rows", clip->value + right + 1, "left + right + 1");
  put_heads();
  return std::move(made_);
}

std::optional<PositionEncoding> PositionReader::window_bias() {
  start("relative_bias_2d", kScores);
  const std::optional<Extent> own = extent(facts_.length_key);
  const Extent window = own.value_or(Extent{facts_.length, facts_.length, source()});
  put("window_height", window.height, window.key);
  put("window_width", window.width, window.key);
  put("shift", window.height / 2, "every second layer: window / 2");
  const bool computed = model_type_ == "swinv2" || model_type_ == "swin2sr";
  put_text("bias", computed ? "a network of the logarithm of the offset" : "a trained table",
           message("model_type ", model_type_));
  put("rows", (2 * window.height - 1) * (2 * window.width - 1),
      "(2 window_height - 1) (2 window_width - 1)");
  if (const std::optional<std::vector<double>> heads =
          top_.value("num_heads").is_array() ? top_.numbers("num_heads") : std::nullopt) {
    put("heads", *heads, top_.path_of("num_heads"));
  }
  put_text("table", "one per layer", message("model_type ", model_type_));
  return std::move(made_);
}

std::optional<PositionEncoding> PositionReader::grid_bias() {
  const bool own = top_.flag("use_relative_position_bias").value_or(false);
  const bool shared = top_.flag("use_shared_relative_position_bias").value_or(false);
  if (!own && !shared) {
    if (!top_.flag("use_absolute_position_embeddings").value_or(false)) return std::nullopt;
    PositionFacts with_class = facts_;
    with_class.more_rows = 1;
    return PositionReader(top_, model_type_, with_class, side_).patches();
  }
  start("relative_bias_2d", kScores);
  if (const std::optional<Extent> patches = grid()) {
    put("window_height", patches->height, patches->key);
    put("window_width", patches->width, patches->key);
    put("rows", (2 * patches->height - 1) * (2 * patches->width - 1) + 3,
        "(2 window_height - 1) (2 window_width - 1) + 3 of the class token");
  }
  put_heads();
  put_text("table", own ? "one per layer" : "one for all layers",
           top_.path_of(own ? "use_relative_position_bias" : "use_shared_relative_position_bias"));
  return std::move(made_);
}

}  // namespace phasor::config
