#include "phasor/models/checkpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "phasor/io/internal/content_hash.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/posix_file.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::models {

struct Checkpoint::State {
  config::ModelConfig config;
  std::string config_json;
  std::string name;
  std::optional<io::GgufFile> gguf;
  std::optional<io::SafetensorsCheckpoint> safetensors;
  std::set<std::string, std::less<>> read;

  // Those that hold tensors, each once, in order.
  [[nodiscard]] static std::vector<const io::InputFile*> files(
      const std::vector<const io::Tensor*>& tensors);
};

namespace {

[[nodiscard]] bool is_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

[[nodiscard]] Result<io::GgufFile> open_gguf(const std::filesystem::path& path) {
  Result<io::GgufFile> file = io::GgufFile::open(path);
  if (!file || file->skipped().empty()) return file;
  const io::SkippedTensor& tensor = file->skipped().front();
  return Error(ErrorCode::unsupported, message(file->name(), ": tensor ", io::one_line(tensor.name),
                                               ": type ", tensor.type, " is not supported"));
}

}  // namespace

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& given) {
  const std::filesystem::path path = io::as_folder(given);
  auto state = std::make_unique<State>();
  state->name = io::shown(path);
  if (io::looks_like_gguf(path)) {
    Result<io::GgufFile> file = open_gguf(path);
    if (!file) return file.error();
    Result<config::ModelConfig> config = config::config_of_gguf(*file);
    if (!config) return config.error();
    state->config = std::move(config).value();
    state->gguf = std::move(file).value();
    return Checkpoint(std::move(state));
  }
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return io::system_error(state->name, "open", ENOENT);
  }
  if (!is_folder(path)) {
    return Error(ErrorCode::invalid_argument,
                 message(state->name,
                         ": not a GGUF file; a model is a GGUF file or a folder with config.json "
                         "and safetensors"));
  }
  Result<std::string> text = io::read_text(path / "config.json");
  if (!text) return text.error();
  Result<config::ModelConfig> config = config::read_config(path);
  if (!config) return config.error();
  Result<io::SafetensorsCheckpoint> tensors = io::SafetensorsCheckpoint::open(path);
  if (!tensors) return tensors.error();
  state->config_json = std::move(text).value();
  state->config = std::move(config).value();
  state->safetensors = std::move(tensors).value();
  return Checkpoint(std::move(state));
}

Result<Checkpoint> Checkpoint::parse(std::string_view config_json,
                                     std::span<const std::byte> safetensors,
                                     std::string_view name) {
  auto state = std::make_unique<State>();
  state->name = name;
  state->config_json = config_json;
  Result<config::ModelConfig> config = config::parse_config(config_json, name);
  if (!config) return config.error();
  Result<io::SafetensorsCheckpoint> tensors = io::SafetensorsCheckpoint::parse(safetensors, name);
  if (!tensors) return tensors.error();
  state->config = std::move(config).value();
  state->safetensors = std::move(tensors).value();
  return Checkpoint(std::move(state));
}

const config::ModelConfig& Checkpoint::config() const noexcept { return state_->config; }

void Checkpoint::change_rope(const RopeChange& change) {
  if (!change.base && !change.scaling) return;
  const encodings::RopeSpec* before = nullptr;
  for (const config::LayerGroup& group : state_->config.groups) {
    if (!group.rope) continue;
    if (before == nullptr) before = &*group.rope;
    if (!(*group.rope == *before)) {
      refuse(ErrorCode::unsupported,
             message(state_->name, ": layers of this model rotate differently (bases ",
                     before->base, " and ", group.rope->base,
                     "), so one base or scaling for all of them would not fit"));
    }
  }
  if (before == nullptr)
    refuse(ErrorCode::unsupported, message(state_->name, ": no layer of this model rotates"));
  if (!before->frequencies.empty() || !before->frequency_factors.empty()) {
    refuse(ErrorCode::unsupported,
           message(state_->name, ": the file lists ",
                   before->frequencies.empty() ? "factors of its frequencies" : "its frequencies",
                   ", which a base or a scaling would not replace"));
  }
  encodings::RopeSpec changed = *before;
  if (change.base) changed.base = *change.base;
  if (change.scaling) changed.scaling = *change.scaling;
  encodings::validate(changed);
  config::ModelConfig config = state_->config;
  for (config::LayerGroup& group : config.groups) {
    if (group.rope) group.rope = changed;
  }
  state_->config = std::move(config);
}

const std::string& Checkpoint::config_json() const noexcept { return state_->config_json; }
const std::string& Checkpoint::name() const noexcept { return state_->name; }
const io::GgufFile* Checkpoint::gguf() const noexcept {
  return state_->gguf ? &*state_->gguf : nullptr;
}

const io::Tensor* Checkpoint::find(std::string_view name) {
  const io::Tensor* const tensor =
      state_->gguf ? state_->gguf->find(name) : state_->safetensors->find(name);
  if (tensor != nullptr) state_->read.emplace(name);
  return tensor;
}

std::vector<const io::Tensor*> Checkpoint::tensors() const {
  std::vector<const io::Tensor*> all;
  if (state_->gguf) {
    for (const io::Tensor& tensor : state_->gguf->tensors()) all.push_back(&tensor);
    return all;
  }
  for (const io::SafetensorsCheckpoint::Shard& shard : state_->safetensors->shards()) {
    for (const io::Tensor& tensor : shard.file.tensors()) all.push_back(&tensor);
  }
  return all;
}

std::vector<std::string> Checkpoint::unread() const {
  std::vector<std::string> names;
  for (const io::Tensor* tensor : tensors()) {
    if (!state_->read.contains(tensor->name)) names.push_back(tensor->name);
  }
  return names;
}

std::size_t Checkpoint::bytes() const {
  std::size_t sum = 0;
  for (const io::Tensor* tensor : tensors()) sum += tensor->byte_size();
  return sum;
}

std::vector<const io::InputFile*> Checkpoint::State::files(
    const std::vector<const io::Tensor*>& tensors) {
  std::vector<const io::InputFile*> files;
  for (const io::Tensor* tensor : tensors) {
    const io::InputFile* const file = tensor->file.get();
    if (file != nullptr && std::find(files.begin(), files.end(), file) == files.end())
      files.push_back(file);
  }
  return files;
}

void Checkpoint::check_unchanged() const {
  for (const io::InputFile* file : State::files(tensors()))
    (void)io::check_unchanged(*file, "read").value_or_throw();
}

std::string Checkpoint::content_key() const {
  io::ContentHash hash;
  hash.add(state_->config_json);
  for (const io::InputFile* file : State::files(tensors())) hash.add_file(*file);
  return hash.text();
}

}  // namespace phasor::models
