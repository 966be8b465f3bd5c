#include "phasor/config/config.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "config/hf/model_config.hpp"
#include "config/plain_spec.hpp"
#include "phasor/config/internal/json_reader.hpp"
#include "phasor/config/internal/layout_sidecar.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::config {
namespace {

[[nodiscard]] std::string names_of_groups(const ModelConfig& config) {
  std::string names;
  for (const LayerGroup& group : config.groups) {
    if (!group.layer_type.empty()) names += (names.empty() ? "" : ", ") + group.layer_type;
  }
  return names.empty() ? "none" : names;
}

[[nodiscard]] Error no_such_layer(const ModelConfig& config, std::string_view selector) {
  std::int64_t count = 0;
  for (const LayerGroup& group : config.groups)
    count += static_cast<std::int64_t>(group.layers.size());
  const std::string indices = count == 0 ? "" : message(" or an index below ", count);
  const std::string choices =
      message("expected a layer type (", names_of_groups(config), ")", indices);
  return Error(ErrorCode::invalid_argument,
               selector.empty() ? message("layer: layers differ, choose one: ", choices)
                                : message("layer: unknown layer \"", selector, "\": ", choices));
}

}  // namespace

Result<ModelConfig> parse_config(std::string_view text, std::string_view name) {
  try {
    const Json object = io::parse_python_object(text);
    const ObjectReader top(object);
    return is_plain_spec(top) ? read_plain_spec(top) : read_model_config(top);
  } catch (const Error& error) {
    return Error(error.code(), message(name, ": ", error.what()));
  }
}

Result<ModelConfig> read_config(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  const std::filesystem::path folder = is_folder ? io::as_folder(path) : std::filesystem::path();
  const std::filesystem::path file = is_folder ? folder / "config.json" : path;
  if (io::looks_like_gguf(file)) {
    const Result<io::GgufFile> gguf = io::GgufFile::open(file);
    if (!gguf) return gguf.error();
    return config_of_gguf(*gguf);
  }
  const Result<std::string> text = io::read_text(file);
  if (!text) return text.error();
  Result<ModelConfig> parsed = parse_config(*text, file.string());
  if (!parsed || !is_folder) return parsed;
  ModelConfig config = std::move(parsed).value();
  if (const Result<Done> applied = apply_layout_sidecar(folder, config); !applied) {
    return applied.error();
  }
  return config;
}

Result<LayerGroup> select_layer(const ModelConfig& config, std::string_view selector) {
  if (selector.empty()) {
    if (config.groups.size() == 1) return config.groups.front();
    const auto rotates = [](const LayerGroup& group) { return group.rope.has_value(); };
    const auto first = std::find_if(config.groups.begin(), config.groups.end(), rotates);
    // Nothing to choose: the answer is that these layers do not rotate.
    if (first == config.groups.end() && !config.groups.empty()) return config.groups.front();
    if (first != config.groups.end() &&
        std::all_of(first, config.groups.end(), [&](const LayerGroup& group) {
          return !group.rope || *group.rope == *first->rope;
        })) {
      return *first;
    }
    return no_such_layer(config, selector);
  }
  for (const LayerGroup& group : config.groups) {
    if (group.layer_type == selector) return group;
  }
  std::int64_t index = 0;
  const char* end = selector.data() + selector.size();
  const auto [stop, problem] = std::from_chars(selector.data(), end, index);
  if (problem != std::errc{} || stop != end) return no_such_layer(config, selector);
  for (const LayerGroup& group : config.groups) {
    if (std::find(group.layers.begin(), group.layers.end(), index) != group.layers.end())
      return group;
    // One encoding for all layers, however many there are.
    if (config.groups.size() == 1 && group.layers.empty() && index >= 0) return group;
  }
  return no_such_layer(config, selector);
}

}  // namespace phasor::config
