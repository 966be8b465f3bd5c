#include "model_options.hpp"

#include <filesystem>

#include "arrays.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/npy.hpp"

namespace phasor::tools {

void add_model_options(Verb& verb, ModelOptions& options) {
  verb.argument("model", &options.model, "a folder of config.json and safetensors, or a GGUF file")
      .value("MODEL")
      .required();
  verb.flag("--fast", &options.fast,
            "round activations to 8 bits per block when weights are quantised");
  verb.flag("--threads", &options.threads, "use at most N threads; 0: choose automatically")
      .at_least(0);
}

models::ComputeOptions compute_options(const ModelOptions& options) {
  return {.precision = options.fast ? models::Precision::fast : models::Precision::exact,
          .threads = options.threads};
}

IdArray read_ids(const std::string& path) {
  const io::NpyArray array = read_array(path);
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
