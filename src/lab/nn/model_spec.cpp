#include "phasor/lab/internal/model_spec.hpp"

#include <array>
#include <cmath>

#include "phasor/config/config.hpp"
#include "phasor/config/internal/json_reader.hpp"
#include "phasor/config/internal/spec_json.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::lab {
namespace {

constexpr core::EnumNames<EncodingName::kerple> kEncodings("none", "sinusoidal", "learned",
                                                           "hierarchical", "rope", "xpos", "shaw",
                                                           "transformer_xl", "xlnet", "t5", "tupe",
                                                           "deberta", "alibi", "kerple");
constexpr core::EnumNames<Architecture::encoder_decoder> kArchitectures("encoder", "decoder",
                                                                        "encoder-decoder");
constexpr core::EnumNames<Style::llama> kStyles("roformer", "llama");
constexpr core::EnumNames<Head::classification> kHeads("language_model", "classification");
constexpr core::EnumNames<AttentionKind::linear> kKinds("softmax", "linear");
constexpr core::EnumNames<ModelSpec::Cross::rope> kCross("none", "rope");
constexpr core::EnumNames<ModelSpec::Output::own> kOutputs("tied", "own");
constexpr core::EnumNames<attention::FeatureMap::favor> kFeatures("elu", "softmax", "favor");
constexpr core::EnumNames<attention::Rotates::inputs> kRotates("features", "inputs");

template <auto kLast>
void read_choice(const config::ObjectReader& reader, std::string_view key,
                 const core::EnumNames<kLast>& names, typename core::EnumNames<kLast>::Enum& into) {
  const std::optional<std::string> text = reader.text(key);
  if (!text) return;
  const auto found = names.find(*text);
  if (!found) {
    reader.refuse(key, message("must be ", core::list_text(names.all()), ", got \"", *text, "\"",
                               core::did_you_mean(*text, names.all())));
  }
  into = *found;
}

void read_count(const config::ObjectReader& reader, std::string_view key, std::int64_t& into) {
  if (const auto value = reader.integer(key)) into = *value;
}

// The plain spec of the encoding's rotation: base and scaling are read and written by its rules.
[[nodiscard]] io::Json rope_json(std::int64_t head_dim, double base, const io::Json& scaling) {
  io::Json spec = io::Json::object();
  spec["head_dim"] = head_dim;
  spec["base"] = base;
  spec["layout"] = "half";
  if (!scaling.is_null()) spec["scaling"] = scaling;
  return spec;
}

[[nodiscard]] EncodingSpec read_encoding(const config::ObjectReader& model, std::int64_t head_dim) {
  EncodingSpec spec;
  if (!model.has("encoding")) return spec;
  if (model.value("encoding").is_string()) {
    read_choice(model, "encoding", kEncodings, spec.name);
    return spec;
  }
  const config::ObjectReader reader = *model.object("encoding");
  read_choice(reader, "name", kEncodings, spec.name);
  const auto has = [&](auto... names) { return ((spec.name == names) || ...); };
  if (has(EncodingName::rope, EncodingName::xpos, EncodingName::sinusoidal,
          EncodingName::transformer_xl, EncodingName::xlnet)) {
    if (const auto base = reader.number("base")) spec.base = *base;
  }
  if (has(EncodingName::rope) && reader.has("scaling")) {
    const std::string text = rope_json(head_dim, spec.base, reader.value("scaling")).dump();
    reader.mark_understood("scaling");
    const config::ModelConfig rope = config::parse_config(text, "model.encoding").value_or_throw();
    spec.scaling = rope.groups.front().rope->scaling;
  }
  if (has(EncodingName::shaw)) read_count(reader, "clip", spec.clip);
  if (has(EncodingName::t5, EncodingName::tupe)) read_count(reader, "buckets", spec.buckets);
  if (has(EncodingName::t5, EncodingName::tupe, EncodingName::deberta)) {
    read_count(reader, "max_distance", spec.max_distance);
  }
  if (has(EncodingName::hierarchical)) {
    if (const auto alpha = reader.number("alpha")) spec.alpha = *alpha;
  }
  reader.refuse_rest(
      "name, and what this encoding has of base, scaling, clip, buckets, "
      "max_distance, alpha");
  return spec;
}

[[nodiscard]] io::Json json_of(const EncodingSpec& spec) {
  const io::Json name = name_of(spec.name);
  io::Json json = io::Json::object();
  json["name"] = name;
  switch (spec.name) {
    case EncodingName::rope:
      json["base"] = spec.base;
      if (!std::holds_alternative<encodings::DefaultScaling>(spec.scaling)) {
        json["scaling"] = io::Json::object();
        json["scaling"]["type"] = encodings::name_of(spec.scaling);
        config::write_scaling_keys(spec.scaling, config::DefaultKeys::write, json["scaling"]);
      }
      return json;
    case EncodingName::xpos:
    case EncodingName::sinusoidal:
    case EncodingName::transformer_xl:
    case EncodingName::xlnet:
      json["base"] = spec.base;
      return json;
    case EncodingName::shaw:
      json["clip"] = spec.clip;
      return json;
    case EncodingName::t5:
    case EncodingName::tupe:
      json["buckets"] = spec.buckets;
      json["max_distance"] = spec.max_distance;
      return json;
    case EncodingName::deberta:
      json["max_distance"] = spec.max_distance;
      return json;
    case EncodingName::hierarchical:
      json["alpha"] = spec.alpha;
      return json;
    case EncodingName::none:
    case EncodingName::learned:
    case EncodingName::alibi:
    case EncodingName::kerple:
      return name;
  }
  return name;
}

void require_positive(std::string_view key, std::int64_t value) {
  if (value < 1) refuse(message("model: ", key, " must be at least 1, got ", value));
}

void require_multiple(std::string_view key, std::int64_t value, std::string_view of,
                      std::int64_t unit) {
  if (value % unit == 0) return;
  refuse(message("model: ", key, " must be a multiple of ", of, " ", unit, ", got ", value));
}

[[nodiscard]] bool adds_to_input(EncodingName name) noexcept {
  return name == EncodingName::sinusoidal || name == EncodingName::learned ||
         name == EncodingName::hierarchical;
}

void validate_combinations(const ModelSpec& spec) {
  const EncodingName name = spec.encoding.name;
  if (spec.attention == AttentionKind::linear && !adds_to_input(name) &&
      name != EncodingName::none && name != EncodingName::rope) {
    refuse(ErrorCode::unsupported,
           message("model: linear attention has no scores to add to: encoding must be none, rope, "
                   "sinusoidal, learned or hierarchical, got ",
                   name_of(name)));
  }
  if (spec.attention == AttentionKind::linear &&
      spec.architecture == Architecture::encoder_decoder) {
    refuse(ErrorCode::unsupported, "model: an encoder-decoder has softmax attention, got linear");
  }
  const bool counted =
      spec.attention == AttentionKind::linear && spec.features == attention::FeatureMap::favor;
  if (counted && (spec.feature_count < 2 || spec.feature_count % 2 != 0 ||
                  spec.feature_count > attention::kMaxFeatureCount)) {
    refuse(message("model: feature_count of favor must be even, from 2 to ",
                   attention::kMaxFeatureCount, ", got ", spec.feature_count));
  }
  if (!counted && spec.feature_count != 0) {
    refuse(message("model: feature_count is for linear attention with favor, got ",
                   spec.feature_count));
  }
  if (spec.head == Head::classification) {
    require_positive("labels", spec.labels);
    if (spec.architecture != Architecture::encoder || spec.style != Style::roformer) {
      refuse(ErrorCode::unsupported,
             message("model: classification needs a roformer encoder, got a ", name_of(spec.style),
                     " ", name_of(spec.architecture)));
    }
  }
  if (spec.architecture == Architecture::encoder && spec.style != Style::roformer) {
    refuse(ErrorCode::unsupported,
           message("model: an encoder has style roformer, got ", name_of(spec.style)));
  }
  if (spec.architecture != Architecture::encoder && spec.style != Style::llama) {
    refuse(ErrorCode::unsupported, message("model: a ", name_of(spec.architecture),
                                           " has style llama, got ", name_of(spec.style)));
  }
  if (spec.cross == ModelSpec::Cross::rope && spec.architecture != Architecture::encoder_decoder) {
    refuse(message("model: cross is for an encoder-decoder, got a ", name_of(spec.architecture)));
  }
}

}  // namespace

