#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "config/encoding/tables.hpp"
#include "phasor/config/config.hpp"
#include "phasor/config/encoding.hpp"
#include "phasor/config/internal/json_reader.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"

namespace phasor::config {
namespace {

using encodings::Alibi;
using encodings::BertRelative;
using encodings::BucketRange;
using encodings::Deberta;
using encodings::Encoding;
using encodings::Kerple;
using encodings::NoEncoding;
using encodings::RopeSpec;
using encodings::Shaw;
using encodings::SlopeOrder;
using encodings::T5;
using encodings::Table;
using encodings::TransformerXl;
using encodings::Tupe;
using encodings::Xlnet;

constexpr TableAxes kSharedRows{"rd", "[relative, dim]"};
constexpr TableAxes kHeadRows{"hrd", "[head, relative, dim]"};
constexpr TableAxes kRowHeads{"rhd", "[relative, head, dim]"};
constexpr TableAxes kHeadDim{"hd", "[head, dim]"};
constexpr TableAxes kHeads{"h", "[head]"};
constexpr TableAxes kBuckets{"rh", "[bucket, head]"};
constexpr TableAxes kTokens{"hrd", "[head, seq, dim]"};
constexpr TableAxes kSegments{"rhd", "[2, head, dim]"};

// What the readers of one encoding share.
struct Draft {
  LoadedEncoding& loaded;
  TableReader& tables;
  const std::filesystem::path& folder;
  const EncodingRequest& request;

