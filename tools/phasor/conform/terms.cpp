#include "conform/terms.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "conform/rotary.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::tools {
namespace {

using encodings::Deberta;
using encodings::ScoreTermGradients;
using encodings::Table;
using encodings::TransformerXl;
using json = io::Json;

const std::vector<std::string> kHeadDim = {"head", "dim"};

Table table_input(const Case& golden, const std::string& name,
                  const std::vector<std::string>& dims = {}) {
  return table_of(golden.input(name), name, dims);
}

// The first of the names that the case has.
std::string present(const Case& golden, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (golden.inputs.contains(name)) return name;
  }
  return "";
}

CaseEncoding none(const Case& /*golden*/, const encodings::AttentionShape& /*shape*/) {
  return {encodings::NoEncoding{}, {}};
}

CaseEncoding rope(const Case& golden, const encodings::AttentionShape& shape) {
  json description = golden.json;
  if (!description.contains("config")) description["head_dim"] = shape.head_dim;
  return {spec_of(description, std::string(kCaseFile)), {}};
}

CaseEncoding xpos(const Case& golden, const encodings::AttentionShape& shape) {
  json description = golden.json;
  description["head_dim"] = shape.head_dim;
  encodings::RopeSpec spec = spec_of(description, std::string(kCaseFile));
  encodings::Xpos growth;
  growth.scale_base = member<double>(golden, "scale_base");
  growth.gamma = member<double>(golden, "gamma");
  growth.centre = member<double>(golden, "centre");
  spec.xpos = growth;
  return {std::move(spec), {}};
}

encodings::T5 buckets_of(const Case& golden, const std::string& table) {
  encodings::T5 t5;
  t5.bias = table_input(golden, table);
  const auto stated = optional_member<std::int64_t>(golden, "num_buckets");
  if (stated && *stated != t5.bias.rows) {
    refuse(ErrorCode::shape_mismatch,
           message(table, ": must have ", *stated, " buckets as in the case, got ", t5.bias.rows));
  }
  t5.max_distance = optional_member<std::int64_t>(golden, "max_distance").value_or(t5.max_distance);
  const bool both = optional_member<bool>(golden, "bidirectional").value_or(true);
  t5.range = both ? encodings::BucketRange::bidirectional : encodings::BucketRange::past_only;
  return t5;
}

CaseEncoding t5(const Case& golden, const encodings::AttentionShape& /*shape*/) {
  return {buckets_of(golden, "relative_attention_bias"),
          {{"relative_attention_bias", {&ScoreTermGradients::bias}}}};
}

CaseEncoding alibi(const Case& golden, const encodings::AttentionShape& /*shape*/) {
  encodings::Alibi alibi;
  alibi.max_bias = optional_member<double>(golden, "alibi_bias_max").value_or(alibi.max_bias);
  return {alibi, {}};
}

// r1 and r2 are in no term: the rows of the bias are computed from them.
CaseEncoding kerple(const Case& golden, const encodings::AttentionShape& /*shape*/) {
  return {encodings::Kerple{table_input(golden, "r1"), table_input(golden, "r2")},
          {{"r1", {}}, {"r2", {}}}};
}

CaseEncoding shaw(const Case& golden, const encodings::AttentionShape& /*shape*/) {
  encodings::Shaw shaw;
  CaseEncoding result;
  const auto clip = optional_member<std::int64_t>(golden, "clip");
  shaw.left = clip ? *clip : member<std::int64_t>(golden, "left");
  shaw.right = clip ? *clip : member<std::int64_t>(golden, "right");
  const std::string keys = present(golden, {"rel_k", "distance_embedding"});
  const std::string values = present(golden, {"rel_v"});
  if (!keys.empty()) {
    shaw.keys = table_input(golden, keys);
    result.trained.push_back({keys, {&ScoreTermGradients::query_rows}});
  }
  if (!values.empty()) {
    shaw.values = table_input(golden, values);
    result.trained.push_back({values, {&ScoreTermGradients::value_rows}});
  }
  result.encoding = shaw;
  return result;
}

CaseEncoding bert_relative(const Case& golden, const encodings::AttentionShape& /*shape*/) {
  encodings::BertRelative bert;
  bert.rows = table_input(golden, "distance_embedding");
  bert.max_positions = member<std::int64_t>(golden, "max_position_embeddings");
  TrainedInput trained{"distance_embedding", {&ScoreTermGradients::query_rows}};
  const auto kind = member<std::string>(golden, "position_embedding_type");
  if (kind == "relative_key_query") {
    bert.kind = encodings::BertRelative::Kind::key_query;
    trained.terms.push_back(&ScoreTermGradients::key_rows);
  } else if (kind != "relative_key") {
    refuse(ErrorCode::unsupported, message(kCaseFile,
                                           ": 'position_embedding_type' must be relative_key "
                                           "or relative_key_query, got ",
                                           kind));
  }
  return {bert, {std::move(trained)}};
}

CaseEncoding relative_rows(const Case& golden, const std::string& u, const std::string& v,
                           const std::string& rows, std::int64_t first_distance) {
  TransformerXl relative;
  CaseEncoding result;
  relative.rows = table_input(golden, rows);
  relative.first_distance = first_distance;
  result.trained.push_back({rows, {&ScoreTermGradients::query_rows}});
  if (golden.inputs.contains(u)) {
    relative.u = table_input(golden, u, kHeadDim);
    result.trained.push_back({u, {&ScoreTermGradients::content_bias}});
  }
  if (golden.inputs.contains(v)) {
    relative.v = table_input(golden, v, kHeadDim);
    result.trained.push_back({v, {&ScoreTermGradients::position_bias}});
  }
  result.encoding = relative;
  return result;
}

