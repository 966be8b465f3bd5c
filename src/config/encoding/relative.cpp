// Readers of the encodings by distance: each trained table in the axes of its file.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "config/encoding/readers.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::config {
namespace {

using encodings::BertRelative;
using encodings::BucketRange;
using encodings::Deberta;
using encodings::Kerple;
using encodings::Shaw;
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

[[nodiscard]] T5 read_buckets(const ObjectReader& reader, std::string_view table, Draft& draft) {
  T5 t5;
  t5.bias = draft.tables.required(reader, table, {kBuckets});
  check_stated(reader, "num_buckets", t5.bias.rows, table);
  t5.max_distance = reader.integer("max_distance").value_or(t5.max_distance);
  t5.range = reader.flag("bidirectional").value_or(true) ? BucketRange::bidirectional
                                                         : BucketRange::past_only;
  return t5;
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

}  // namespace

encodings::Encoding read_kerple(const ObjectReader& reader, Draft& draft) {
  Kerple kerple;
  kerple.r1 = draft.tables.required(reader, "r1", {kHeads});
  kerple.r2 = draft.tables.required(reader, "r2", {kHeads});
  reader.refuse_rest("encoding, r1, r2, scale");
  return kerple;
}

encodings::Encoding read_t5(const ObjectReader& reader, Draft& draft) {
  const T5 t5 = read_buckets(reader, "relative_attention_bias", draft);
  reader.refuse_rest(
      "encoding, relative_attention_bias, num_buckets, max_distance, bidirectional, scale");
  return t5;
}

encodings::Encoding read_shaw(const ObjectReader& reader, Draft& draft) {
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

encodings::Encoding read_bert(const ObjectReader& reader, Draft& draft) {
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

encodings::Encoding read_transformer_xl(const ObjectReader& reader, Draft& draft) {
  const TransformerXl relative =
      read_relative(reader, {"u_bias", "v_bias", "r_head"}, draft,
                    [](std::int64_t rows, const Draft&) { return std::optional(rows - 1); });
  reader.refuse_rest("encoding, u_bias, v_bias, r_head, first_distance, scale");
  return relative;
}

encodings::Encoding read_conformer(const ObjectReader& reader, Draft& draft) {
  const TransformerXl relative = read_relative(
      reader, {"pos_bias_u", "pos_bias_v", "pos_proj"}, draft, [](std::int64_t rows, const Draft&) {
        return rows % 2 == 1 ? std::optional((rows - 1) / 2) : std::nullopt;
      });
  reader.refuse_rest("encoding, pos_bias_u, pos_bias_v, pos_proj, first_distance, scale");
  return relative;
}

encodings::Encoding read_xlnet(const ObjectReader& reader, Draft& draft) {
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

encodings::Encoding read_deberta_v1(const ObjectReader& reader, Draft& draft) {
  return read_deberta(reader, Deberta::Version::v1, draft);
}
encodings::Encoding read_deberta_v2(const ObjectReader& reader, Draft& draft) {
  return read_deberta(reader, Deberta::Version::v2, draft);
}

encodings::Encoding read_tupe(const ObjectReader& reader, Draft& draft) {
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

}  // namespace phasor::config
