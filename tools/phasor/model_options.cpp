#include "model_options.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "arrays.hpp"
#include "hub_cache.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/content_hash.hpp"
#include "phasor/io/npy.hpp"
#include "ranks.hpp"
#include "rope_flags.hpp"
#include "streams.hpp"

namespace phasor::tools {

void add_model_options(Verb& verb, ModelOptions& options, ModelArgument argument) {
  verb.argument(
          "model", &options.model,
          "a folder of config.json and safetensors, a GGUF file, or org/name from the Hugging "
          "Face cache")
      .value("MODEL")
      .read_by(model_path)
      .is_required = argument == ModelArgument::required;
  verb.flag("--fast", &options.fast,
            "round activations to 8 bits per block when weights are quantised");
  verb.flag("--threads", &options.threads, "use at most N threads; 0: choose automatically")
      .at_least(0);
}

models::ComputeOptions compute_options(const ModelOptions& options) {
  return {
      .precision = options.fast ? models::Precision::fast : models::Precision::exact,
      .threads = options.threads == 0 && ranks() != nullptr ? ranks()->threads() : options.threads};
}

void require_decoder_on_ranks(std::string_view model_type) {
  if (ranks() == nullptr) return;
  refuse(ErrorCode::unsupported,
         message("a model on several ranks must be a decoder, got ", model_type, " on ",
                 ranks()->size(), ": start it without mpirun"));
}

void agree_on_ids(std::span<const std::int64_t> ids) {
  if (ranks() == nullptr) return;
  io::ContentHash hash;
  hash.add(std::as_bytes(ids));
  ranks()->agree("the token ids", message(ids.size(), " tokens with key ", hash.text()));
}

void add_rope_override(Verb& verb, RopeOverride& rope) {
  verb.flag("--rope-base", &rope.base, "base of the frequencies instead of the model's");
  verb.flag(
          "--rope-scaling", &rope.scaling,
          "scaling instead of the model's: TYPE:key=number,... such as yarn:factor=4; or '{...}', "
          "or none")
      .value("SCALING")
      .free_text();
}

models::Checkpoint open_checkpoint(const std::string& model, const RopeOverride& rope) {
  return with_rope(models::Checkpoint::open(model).value_or_throw(), rope);
}

models::Checkpoint with_rope(models::Checkpoint checkpoint, const RopeOverride& rope) {
  models::RopeChange change;
  change.base = rope.base;
  const std::vector<config::LayerGroup>& groups = checkpoint.config().groups;
  const auto rotates = std::find_if(groups.begin(), groups.end(),
                                    [](const auto& group) { return group.rope.has_value(); });
  if (!rope.scaling.empty() && rotates != groups.end()) {
    change.scaling = scaling_for_spec("--rope-scaling", rope.scaling, *rotates->rope,
                                      checkpoint.config().max_position);
  }
  checkpoint.change_rope(change);
  return checkpoint;
}

namespace {

// "1, 2, 3", "1 2 3" or "[1, 2, 3]"; none for anything else, such as a path.
std::optional<std::vector<std::int64_t>> listed_ids(std::string_view text) {
  if (text.find_first_not_of("0123456789, \t\r\n[]") != std::string_view::npos) return std::nullopt;
  std::vector<std::int64_t> ids;
  for (std::size_t at = 0; (at = text.find_first_of("0123456789", at)) < text.size();) {
    std::int64_t id = 0;
    const auto [end, status] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    if (status != std::errc{}) return std::nullopt;
    ids.push_back(id);
    at = static_cast<std::size_t>(end - text.data());
  }
  if (ids.empty()) return std::nullopt;
  return ids;
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

IdArray read_ids(const std::string& path) {
  const bool from_stdin = path == kStandardStream;
  const std::string text = from_stdin ? read_stdin() : path;
  if (from_stdin || !is_file(path)) {
    if (std::optional<std::vector<std::int64_t>> listed = listed_ids(text)) {
      IdArray ids;
      ids.tokens = static_cast<std::int64_t>(listed->size());
      ids.values = *std::move(listed);
      return ids;
    }
  }
  const io::NpyArray array = from_stdin ? array_in(text) : read_array(path);
  const std::vector<std::int64_t>& shape = array.shape;
  if (shape.size() != 1 && shape.size() != 2)
    refuse(ErrorCode::shape_mismatch,
           message(path, ": the shape must be [tokens] or [batch, tokens], got ",
                   core::shape_text(shape)));
  if (!io::is_integer(array.type))
    refuse(message(path, ": the elements must be integers, got ", io::name_of(array.type)));
  IdArray ids;
  ids.has_batch = shape.size() == 2;
  ids.batch = ids.has_batch ? shape[0] : 1;
  ids.tokens = shape.back();
  ids.values = io::to_integers(array).value_or_throw();
  if (ids.values.empty())
    refuse(ErrorCode::shape_mismatch,
           message(path, ": no tokens, the shape is ", core::shape_text(shape)));
  return ids;
}

std::vector<std::uint8_t> read_mask(const std::string& path, const IdArray& ids) {
  if (path.empty()) return std::vector<std::uint8_t>(ids.values.size(), 1);
  const io::NpyArray array = read_array(path);
  std::vector<std::int64_t> wanted = {ids.batch, ids.tokens};
  if (!ids.has_batch) wanted.erase(wanted.begin());
  if (array.shape != wanted)
    refuse(ErrorCode::shape_mismatch,
           message(path, ": the mask must have the shape of the ids ", core::shape_text(wanted),
                   ", got ", core::shape_text(array.shape)));
  std::vector<std::uint8_t> mask;
  mask.reserve(ids.values.size());
  for (const double value : io::to_doubles(array).value_or_throw()) {
    if (value != 0.0 && value != 1.0)
      refuse(message(path, ": mask values must be 0 (padding) or 1, got ", value));
    mask.push_back(value != 0.0 ? 1 : 0);
  }
  return mask;
}

std::string short_name(const std::string& path) {
  if (std::string name = hub_name_of(path); !name.empty()) return name;
  std::filesystem::path full(path);
  if (!full.has_filename()) full = full.parent_path();  // "folder/"
  std::string name = full.filename().string();
  for (char& character : name) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7f || character == ',' || character == '"') character = '_';
  }
  return name;
}

}  // namespace phasor::tools
