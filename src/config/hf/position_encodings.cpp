#include "config/hf/position_encodings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace phasor::config {
namespace {

// Far more heads than any model has; keeps a damaged config from filling the memory.
constexpr std::int64_t kMaxHeads = 100000;
// The same of rows of a table: products of them stay exact.
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 30;

constexpr std::string_view kInput = "input", kScores = "scores";

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

// Two numbers: an integer stands for both, an image has height and width.
struct Extent {
  std::int64_t height = 0, width = 0;
  std::string key;
};

class PositionReader {
 public:
  PositionReader(const ObjectReader& top, std::string_view model_type, const PositionFacts& facts,
                 PositionSide side)
      : top_(top), model_type_(model_type), facts_(facts), side_(side) {}

  [[nodiscard]] std::optional<PositionEncoding> read() {
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

 private:
  using Value = decltype(PositionParameter::value);

  void start(std::string_view name, std::string_view acts_on) {
    made_ = PositionEncoding{std::string(name), std::string(acts_on), {}};
  }
  void put(std::string_view name, Value value, std::string key) {
    made_.parameters.push_back({std::string(name), std::move(value), std::move(key)});
  }
  void put_text(std::string_view name, std::string_view value, std::string key) {
    put(name, std::string(value), std::move(key));
  }
  [[nodiscard]] std::string source(std::string_view what = "default") const {
    return message(what, what == "default" ? " of model_type " : ", model_type ", model_type_);
  }
  // An integer of the config, or the family's; nullopt: neither.
  [[nodiscard]] std::optional<FoundInteger> given(std::string_view key, std::int64_t known) const {
    if (!key.empty()) {
      if (const std::optional<FoundInteger> found = find_integer(top_, {key})) return found;
    }
    if (known == 0) return std::nullopt;
    return FoundInteger{known, source()};
  }
  void put_integer(std::string_view name, std::string_view key, std::int64_t known) {
    if (const std::optional<FoundInteger> found = given(key, known))
      put(name, found->value, found->key);
  }
  void put_flag(std::string_view name, std::string_view key, bool known) {
    const std::optional<bool> flag = top_.flag(key);
    put(name, flag.value_or(known), flag ? top_.path_of(key) : source());
  }
  void put_width(std::string_view name) {
    // ALBERT and ELECTRA add positions before they widen the tokens.
    std::optional<FoundInteger> width = find_integer(top_, {"embedding_size"});
    if (!width) width = find_width(top_);
    if (width) put(name, width->value, width->key);
  }
  void put_heads() {
    if (const std::optional<FoundInteger> heads = find_heads(top_, side_))
      put("heads", heads->value, heads->key);
  }

  [[nodiscard]] std::optional<PositionEncoding> learned() {
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

  // Rows of the table, the row of position 0, and the positions that have a row.
  void put_rows() {
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
  [[nodiscard]] std::int64_t first_row() const {
    if (!facts_.after_padding) return facts_.first_row;
    const std::int64_t padding = top_.integer("pad_token_id").value_or(facts_.padding_id);
    if (padding < 0 || padding > kMaxExtent) {
      top_.refuse("pad_token_id", message("must be from 0 to ", kMaxExtent, ", got ", padding));
    }
    return padding + 1;
  }

  [[nodiscard]] std::optional<PositionEncoding> bert() {
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

  [[nodiscard]] std::optional<Extent> extent(std::string_view key) const {
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
  // Height and width of the grid of patches.
  [[nodiscard]] std::optional<Extent> grid() const {
    const std::optional<Extent> image = extent("image_size"), patch = extent("patch_size");
    if (!image || !patch) return std::nullopt;
    return Extent{image->height / patch->height, image->width / patch->width,
                  image->key + " / " + patch->key};
  }

  [[nodiscard]] std::optional<PositionEncoding> patches() {
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

  [[nodiscard]] std::optional<PositionEncoding> sinusoidal(encodings::Sinusoidal::Variant variant) {
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

  [[nodiscard]] std::optional<PositionEncoding> axial() {
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

  [[nodiscard]] std::optional<PositionEncoding> boxes() {
    start("learned_boxes", kInput);
    put_integer("rows", facts_.length_key, facts_.length);
    put_text("coordinates", "x, y, height, width", message("model_type ", model_type_));
    return std::move(made_);
  }

  [[nodiscard]] std::optional<PositionEncoding> alibi(double max_bias, std::string from) {
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

  [[nodiscard]] std::optional<PositionEncoding> mpt() {
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
    const std::optional<double> bias =
        attention ? attention->number("alibi_bias_max") : std::nullopt;
    std::optional<PositionEncoding> made =
        alibi(bias.value_or(8.0), bias ? attention->path_of("alibi_bias_max") : source());
    if (const std::optional<FoundInteger> length = given(facts_.length_key, facts_.length))
      made->parameters.push_back({"trained_length", length->value, length->key});
    return made;
  }

  [[nodiscard]] std::optional<PositionEncoding> t5() {
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

  // Word boxes: the distance in the text, and those of the left and lower edges.
  [[nodiscard]] std::optional<PositionEncoding> boxes_bias() {
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

  // "c2p|p2c", or a list of the two.
  [[nodiscard]] std::vector<std::string> attention_terms() const {
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

  [[nodiscard]] std::optional<PositionEncoding> deberta() {
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

  void put_terms_of_transformer_xl(std::int64_t clamp) {
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

  [[nodiscard]] std::optional<PositionEncoding> transformer_xl() {
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

  [[nodiscard]] std::optional<PositionEncoding> xlnet() {
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

  [[nodiscard]] std::optional<PositionEncoding> conformer() {
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

  [[nodiscard]] std::optional<PositionEncoding> shaw() {
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

  [[nodiscard]] std::optional<PositionEncoding> window_bias() {
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

  [[nodiscard]] std::optional<PositionEncoding> grid_bias() {
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
    put_text(
        "table", own ? "one per layer" : "one for all layers",
        top_.path_of(own ? "use_relative_position_bias" : "use_shared_relative_position_bias"));
    return std::move(made_);
  }

  [[nodiscard]] std::optional<PositionEncoding> convolution() {
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

  const ObjectReader& top_;
  std::string model_type_;
  const PositionFacts& facts_;
  PositionSide side_;
  PositionEncoding made_;
};

}  // namespace

std::optional<FoundInteger> find_integer(const ObjectReader& top,
                                         std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    // Some configs list a number for each of their stages.
    if (!top.has(key) || top.value(key).is_array()) continue;
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
