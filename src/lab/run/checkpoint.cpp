#include "phasor/lab/internal/checkpoint.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "lab/nn/ops.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::lab {
namespace {

namespace fs = std::filesystem;

[[nodiscard]] io::Json roformer_config(const ModelSpec& spec) {
  io::Json config = io::Json::object();
  const bool classifies = spec.head == Head::classification;
  config["architectures"] =
      io::Json::array({classifies ? "RoFormerForSequenceClassification" : "RoFormerForMaskedLM"});
  config["model_type"] = "roformer";
  config["vocab_size"] = spec.vocabulary;
  config["embedding_size"] = spec.hidden;
  config["hidden_size"] = spec.hidden;
  config["num_hidden_layers"] = spec.layers;
  config["num_attention_heads"] = spec.heads;
  config["intermediate_size"] = spec.intermediate;
  config["hidden_act"] = "gelu";
  config["hidden_dropout_prob"] = spec.dropout;
  config["attention_probs_dropout_prob"] = 0.0;
  config["max_position_embeddings"] = spec.context;
  config["type_vocab_size"] = spec.token_types;
  config["layer_norm_eps"] = kNormEpsilon;
  config["rotary_value"] = false;
  config["tie_word_embeddings"] = spec.output == ModelSpec::Output::tied;
  if (classifies) {
    config["id2label"] = io::Json::object();
    config["label2id"] = io::Json::object();
    for (std::int64_t label = 0; label < spec.labels; ++label) {
      const std::string name = message("LABEL_", label);
      config["id2label"][std::to_string(label)] = name;
      config["label2id"][name] = label;
    }
  }
  return config;
}

[[nodiscard]] io::Json llama_config(const ModelSpec& spec) {
  io::Json config = io::Json::object();
  config["architectures"] = io::Json::array({"LlamaForCausalLM"});
  config["model_type"] = "llama";
  config["vocab_size"] = spec.vocabulary;
  config["hidden_size"] = spec.hidden;
  config["num_hidden_layers"] = spec.layers;
  config["num_attention_heads"] = spec.heads;
  config["num_key_value_heads"] = spec.heads;
  config["head_dim"] = spec.head_dim();
  config["intermediate_size"] = spec.intermediate;
  config["hidden_act"] = "silu";
  config["attention_bias"] = false;
  config["mlp_bias"] = false;
  config["max_position_embeddings"] = spec.context;
  config["rms_norm_eps"] = kNormEpsilon;
  config["rope_theta"] = spec.encoding.base;
  config["tie_word_embeddings"] = spec.output == ModelSpec::Output::tied;
  return config;
}

[[nodiscard]] io::Json config_of(const ModelSpec& spec) {
  const std::string_view type = model_type_of(spec);
  io::Json config = type == "roformer" ? roformer_config(spec)
                    : type == "llama"  ? llama_config(spec)
                                       : io::Json::object();
  if (type == kLabModelType) {
    config["model_type"] = type;
    config[kLabModelType] = json_of(spec);
  }
  config["dtype"] = "float32";
  return config;
}

[[nodiscard]] Result<Done> write_text(const fs::path& path, std::string_view text) {
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  return io::replace_file(path, std::span(&piece, 1));
}

enum class Heads : std::uint8_t { same, may_differ };

// Parameters of a head, which a network with another head does not have.
[[nodiscard]] bool of_head(std::string_view name) {
  return name.starts_with("cls.") || name.starts_with("classifier.") || name == "lm_head.weight";
}

[[nodiscard]] Result<Done> read_into(const fs::path& folder, Network<float>& network, Heads heads) {
  const auto is_free = [&](std::string_view name) {
    return heads == Heads::may_differ && of_head(name);
  };
  const fs::path path = io::as_folder(folder) / "model.safetensors";
  auto opened = io::SafetensorsFile::open(path);
  if (!opened) return opened.error();
  const io::SafetensorsFile file = std::move(opened).value();
  const auto fail = [&](ErrorCode code, const std::string& text) {
    return Error(code, message(path.string(), ": ", text));
  };
  std::set<std::string_view> known;
  for (const Parameter& parameter : network.layout()) {
    known.insert(parameter.name);
    const io::Tensor* const tensor = file.find(parameter.name);
    if (tensor == nullptr) {
      if (is_free(parameter.name)) continue;
      return fail(ErrorCode::invalid_argument, message("tensor ", parameter.name, " is missing"));
    }
    if (tensor->shape != parameter.shape) {
      if (is_free(parameter.name)) continue;  // of other labels
      return fail(ErrorCode::shape_mismatch,
                  message("tensor ", parameter.name, " must have the shape ",
                          core::shape_text(parameter.shape), " of the model, got ",
                          core::shape_text(tensor->shape)));
    }
    try {
      io::to_floats(*tensor, 0, network.parameters().subspan(parameter.first, parameter.count));
    } catch (const Error& error) {
      return error;
    }
  }
  for (const io::Tensor& tensor : file.tensors()) {
    if (known.contains(tensor.name) || is_free(tensor.name)) continue;
    return fail(ErrorCode::invalid_argument,
                message("the model has no tensor ", io::quoted_name(tensor.name)));
  }
  return Done{};
}

}  // namespace

