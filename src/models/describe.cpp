#include "phasor/models/internal/describe.hpp"

#include <algorithm>
#include <map>
#include <system_error>

#include "models/decoder/settings.hpp"
#include "models/t5/parts.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/tensors.hpp"
#include "phasor/models/checkpoint.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::models {
namespace {

void count_tensors(const Checkpoint& checkpoint, ModelDescription& out) {
  std::map<std::string, ModelDescription::Type> types;
  for (const io::Tensor* tensor : checkpoint.tensors()) {
    ModelDescription::Type& type = types[std::string(io::name_of(tensor->type))];
    ++type.tensors;
    type.parameters += tensor->size();
    type.bytes += tensor->byte_size();
  }
  for (auto& [name, type] : types) {
    type.name = name;
    out.tensors += type.tensors;
    out.parameters += type.parameters;
    out.bytes += type.bytes;
    out.types.push_back(type);
  }
  std::sort(out.types.begin(), out.types.end(),
            [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

void find_runner(const Checkpoint& checkpoint, ModelDescription& out) {
  if (checkpoint.config().model_type == "roformer") {
    out.runs_as = "encoder";
    return;
  }
  try {
    if (is_t5(checkpoint.config().model_type)) {
      const T5Facts facts = t5_settings(checkpoint).facts;
      out.runs_as = "encoder-decoder";
      out.cache_bytes_per_token =
          static_cast<std::size_t>(2 * facts.decoder_layers * facts.heads * facts.head_dim) *
          sizeof(float);
      return;
    }
    const DecoderFacts facts = read_settings(checkpoint).facts;
    out.runs_as = "decoder";
    out.cache_bytes_per_token =
        static_cast<std::size_t>(2 * facts.layers * facts.key_heads * facts.head_dim) *
        sizeof(float);
  } catch (const Error& error) {
    out.refusal = error.what();
  }
}

}  // namespace

Result<ModelDescription> describe(const std::filesystem::path& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return checkpoint.error();
  ModelDescription out;
  count_tensors(*checkpoint, out);
  find_runner(*checkpoint, out);
  const Result<std::unique_ptr<text::Tokenizer>> tokenizer = text::read_tokenizer(path);
  out.tokenizer = tokenizer
                      ? message((*tokenizer)->description(), ", ", (*tokenizer)->size(), " tokens")
                      : message("none: ", tokenizer.error().what());
  return out;
}

std::optional<ModelDescription> describe_weights(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  if (!folder && !io::looks_like_gguf(path)) return std::nullopt;
  if (folder && !io::SafetensorsCheckpoint::open(path)) return std::nullopt;
  Result<ModelDescription> description = describe(path);
  if (!description) return std::nullopt;
  return std::move(description).value();
}

std::string describe_json(const ModelDescription& description) {
  io::Json json;
  json["tensors"] = description.tensors;
  json["parameters"] = description.parameters;
  json["bytes"] = description.bytes;
  json["types"] = io::Json::array();
  for (const ModelDescription::Type& type : description.types) {
    json["types"].push_back({{"type", type.name},
                             {"tensors", type.tensors},
                             {"parameters", type.parameters},
                             {"bytes", type.bytes}});
  }
  json["runs_as"] = description.runs_as;
  json["refusal"] = description.refusal;
  json["cache_bytes_per_token"] = description.cache_bytes_per_token;
  json["tokenizer"] = description.tokenizer;
  return json.dump({.indent = 1, .bad_utf8 = io::JsonStyle::BadUtf8::replace});
}

}  // namespace phasor::models