// Row p is the distance key_tokens - 1 - p.
CaseEncoding transformer_xl(const Case& golden, const encodings::AttentionShape& shape) {
  return relative_rows(golden, "u_bias", "v_bias", "r_head", shape.key_tokens - 1);
}

CaseEncoding conformer_relative(const Case& golden, const encodings::AttentionShape& shape) {
  return relative_rows(golden, "pos_bias_u", "pos_bias_v", "pos_proj", shape.key_tokens - 1);
}

CaseEncoding deberta(const Case& golden, Deberta::Version version) {
  Deberta deberta;
  CaseEncoding result;
  deberta.version = version;
  deberta.max_relative_positions = member<std::int64_t>(golden, "max_relative_positions");
  deberta.position_buckets = optional_member<std::int64_t>(golden, "position_buckets").value_or(0);
  for (const auto& type : member<std::vector<std::string>>(golden, "pos_att_type")) {
    if (type == "c2p") {
      deberta.keys = table_input(golden, "pos_k");
      result.trained.push_back({"pos_k", {&ScoreTermGradients::query_rows}});
    } else if (type == "p2c") {
      deberta.queries = table_input(golden, "pos_q");
      result.trained.push_back({"pos_q", {&ScoreTermGradients::key_rows}});
    } else {
      refuse(ErrorCode::unsupported,
             message(kCaseFile, ": 'pos_att_type' must be of c2p and p2c, got ", type));
    }
  }
  result.encoding = deberta;
  result.scale = CaseEncoding::Scale::divisor;
  return result;
}

CaseEncoding tupe(const Case& golden, const encodings::AttentionShape& /*shape*/) {
  encodings::Tupe tupe;
  CaseEncoding result;
  tupe.query_positions = table_input(golden, "pos_q");
  tupe.key_positions = table_input(golden, "pos_k");
  result.trained = {{"pos_q", {&ScoreTermGradients::extra_query}},
                    {"pos_k", {&ScoreTermGradients::extra_key}}};
  const bool given = golden.inputs.contains("bias_table");
  if (optional_member<bool>(golden, "relative_bias").value_or(given)) {
    tupe.bias = buckets_of(golden, "bias_table");
    result.trained.push_back({"bias_table", {&ScoreTermGradients::bias}});
  }
  const bool untied = golden.inputs.contains("theta1");
  if (optional_member<bool>(golden, "reset_cls").value_or(untied)) {
    tupe.first_row = table_input(golden, "theta1", {"head"});
    tupe.first_column = table_input(golden, "theta2", {"head"});
    result.trained.push_back({"theta1", {&ScoreTermGradients::first_row}});
    result.trained.push_back({"theta2", {&ScoreTermGradients::first_column}});
  }
  result.encoding = tupe;
  return result;
}

}  // namespace

Table table_of(const CaseArray& array, const std::string& name,
               const std::vector<std::string>& default_dims) {
  const std::vector<std::string>& dims = array.dims.empty() ? default_dims : array.dims;
  const std::vector<std::int64_t>& shape = array.data.shape;
  const auto other = [](const std::string& dim) { return dim != "head" && dim != "dim"; };
  const bool dim_inside = std::find(dims.begin(), dims.end(), "dim") != dims.end();
  if (array.data.type != io::NpyType::f32 || dims.size() != shape.size() || dims.empty() ||
      std::count_if(dims.begin(), dims.end(), other) > 1 || (dim_inside && dims.back() != "dim")) {
    refuse(ErrorCode::unsupported,
           fmt::format("{}: must be a float32 table of head, one axis of rows and dim, got {} "
                       "[{}] of shape {}",
                       name, io::name_of(array.data.type), fmt::join(dims, ", "),
                       core::shape_text(shape)));
  }
  Table table;
  table.data = array.data.as<float>();
  table.rows = table.dim = 1;
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (dims[axis] == "dim") {
      table.dim = shape[axis];
    } else if (dims[axis] == "head") {
      table.heads = shape[axis];
      table.head_stride = stride;
    } else {
      table.rows = shape[axis];
      table.row_stride = stride;
    }
    stride *= shape[axis];
  }
  if (table.row_stride == 0) table.row_stride = table.dim;
  return table;
}

CaseEncoding encoding_of(const Case& golden, const std::string& name,
                         const encodings::AttentionShape& shape) {
  using Maker = std::function<CaseEncoding(const Case&, const encodings::AttentionShape&)>;
  const auto deberta_of = [](Deberta::Version version) {
    return [version](const Case& of, const encodings::AttentionShape&) {
      return deberta(of, version);
    };
  };
  static const std::map<std::string, Maker> kMakers = {
      {"none", none},
      {"rope", rope},
      {"xpos", xpos},
      {"t5", t5},
      {"alibi", alibi},
      {"kerple", kerple},
      {"shaw", shaw},
      {"bert_relative", bert_relative},
      {"transformer_xl", transformer_xl},
      {"conformer_relative", conformer_relative},
      {"deberta_v1", deberta_of(Deberta::Version::v1)},
      {"deberta_v2", deberta_of(Deberta::Version::v2)},
      {"tupe", tupe},
  };
  const auto found = kMakers.find(name);
  if (found == kMakers.end()) {
    refuse(ErrorCode::unsupported, message(kCaseFile, ": unknown 'encoding' ", name));
  }
  return found->second(golden, shape);
}

}  // namespace phasor::tools