std::string_view model_type_of(const ModelSpec& spec) noexcept {
  const bool plain_rope = spec.encoding.name == EncodingName::rope &&
                          spec.attention == AttentionKind::softmax &&
                          std::holds_alternative<encodings::DefaultScaling>(spec.encoding.scaling);
  if (!plain_rope) return kLabModelType;
  constexpr double kRoFormerBase = 10000.0;  // its config has no key for it
  if (spec.architecture == Architecture::encoder && spec.style == Style::roformer &&
      spec.encoding.base == kRoFormerBase) {
    return "roformer";
  }
  if (spec.architecture == Architecture::decoder && spec.style == Style::llama) return "llama";
  return kLabModelType;
}

Result<Done> save_checkpoint(const Network<float>& network,
                             std::span<const text::TokenizerFile> tokenizer, const fs::path& folder,
                             core::DType weights) {
  const fs::path into = io::as_folder(folder);
  std::error_code failed;
  fs::create_directories(into, failed);
  if (failed) {
    return Error(ErrorCode::io, message("cannot create ", into.string(), ": ", failed.message()));
  }
  std::vector<core::Half> halves;
  if (weights == core::DType::f16) {
    halves.reserve(network.parameters().size());
    for (const float value : network.parameters()) halves.push_back(core::to_half(value));
  }
  std::vector<io::Tensor> tensors;
  tensors.reserve(network.layout().size());
  for (const Parameter& parameter : network.layout()) {
    io::Tensor tensor;
    tensor.name = parameter.name;
    tensor.shape = parameter.shape;
    tensor.bytes = std::as_bytes(network.parameters().subspan(parameter.first, parameter.count));
    if (weights == core::DType::f16) {
      tensor.type = io::TensorType::f16;
      tensor.bytes = std::as_bytes(std::span(halves).subspan(parameter.first, parameter.count));
    }
    tensors.push_back(std::move(tensor));
  }
  if (auto done = io::write_safetensors(into / "model.safetensors", tensors, {{"format", "pt"}});
      !done) {
    return done;
  }
  for (const text::TokenizerFile& file : tokenizer) {
    if (auto done = write_text(into / file.name, file.content); !done) return done;
  }
  io::Json config = config_of(network.spec());
  if (weights == core::DType::f16) config["dtype"] = "float16";
  return write_text(into / "config.json", config.dump(2) + "\n");
}

Result<Done> read_parameters(const fs::path& folder, Network<float>& network) {
  return read_into(folder, network, Heads::same);
}

Result<Done> read_body(const fs::path& folder, Network<float>& network) {
  return read_into(folder, network, Heads::may_differ);
}

bool is_lab_checkpoint(const fs::path& folder) {
  const auto text = io::read_text(io::as_folder(folder) / "config.json");
  if (!text) return false;
  try {
    const io::Json config = io::parse_python_object(*text);
    return config.contains("model_type") && config["model_type"] == io::Json(kLabModelType);
  } catch (const Error&) {
    return false;
  }
}

Result<Network<float>> load_checkpoint(const fs::path& folder, const NetworkOptions& options) {
  const fs::path path = io::as_folder(folder) / "config.json";
  auto text = io::read_text(path);
  if (!text) return text.error();
  try {
    const io::Json config = io::parse_object(*text);
    if (!config.contains("model_type") || config["model_type"] != io::Json(kLabModelType) ||
        !config.contains(kLabModelType)) {
      return io::in_file(
          path.string(),
          Error(ErrorCode::unsupported,
                message(
                    "model_type must be ", kLabModelType, ", got ",
                    io::shown(config.contains("model_type") ? config["model_type"] : io::Json()))));
    }
    Network<float> network(parse_model_spec(config[kLabModelType]), options);
    if (auto done = read_parameters(folder, network); !done) return done.error();
    return network;
  } catch (const Error& error) {
    return io::in_file(path.string(), error);
  }
}

}  // namespace phasor::lab
