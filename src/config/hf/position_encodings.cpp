#include "config/hf/position_encodings.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "config/hf/position_reader.hpp"

namespace phasor::config {
namespace {

[[nodiscard]] std::string_view name_of(encodings::Sinusoidal::Variant variant) {
  switch (variant) {
    case encodings::Sinusoidal::Variant::interleaved:
      return "interleaved";
    case encodings::Sinusoidal::Variant::concat:
      return "concat";
    case encodings::Sinusoidal::Variant::fairseq:
      break;
  }
  return "fairseq";
}

}  // namespace

std::optional<PositionEncoding> PositionReader::read() {
  switch (facts_.kind) {
    case PositionKind::learned:
      return learned();
    case PositionKind::bert:
      return bert();
    case PositionKind::patches:
      return patches();
    case PositionKind::sinusoidal:
      return sinusoidal(facts_.variant);
    case PositionKind::axial:
      return axial();
    case PositionKind::boxes:
      return boxes();
    case PositionKind::alibi:
      return alibi(8.0, source("the paper's 8"));
    case PositionKind::mpt:
      return mpt();
    case PositionKind::t5:
      return t5();
    case PositionKind::boxes_bias:
      return boxes_bias();
    case PositionKind::deberta:
      return deberta();
    case PositionKind::xlnet:
      return xlnet();
    case PositionKind::transformer_xl:
      return transformer_xl();
    case PositionKind::conformer:
      return conformer();
    case PositionKind::shaw:
      return shaw();
    case PositionKind::window_bias:
      return window_bias();
    case PositionKind::grid_bias:
      return grid_bias();
    case PositionKind::convolution:
      return convolution();
  }
  return std::nullopt;
}

std::string PositionReader::source(std::string_view what) const {
  return message(what, what == "default" ? " of model_type " : ", model_type ", model_type_);
}

std::optional<FoundInteger> PositionReader::given(std::string_view key, std::int64_t known) const {
  if (!key.empty()) {
    if (const std::optional<FoundInteger> found = find_integer(top_, {key})) return found;
  }
  if (known == 0) return std::nullopt;
  return FoundInteger{known, source()};
}

void PositionReader::put_integer(std::string_view name, std::string_view key, std::int64_t known) {
  if (const std::optional<FoundInteger> found = given(key, known))
    put(name, found->value, found->key);
}

void PositionReader::put_flag(std::string_view name, std::string_view key, bool known) {
  const std::optional<bool> flag = top_.flag(key);
  put(name, flag.value_or(known), flag ? top_.path_of(key) : source());
}

void PositionReader::put_width(std::string_view name) {
  // ALBERT and ELECTRA add positions before they widen the tokens.
  std::optional<FoundInteger> width = find_integer(top_, {"embedding_size"});
  if (!width) width = find_width(top_);
  if (width) put(name, width->value, width->key);
}

void PositionReader::put_heads() {
  if (const std::optional<FoundInteger> heads = find_heads(top_, side_))
    put("heads", heads->value, heads->key);
}

std::optional<PositionEncoding> PositionReader::learned() {
  if (!top_.flag("position_biased_input").value_or(true)) return std::nullopt;
  if (top_.flag("sinusoidal_embeddings").value_or(false))
    return sinusoidal(encodings::Sinusoidal::Variant::interleaved);
  if (!top_.flag("use_learned_position_embeddings").value_or(true))
    return sinusoidal(encodings::Sinusoidal::Variant::fairseq);
  start("learned_absolute", kInput);
  put_rows();
  put_width("dim");
  return std::move(made_);
}

void PositionReader::put_rows() {
  const std::optional<FoundInteger> length = given(facts_.length_key, facts_.length);
  const std::int64_t first = first_row();
  if (length) {
    put("rows", length->value + facts_.more_rows,
        facts_.more_rows == 0 ? length->key : message(length->key, " + ", facts_.more_rows));
  }
  put("first_row", first,
      facts_.after_padding ? (top_.has("pad_token_id") ? top_.path_of("pad_token_id") + " + 1"
                                                       : "pad_token_id + 1, " + source())
                           : message("model_type ", model_type_));
  if (!length) return;
  const std::int64_t positions = length->value + facts_.more_rows - first;
  if (positions < 1) {
    top_.refuse(facts_.length_key,
                message("must be larger than the first row ", first, ", got ", length->value));
  }
  put("positions", positions, first == 0 ? length->key : "rows - first_row");
}

std::int64_t PositionReader::first_row() const {
  if (!facts_.after_padding) return facts_.first_row;
  const std::int64_t padding = top_.integer("pad_token_id").value_or(facts_.padding_id);
  if (padding < 0 || padding > kMaxExtent) {
    top_.refuse("pad_token_id", message("must be from 0 to ", kMaxExtent, ", got ", padding));
  }
  return padding + 1;
}

std::optional<PositionEncoding> PositionReader::bert() {
  constexpr std::string_view kKey = "position_embedding_type";
  const std::string type = top_.text(kKey).value_or("absolute");
  if (type == "absolute") return learned();
  if (type == "alibi") {
    std::optional<PositionEncoding> made = alibi(8.0, source("the paper's 8"));
    made->parameters.push_back({"range", std::string("bidirectional"), top_.path_of(kKey)});
    return made;
  }
  if (type != "relative_key" && type != "relative_key_query") {
    top_.refuse_as(ErrorCode::unsupported, kKey,
                   message("must be absolute, relative_key, relative_key_query or alibi, got ",
                           shown(top_.value(kKey))));
  }
  start("bert_relative", kScores);
  put_text("kind", type == "relative_key" ? "key" : "key_query", top_.path_of(kKey));
  if (const std::optional<FoundInteger> length = given(facts_.length_key, facts_.length)) {
    put("max_positions", length->value, length->key);
    put("rows", 2 * length->value - 1, message("2 ", length->key, " - 1"));
  }
  put_heads();
  return std::move(made_);
}

std::optional<Extent> PositionReader::extent(std::string_view key) const {
  const Json& value = top_.value(key);
  if (value.is_null()) return std::nullopt;
  const auto in_range = [&](std::int64_t number) {
    if (number < 1 || number > kMaxExtent)
      top_.refuse(key, message("must be from 1 to ", kMaxExtent, ", got ", number));
    return number;
  };
  if (!value.is_array()) {
    const std::int64_t both = in_range(top_.integer(key).value_or(0));
    return Extent{both, both, top_.path_of(key)};
  }
  const std::vector<std::int64_t> sides = *top_.integers(key);
  if (sides.size() != 2) {
    top_.refuse(key, message("must be an integer or two, got ", shown(value)));
  }
  return Extent{in_range(sides[0]), in_range(sides[1]), top_.path_of(key)};
}

std::optional<Extent> PositionReader::grid() const {
  const std::optional<Extent> image = extent("image_size"), patch = extent("patch_size");
  if (!image || !patch) return std::nullopt;
  return Extent{image->height / patch->height, image->width / patch->width,
                image->key + " / " + patch->key};
}

std::optional<PositionEncoding> PositionReader::patches() {
  if (!top_.flag("use_absolute_position_embeddings").value_or(true)) return std::nullopt;
  start("learned_absolute", kInput);
  if (const std::optional<Extent> patches = grid()) {
    put("rows", patches->height * patches->width + facts_.more_rows,
        facts_.more_rows == 0 ? "grid_height grid_width"
                              : message("grid_height grid_width + ", facts_.more_rows));
    put("grid_height", patches->height, patches->key);
    put("grid_width", patches->width, patches->key);
  }
  put("class_rows", facts_.more_rows, message("model_type ", model_type_));
  put_width("dim");
  return std::move(made_);
}

std::optional<PositionEncoding> PositionReader::sinusoidal(encodings::Sinusoidal::Variant variant) {
  start("sinusoidal", kInput);
  put_width("dim");
  put("base", 10000.0, source("fixed"));
  put_text("variant", name_of(variant), message("model_type ", model_type_));
  put_text("order",
           facts_.cosines_first                                     ? "cos, sin"
           : variant == encodings::Sinusoidal::Variant::interleaved ? "sin, cos alternate"
                                                                    : "sin, cos",
           message("model_type ", model_type_));
  put("first_position", first_row(), message("model_type ", model_type_));
  if (const std::optional<FoundInteger> length = given(facts_.length_key, facts_.length))
    put("positions", length->value, length->key);
  return std::move(made_);
}

std::optional<PositionEncoding> PositionReader::axial() {
  if (!top_.flag("axial_pos_embds").value_or(true)) return learned();
  start("learned_axial", kInput);
  for (const auto& [name, key] :
       {std::pair{"shape", "axial_pos_shape"}, std::pair{"dims", "axial_pos_embds_dim"}}) {
    const std::optional<std::vector<double>> sizes = top_.numbers(key);
    if (sizes) put(name, *sizes, top_.path_of(key));
  }
  put_integer("positions", facts_.length_key, facts_.length);
  return std::move(made_);
}

std::optional<PositionEncoding> PositionReader::boxes() {
  start("learned_boxes", kInput);
  put_integer("rows", facts_.length_key, facts_.length);
  put_text("coordinates", "x, y, height, width", message("model_type ", model_type_));
  return std::move(made_);
}

std::optional<PositionEncoding> PositionReader::convolution() {
  start("convolution", kInput);
  // data2vec has several narrow convolutions.
  if (top_.has("conv_pos_kernel_size")) {
    put_integer("kernel", "conv_pos_kernel_size", 19);
    put_integer("layers", facts_.length_key, 5);
  } else {
    put_integer("kernel", facts_.length_key, facts_.length);
  }
  put_integer("groups", "num_conv_pos_embedding_groups", 16);
  return std::move(made_);
}

std::optional<FoundInteger> find_integer(const ObjectReader& top,
                                         std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    // Some configs have a number for each of their stages or parts.
    const Json& value_of_key = top.value(key);
    if (value_of_key.is_null() || value_of_key.is_array() || value_of_key.is_object()) continue;
    const std::int64_t value = *top.integer(key);
    if (value < 1 || value > kMaxExtent)
      top.refuse(key, message("must be from 1 to ", kMaxExtent, ", got ", value));
    return FoundInteger{value, top.path_of(key)};
  }
  return std::nullopt;
}