  [[nodiscard]] std::optional<std::int64_t> head_dim() const {
    return request.shape ? std::optional(request.shape->head_dim) : std::nullopt;
  }
};

using Reader = Encoding (*)(const ObjectReader&, Draft&);

// An optional number that repeats a size of a table: they must agree.
void check_stated(const ObjectReader& reader, std::string_view key, std::int64_t found,
                  std::string_view of) {
  const std::optional<std::int64_t> stated = reader.integer(key);
  if (stated && *stated != found)
    reader.refuse(key, message("must be the ", found, " of ", of, ", got ", *stated));
}

// An optional flag that repeats whether tables are given: they must agree.
void check_flag(const ObjectReader& reader, std::string_view key, bool found, std::string_view of) {
  const std::optional<bool> stated = reader.flag(key);
  if (stated && *stated != found) {
    reader.refuse(key, message("must be ", found ? "true with " : "false without ", of, ", got ",
                               *stated ? "true" : "false"));
  }
}

Encoding read_none(const ObjectReader& reader, Draft& /*draft*/) {
  reader.refuse_rest("encoding, scale");
  return NoEncoding{};
}

// A rope from the text of a config.json or a plain spec.
Encoding rope_of(const ModelConfig& model, const std::string& layer, Draft& draft) {
  if (model.rotates_values) {
    throw Error(ErrorCode::unsupported,
                "rotary_value: true is not supported: attention rotates queries and keys only");
  }
  if (!model.other_positions.empty()) {
    throw Error(ErrorCode::unsupported,
                message("model_type ", model.model_type, " has ", model.other_positions,
                        ", which its config.json does not describe: write the encoding itself"));
  }
  LayerGroup group = select_layer(model, layer).value_or_throw();
  if (const std::optional<encodings::QueryScale>& scale = group.query_scale) {
    throw Error(
        ErrorCode::unsupported,
        message("queries are scaled by position (beta ", scale->beta, ", length ", scale->length,
                "), which attention does not do: multiply them by query_scales() and use "
                "the plain spec of the rotation"));
  }
  if (!group.rope) return NoEncoding{};
  // Some models multiply q.k by more than 1/sqrt(head_dim): DeepSeek with YaRN.
  const double own = 1.0 / std::sqrt(static_cast<double>(group.rope->head_dim));
  constexpr double kRounding = 1e-12;
  if (group.softmax_scale > 0.0 && std::abs(group.softmax_scale - own) > kRounding * own)
    draft.loaded.scale = group.softmax_scale;
  return std::move(*group.rope);
}

[[nodiscard]] core::PairLayout layout_of(const ObjectReader& reader, const std::string& name) {
  const std::optional<core::PairLayout> layout = core::pair_layout_of(name);
  if (!layout) {
    reader.refuse("layout",
                  message("must be interleaved, half or interleaved_to_half, got \"", name, "\""));
  }
  return *layout;
}

Encoding read_rope(const ObjectReader& reader, Draft& draft) {
  const Json& config = reader.value("config");
  if (config.is_null()) {
    Json spec = Json::object();
    for (const std::string& key : reader.keys()) {
      if (key != "encoding" && key != "scale" && key != "layer") spec[key] = reader.value(key);
    }
    if (!spec.contains("head_dim") && !spec.contains("hidden_size") && draft.head_dim())
      spec["head_dim"] = *draft.head_dim();
    const ModelConfig model = parse_config(spec.dump(), reader.path_of("rope")).value_or_throw();
    return rope_of(model, reader.text("layer").value_or(draft.request.layer), draft);
  }
  reader.mark_understood("config");
  if (!config.is_object() && !config.is_string())
    reader.refuse("config", message("must be an object or a file name, got ", shown(config)));
  Result<ModelConfig> model = config.is_string()
                                  ? read_config(file_named(reader, "config", draft.folder))
                                  : parse_config(config.dump(), reader.path_of("config"));
  Encoding encoding = rope_of(std::move(model).value_or_throw(),
                              reader.text("layer").value_or(draft.request.layer), draft);
  if (const std::optional<std::string> name = reader.text("layout")) {
    const core::PairLayout layout = layout_of(reader, *name);
    auto* spec = std::get_if<RopeSpec>(&encoding);
    if (spec != nullptr && spec->layout && *spec->layout != layout) {
      reader.refuse("layout", message("must be the config's ", core::name_of(*spec->layout),
                                      ", got ", *name));
    }
    if (spec != nullptr) spec->layout = layout;
  }
  reader.refuse_rest("encoding, config, layer, layout, scale");
  return encoding;
}

Encoding read_xpos(const ObjectReader& reader, Draft& draft) {
  Json spec = {{"xpos", Json::object()}};
  for (const char* key : {"head_dim", "rotary_dim", "base", "layout"}) {
    reader.mark_understood(key);
    if (reader.has(key)) spec[key] = reader.value(key);
  }
  for (const char* key : {"scale_base", "gamma", "centre"}) {
    reader.mark_understood(key);
    if (reader.has(key)) spec["xpos"][key] = reader.value(key);
  }
  reader.refuse_rest(
      "encoding, head_dim, rotary_dim, base, layout, scale_base, gamma, centre, scale");
  if (!spec.contains("head_dim") && draft.head_dim()) spec["head_dim"] = *draft.head_dim();
  return rope_of(parse_config(spec.dump(), reader.path_of("xpos")).value_or_throw(), "", draft);
}

Encoding read_alibi(const ObjectReader& reader, Draft& draft) {
  Alibi alibi;
  alibi.max_bias = reader.number("max_bias").value_or(alibi.max_bias);
  const std::optional<std::vector<double>> slopes = reader.numbers("slopes");
  const std::optional<std::string> order = reader.text("order");
  if (order && *order != "bloom" && *order != "mpt")
    reader.refuse("order", message("must be bloom or mpt, got \"", *order, "\""));
  if (slopes && (order || reader.has("max_bias")))
    reader.refuse("slopes", "cannot be combined with max_bias or order");
  if (slopes && slopes->empty()) reader.refuse("slopes", "the list is empty: one slope per head");
  if (slopes) draft.loaded.slopes = *slopes;
  if (order) draft.loaded.slope_order = *order == "mpt" ? SlopeOrder::mpt : SlopeOrder::bloom;
  reader.refuse_rest("encoding, max_bias, order, slopes, scale");
  return alibi;
}

Encoding read_kerple(const ObjectReader& reader, Draft& draft) {
  Kerple kerple;
  kerple.r1 = draft.tables.required(reader, "r1", {kHeads});
  kerple.r2 = draft.tables.required(reader, "r2", {kHeads});
  reader.refuse_rest("encoding, r1, r2, scale");
  return kerple;
}

[[nodiscard]] T5 read_buckets(const ObjectReader& reader, std::string_view table, Draft& draft) {
  T5 t5;
  t5.bias = draft.tables.required(reader, table, {kBuckets});
  check_stated(reader, "num_buckets", t5.bias.rows, table);
  t5.max_distance = reader.integer("max_distance").value_or(t5.max_distance);
  t5.range = reader.flag("bidirectional").value_or(true) ? BucketRange::bidirectional
                                                         : BucketRange::past_only;
  return t5;
}

Encoding read_t5(const ObjectReader& reader, Draft& draft) {
  const T5 t5 = read_buckets(reader, "relative_attention_bias", draft);
  reader.refuse_rest(
      "encoding, relative_attention_bias, num_buckets, max_distance, bidirectional, scale");
  return t5;
}

Encoding read_shaw(const ObjectReader& reader, Draft& draft) {
  Shaw shaw;
  const std::optional<std::int64_t> clip = reader.integer("clip");
  const std::optional<std::int64_t> left = reader.integer("left"), right = reader.integer("right");
  if (clip.has_value() == (left && right) || left.has_value() != right.has_value())
    reader.refuse("clip", "give either clip, or left and right");
  shaw.left = clip ? *clip : *left;
  shaw.right = clip ? *clip : *right;
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  for (const std::int64_t reach : {shaw.left, shaw.right}) {
    if (reach < 0 || reach > kMost) {
      reader.refuse(clip ? "clip" : "left", message("must be from 0 to ", kMost, ", got ", reach));
    }
  }
  const auto rows = [&](std::string_view key) -> Table {
    if (const auto waves = draft.tables.sinusoidal(reader, key, draft.head_dim())) {
      // Row r is the distance n - m = r - left.
      return draft.tables.rows_of(*waves, {-shaw.left, shaw.left + 1 + shaw.right, 1});
    }
    return draft.tables.table(reader, key, {kSharedRows, kHeadRows});
  };
  shaw.keys = rows("rel_k");
  shaw.values = rows("rel_v");
  if (!shaw.keys.given() && !shaw.values.given())
    reader.refuse("rel_k", "rel_k and rel_v are both missing");
  reader.refuse_rest("encoding, clip, left, right, rel_k, rel_v, scale");
  return shaw;
}

Encoding read_bert(const ObjectReader& reader, Draft& draft) {
  BertRelative bert;
  bert.rows = draft.tables.required(reader, "distance_embedding", {kSharedRows, kHeadRows});
  if (bert.rows.rows % 2 == 0) {
    reader.refuse_as(ErrorCode::shape_mismatch, "distance_embedding",
                     message("must have 2 max_position_embeddings - 1 rows, got ", bert.rows.rows));
  }
  bert.max_positions = (bert.rows.rows + 1) / 2;
  check_stated(reader, "max_position_embeddings", bert.max_positions, "distance_embedding");
  const std::string kind = reader.text("position_embedding_type").value_or("relative_key");
  if (kind != "relative_key" && kind != "relative_key_query") {
    reader.refuse("position_embedding_type",
                  message("must be relative_key or relative_key_query, got \"", kind, "\""));
  }
  bert.kind = kind == "relative_key" ? BertRelative::Kind::key : BertRelative::Kind::key_query;
  reader.refuse_rest(
      "encoding, distance_embedding, max_position_embeddings, position_embedding_type, scale");
  return bert;
}

// The names of the same tables in Transformer-XL, Conformer and XLNet.
struct RelativeNames {
  std::string_view u, v, rows;
};

// `default_first` is the distance of the first row for a table with this many rows.
TransformerXl read_relative(const ObjectReader& reader, const RelativeNames& names, Draft& draft,
                            std::optional<std::int64_t> (*default_first)(std::int64_t rows,
                                                                         const Draft& draft)) {
  TransformerXl relative;
  relative.u = draft.tables.table(reader, names.u, {kHeadDim});
  relative.v = draft.tables.table(reader, names.v, {kHeadDim});
  const std::optional<std::int64_t> first = reader.integer("first_distance");
  if (const auto waves = draft.tables.sinusoidal(reader, names.rows, draft.head_dim())) {
    if (first || !draft.request.shape) {
      reader.refuse("first_distance",
                    first ? message("cannot be combined with sinusoidal rows, got ", *first)
                          : "sinusoidal rows need the number of tokens");
    }
    // From the farthest past key to the farthest future key.
    const encodings::Distances distances = encodings::distances_of(*draft.request.shape);
    relative.first_distance = distances.last;
    relative.rows = draft.tables.rows_of(*waves, {relative.first_distance, distances.count(), -1});
    return relative;
  }
  relative.rows = draft.tables.required(reader, names.rows, {kSharedRows, kRowHeads});
  const std::optional<std::int64_t> fallback = default_first(relative.rows.rows, draft);
  if (!first && !fallback)
    reader.refuse("first_distance", "missing key: the distance of the first row");
  relative.first_distance = first ? *first : *fallback;
  return relative;
}

Encoding read_transformer_xl(const ObjectReader& reader, Draft& draft) {
  const TransformerXl relative =
      read_relative(reader, {"u_bias", "v_bias", "r_head"}, draft,
                    [](std::int64_t rows, const Draft&) { return std::optional(rows - 1); });
  reader.refuse_rest("encoding, u_bias, v_bias, r_head, first_distance, scale");
  return relative;
}

Encoding read_conformer(const ObjectReader& reader, Draft& draft) {
  const TransformerXl relative = read_relative(
      reader, {"pos_bias_u", "pos_bias_v", "pos_proj"}, draft, [](std::int64_t rows, const Draft&) {
        return rows % 2 == 1 ? std::optional((rows - 1) / 2) : std::nullopt;
      });
  reader.refuse_rest("encoding, pos_bias_u, pos_bias_v, pos_proj, first_distance, scale");
  return relative;
}

Encoding read_xlnet(const ObjectReader& reader, Draft& draft) {
  Xlnet xlnet;
  xlnet.relative = read_relative(
      reader, {"r_w_bias", "r_r_bias", "k_head_r"}, draft, [](std::int64_t, const Draft& of) {
        return of.request.shape ? std::optional(of.request.shape->key_tokens) : std::nullopt;
      });
  xlnet.segment_rows = draft.tables.table(reader, "seg_embed", {kSegments});
  xlnet.segment_bias = draft.tables.table(reader, "r_s_bias", {kHeadDim});
  if (xlnet.segment_bias.given() && !xlnet.segment_rows.given())
    reader.refuse("seg_embed", "missing key: r_s_bias needs it");
  reader.refuse_rest(
      "encoding, r_w_bias, r_r_bias, k_head_r, r_s_bias, seg_embed, first_distance, scale");
  return xlnet;
}

Deberta read_deberta(const ObjectReader& reader, Deberta::Version version, Draft& draft) {
  Deberta deberta;
  deberta.version = version;
  deberta.keys = draft.tables.table(reader, "pos_k", {kHeadRows, kSharedRows});
  deberta.queries = draft.tables.table(reader, "pos_q", {kHeadRows, kSharedRows});
  if (const auto types = reader.texts("pos_att_type")) {
    for (const std::string& type : *types) {
      if (type != "c2p" && type != "p2c")
        reader.refuse("pos_att_type", message("must be c2p or p2c, got \"", type, "\""));
    }
    const auto has = [&](const char* type) {
      return std::find(types->begin(), types->end(), type) != types->end();
    };
    if (has("c2p") != deberta.keys.given())
      reader.refuse("pos_k", deberta.keys.given() ? "a table, but pos_att_type has no c2p"
                                                  : "missing key: c2p needs a table");
    if (has("p2c") != deberta.queries.given())
      reader.refuse("pos_q", deberta.queries.given() ? "a table, but pos_att_type has no p2c"
                                                     : "missing key: p2c needs a table");
  }
  deberta.max_relative_positions = reader.required_integer("max_relative_positions");
  if (version == Deberta::Version::v2)
    deberta.position_buckets = reader.integer("position_buckets").value_or(0);
  reader.refuse_rest(version == Deberta::Version::v2
                         ? "encoding, pos_k, pos_q, pos_att_type, max_relative_positions, "
                           "position_buckets, scale"
                         : "encoding, pos_k, pos_q, pos_att_type, max_relative_positions, scale");
  return deberta;
}

Encoding read_deberta_v1(const ObjectReader& reader, Draft& draft) {
  return read_deberta(reader, Deberta::Version::v1, draft);
}
Encoding read_deberta_v2(const ObjectReader& reader, Draft& draft) {
  return read_deberta(reader, Deberta::Version::v2, draft);
}

Encoding read_tupe(const ObjectReader& reader, Draft& draft) {
  Tupe tupe;
  tupe.query_positions = draft.tables.required(reader, "pos_q", {kTokens});
  tupe.key_positions = draft.tables.required(reader, "pos_k", {kTokens});
  if (reader.has("bias_table")) {
    tupe.bias = read_buckets(reader, "bias_table", draft);
  } else {
    for (const char* key : {"num_buckets", "max_distance", "bidirectional"}) {
      // Files may have them without a bias; then they have no effect.
      reader.mark_understood(key);
    }
  }
  check_flag(reader, "relative_bias", tupe.bias.has_value(), "bias_table");
  tupe.first_row = draft.tables.table(reader, "theta1", {kHeads});
  tupe.first_column = draft.tables.table(reader, "theta2", {kHeads});
  if (tupe.first_row.given() != tupe.first_column.given())
    reader.refuse("theta1", "theta1 and theta2 need each other: one is missing");
  check_flag(reader, "reset_cls", tupe.first_row.given(), "theta1 and theta2");
  reader.refuse_rest(
      "encoding, pos_q, pos_k, bias_table, num_buckets, max_distance, bidirectional, "
      "relative_bias, theta1, theta2, reset_cls, scale");
  return tupe;
}

const std::map<std::string, Reader, std::less<>>& readers() {
  static const std::map<std::string, Reader, std::less<>> kReaders = {
      {"none", read_none},
      {"rope", read_rope},
      {"xpos", read_xpos},
      {"alibi", read_alibi},
      {"kerple", read_kerple},
      {"t5", read_t5},
      {"shaw", read_shaw},
      {"bert_relative", read_bert},
      {"transformer_xl", read_transformer_xl},
      {"conformer_relative", read_conformer},
      {"xlnet", read_xlnet},
      {"deberta_v1", read_deberta_v1},
      {"deberta_v2", read_deberta_v2},
      {"tupe", read_tupe},
  };
  return kReaders;
}

[[nodiscard]] Encoding read_one(const ObjectReader& reader, Draft& draft) {
  constexpr std::array<std::string_view, 5> kAddedToInput = {
      "sinusoidal", "learned", "learned_absolute", "hierarchical", "hierarchical_absolute"};
  const std::optional<std::string> name = reader.text("encoding");
  if (!name) reader.refuse("encoding", "missing key: the name of an encoding");
  if (std::find(kAddedToInput.begin(), kAddedToInput.end(), *name) != kAddedToInput.end()) {
    reader.refuse_as(ErrorCode::unsupported, "encoding",
                     message(*name,
                             " is added to the input before the projections: it is not an "
                             "encoding of attention"));
  }
  const auto found = readers().find(*name);
  if (found == readers().end()) {
    std::vector<std::string_view> known;
    for (const auto& entry : readers()) known.push_back(entry.first);
    reader.refuse("encoding", message("must be ", core::list_text(known), ", got \"", *name, "\"",
                                      core::did_you_mean(*name, known)));
  }
  return found->second(reader, draft);
}

void read_scale(const ObjectReader& reader, LoadedEncoding& loaded) {
  const std::optional<double> scale = reader.number("scale");
  if (!scale) return;
  if (!std::isfinite(*scale)) reader.refuse("scale", message("must be finite, got ", *scale));
  loaded.scale = scale;
}

void read_list(const ObjectReader& top, const Json& list, Draft& draft) {
  if (list.empty()) top.refuse("encoding", "the list is empty");
  top.mark_understood("encoding");
  for (std::size_t index = 0; index < list.size(); ++index) {
    const std::string path = message("encoding[", index, "]");
    if (!list[index].is_object())
      throw Error(ErrorCode::invalid_argument,
                  message(path, ": must be an object, got ", shown(list[index])));
    const ObjectReader reader(list[index], path);
    // One factor holds for the whole score.
    if (reader.has("scale")) reader.refuse("scale", "belongs outside the list");
    draft.loaded.parts.push_back(read_one(reader, draft));
  }
}

}  // namespace

Result<LoadedEncoding> parse_encoding(std::string_view text, const std::filesystem::path& folder,
                                      std::string_view name, const EncodingRequest& request) {
  try {
    const Json object = parse_object(text);
    const ObjectReader top(object);
    LoadedEncoding loaded;
    TableReader tables(folder, request.tables, loaded);
    Draft draft{loaded, tables, folder, request};
    if (!top.has_even_null("encoding")) {
      const Result<ModelConfig> model = parse_config(text, name);
      // Its message has the name in front already.
      if (!model) return model.error();
      loaded.parts.push_back(rope_of(*model, request.layer, draft));
      return loaded;
    }
    const Json& named = top.value("encoding");
    if (named.is_array()) {
      read_list(top, named, draft);
      read_scale(top, loaded);
      top.refuse_rest("encoding, scale");
    } else {
      // Marked before the encoding lists what it does not know.
      top.mark_understood("scale");
      loaded.parts.push_back(read_one(top, draft));
      read_scale(top, loaded);
    }
    return loaded;
  } catch (const Error& error) {
    return Error(error.code(), message(name, ": ", error.what()));
  }
}

Result<LoadedEncoding> read_encoding(const std::filesystem::path& path,
                                     const EncodingRequest& request) {
  std::error_code ignored;
  const std::filesystem::path file =
      std::filesystem::is_directory(path, ignored) ? io::as_folder(path) / "config.json" : path;
  const Result<std::string> text = io::read_text(file);
  if (!text) return text.error();
  return parse_encoding(*text, file.parent_path(), file.string(), request);
}

encodings::ScoreTerms resolve(const LoadedEncoding& loaded,
                              const encodings::AttentionShape& shape) {
  encodings::ScoreTerms terms =
      loaded.parts.size() == 1 ? encodings::resolve(loaded.parts.front(), shape)
                               : encodings::resolve(std::span(loaded.parts), shape, loaded.scale);
  if (loaded.scale) terms.scale = *loaded.scale;
  if (!loaded.slopes.empty()) terms.slopes = loaded.slopes;
  if (loaded.slope_order) {
    for (const Encoding& part : loaded.parts) {
      if (const auto* alibi = std::get_if<Alibi>(&part))
        terms.slopes = encodings::alibi_slopes(shape.heads, alibi->max_bias, *loaded.slope_order);
    }
  }
  encodings::validate(terms, shape);
  return terms;
}

}  // namespace phasor::config