std::string_view name_of(EncodingName name) noexcept { return kEncodings[name]; }
std::string_view name_of(Architecture architecture) noexcept {
  return kArchitectures[architecture];
}
std::string_view name_of(Style style) noexcept { return kStyles[style]; }
std::string_view name_of(Head head) noexcept { return kHeads[head]; }
std::string_view name_of(AttentionKind kind) noexcept { return kKinds[kind]; }

void validate(const ModelSpec& spec) {
  require_positive("vocabulary", spec.vocabulary);
  require_positive("hidden", spec.hidden);
  require_positive("layers", spec.layers);
  require_positive("heads", spec.heads);
  require_positive("intermediate", spec.intermediate);
  require_positive("context", spec.context);
  require_positive("token_types", spec.token_types);
  require_multiple("hidden", spec.hidden, "heads", spec.heads);
  // Bounds that keep every product of sizes in 63 bits.
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  for (const std::int64_t size : {spec.vocabulary, spec.hidden, spec.layers, spec.intermediate,
                                  spec.context, spec.token_types, spec.labels}) {
    if (size > kMost) refuse(message("model: sizes must be at most ", kMost, ", got ", size));
  }
  if (!(spec.dropout >= 0.0 && spec.dropout < 1.0)) {
    refuse(message("model: dropout must be in [0, 1), got ", spec.dropout));
  }
  const EncodingSpec& encoding = spec.encoding;
  const auto rotates = encoding.name == EncodingName::rope || encoding.name == EncodingName::xpos ||
                       spec.cross == ModelSpec::Cross::rope;
  if (rotates && spec.head_dim() % 2 != 0) {
    refuse(message("model: hidden / heads must be even for rope, got ", spec.head_dim()));
  }
  if (!(encoding.base > 0.0 && std::isfinite(encoding.base))) {
    refuse(message("model: encoding.base must be positive, got ", encoding.base));
  }
  if (encoding.name == EncodingName::shaw) require_positive("encoding.clip", encoding.clip);
  if (encoding.name == EncodingName::hierarchical &&
      !(encoding.alpha > 0.0 && encoding.alpha < 1.0)) {
    refuse(message("model: encoding.alpha must be in (0, 1), got ", encoding.alpha));
  }
  if (encoding.name == EncodingName::deberta) {
    require_positive("encoding.max_distance", encoding.max_distance);
  }
  if (encoding.name == EncodingName::t5 || encoding.name == EncodingName::tupe) {
    // Refuses too few buckets and a distance within the exact ones.
    const auto range = spec.architecture == Architecture::decoder
                           ? encodings::BucketRange::past_only
                           : encodings::BucketRange::bidirectional;
    static_cast<void>(encodings::t5_bucket(-1, encoding.buckets, encoding.max_distance, range));
  }
  validate_combinations(spec);
}