std::optional<FoundInteger> find_heads(const ObjectReader& top, PositionSide side) {
  if (side == PositionSide::decoder) {
    if (const auto found =
            find_integer(top, {"decoder_attention_heads", "num_decoder_attention_heads"}))
      return found;
  }
  if (side == PositionSide::encoder) {
    if (const auto found =
            find_integer(top, {"encoder_attention_heads", "num_encoder_attention_heads"}))
      return found;
  }
  return find_integer(top,
                      {"num_attention_heads", "n_head", "num_heads", "n_heads", "attention_heads"});
}

std::optional<FoundInteger> find_layers(const ObjectReader& top, PositionSide side) {
  if (side == PositionSide::decoder) {
    if (const auto found =
            find_integer(top, {"decoder_layers", "num_decoder_layers", "num_layers"}))
      return found;
  }
  if (side == PositionSide::encoder) {
    if (const auto found =
            find_integer(top, {"encoder_layers", "num_encoder_layers", "num_layers"}))
      return found;
  }
  return find_integer(top, {"num_hidden_layers", "n_layer", "num_layers", "n_layers", "layers",
                            "encoder_layers", "decoder_layers"});
}

std::optional<FoundInteger> find_width(const ObjectReader& top) {
  return find_integer(
      top, {"hidden_size", "n_embd", "d_model", "dim", "emb_dim", "n_embed", "embed_dim"});
}

std::optional<PositionEncoding> read_position_encoding(const ObjectReader& top,
                                                       std::string_view model_type,
                                                       const PositionFacts& facts,
                                                       PositionSide side) {
  return PositionReader(top, model_type, facts, side).read();
}

double position_softmax_scale(const PositionEncoding& encoding, std::int64_t head_dim) {
  if (encoding.name == "t5") return 1.0;
  if (encoding.name != "deberta" || head_dim == 0) return 0.0;
  for (const PositionParameter& parameter : encoding.parameters) {
    if (parameter.name == "terms") {
      const auto terms = static_cast<double>(std::get<std::int64_t>(parameter.value));
      return 1.0 / std::sqrt(static_cast<double>(head_dim) * terms);
    }
  }
  return 0.0;
}

}  // namespace phasor::config
