#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "config/encoding/readers.hpp"
#include "phasor/config/config.hpp"
#include "phasor/config/encoding.hpp"
#include "phasor/config/internal/json_reader.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"

namespace phasor::config {
namespace {

using encodings::Alibi;
using encodings::Encoding;
using encodings::NoEncoding;
using encodings::RopeSpec;
using encodings::SlopeOrder;

using Reader = Encoding (*)(const ObjectReader&, Draft&);

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