ModelSpec parse_model_spec(const io::Json& json) {
  const config::ObjectReader reader(json, "model");
  ModelSpec spec;
  read_choice(reader, "architecture", kArchitectures, spec.architecture);
  spec.style = spec.architecture == Architecture::encoder ? Style::roformer : Style::llama;
  read_choice(reader, "style", kStyles, spec.style);
  read_choice(reader, "head", kHeads, spec.head);
  for (const auto& [key, into] : {std::pair{"vocabulary", &spec.vocabulary},
                                  {"hidden", &spec.hidden},
                                  {"layers", &spec.layers},
                                  {"heads", &spec.heads},
                                  {"intermediate", &spec.intermediate},
                                  {"context", &spec.context},
                                  {"token_types", &spec.token_types},
                                  {"labels", &spec.labels},
                                  {"feature_count", &spec.feature_count}}) {
    read_count(reader, key, *into);
  }
  if (const auto seed = reader.integer("feature_seed")) {
    spec.feature_seed = static_cast<std::uint64_t>(*seed);
  }
  read_choice(reader, "cross", kCross, spec.cross);
  read_choice(reader, "attention", kKinds, spec.attention);
  read_choice(reader, "features", kFeatures, spec.features);
  read_choice(reader, "rotates", kRotates, spec.rotates);
  read_choice(reader, "output", kOutputs, spec.output);
  if (const auto dropout = reader.number("dropout")) spec.dropout = *dropout;
  spec.encoding = read_encoding(reader, spec.head_dim());
  reader.refuse_rest(
      "architecture, style, head, vocabulary, hidden, layers, heads, intermediate, context, "
      "token_types, labels, encoding, cross, attention, features, feature_count, feature_seed, "
      "rotates, dropout, output");
  validate(spec);
  return spec;
}

io::Json json_of(const ModelSpec& spec) {
  io::Json json = io::Json::object();
  json["architecture"] = name_of(spec.architecture);
  json["style"] = name_of(spec.style);
  json["head"] = name_of(spec.head);
  json["vocabulary"] = spec.vocabulary;
  json["hidden"] = spec.hidden;
  json["layers"] = spec.layers;
  json["heads"] = spec.heads;
  json["intermediate"] = spec.intermediate;
  json["context"] = spec.context;
  if (spec.style == Style::roformer) json["token_types"] = spec.token_types;
  if (spec.head == Head::classification) json["labels"] = spec.labels;
  json["encoding"] = json_of(spec.encoding);
  if (spec.architecture == Architecture::encoder_decoder) json["cross"] = kCross[spec.cross];
  json["attention"] = name_of(spec.attention);
  if (spec.attention == AttentionKind::linear) {
    json["features"] = kFeatures[spec.features];
    json["rotates"] = kRotates[spec.rotates];
    if (spec.features == attention::FeatureMap::favor) {
      json["feature_count"] = spec.feature_count;
      json["feature_seed"] = static_cast<std::int64_t>(spec.feature_seed);
    }
  }
  json["dropout"] = spec.dropout;
  json["output"] = kOutputs[spec.output];
  return json;
}

}  // namespace phasor::lab
