#include "phasor/config/internal/layout_sidecar.hpp"

#include <system_error>

#include "phasor/config/internal/json_reader.hpp"
#include "phasor/io/internal/file.hpp"

namespace phasor::config {
namespace {

constexpr std::int64_t kFormat = 1;
constexpr std::size_t kLongest = std::size_t{1} << 16;

[[nodiscard]] core::PairLayout read_layout(const ObjectReader& top, std::string_view key) {
  const std::string name = top.text(key).value_or("");
  const std::optional<core::PairLayout> layout = core::pair_layout_of(name);
  if (!layout || *layout == core::PairLayout::interleaved_to_half) {
    top.refuse(key, message("must be half or interleaved, got \"", name, "\""));
  }
  return *layout;
}

[[nodiscard]] LayoutSidecar read_sidecar(std::string_view text) {
  const Json object = parse_object(text);
  const ObjectReader top(object);
  const std::optional<std::int64_t> format = top.integer("format");
  if (format != kFormat) {
    top.refuse("format", message("must be ", kFormat, ", got ", shown(top.value("format"))));
  }
  LayoutSidecar sidecar;
  sidecar.layout = read_layout(top, "layout");
  sidecar.converted_from = read_layout(top, "converted_from");
  const std::optional<std::string> model_type = top.text("model_type");
  if (!model_type) top.refuse_missing("model_type", "expected a string");
  sidecar.model_type = *model_type;
  (void)top.integer("tensors");
  if (const std::optional<ObjectReader> proof = top.object("proof")) {
    (void)proof->integer("layers");
    (void)proof->integer("scores");
    (void)proof->number("largest_score");
    (void)proof->number("largest_difference");
    proof->refuse_rest("layers, scores, largest_score, largest_difference");
  }
  top.refuse_rest("format, layout, converted_from, model_type, tensors, proof");
  return sidecar;
}

}  // namespace

Result<std::optional<LayoutSidecar>> read_layout_sidecar(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kLayoutSidecar;
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, ignored))) {
    return std::optional<LayoutSidecar>{};
  }
  const Result<std::string> text = io::read_text(file, kLongest);
  if (!text) return text.error();
  try {
    return std::optional(read_sidecar(*text));
  } catch (const Error& error) {
    return Error(error.code(), message(file.string(), ": ", error.what()));
  }
}

Result<Done> apply_layout_sidecar(const std::filesystem::path& folder, ModelConfig& config) {
  std::error_code ignored;
  if (std::filesystem::exists(folder / kConvertJournal, ignored)) {
    return Error(
        ErrorCode::invalid_argument,
        message(folder.string(),
                ": the conversion is unfinished; run `phasor convert` again to finish it"));
  }
  const Result<std::optional<LayoutSidecar>> sidecar = read_layout_sidecar(folder);
  if (!sidecar) return sidecar.error();
  if (!sidecar->has_value()) return Done{};
  const LayoutSidecar& found = **sidecar;
  if (found.model_type != config.model_type) {
    return Error(
        ErrorCode::invalid_argument,
        message((folder / kLayoutSidecar).string(), ": model_type must be that of the config, \"",
                config.model_type, "\", got \"", found.model_type, "\""));
  }
  for (LayerGroup& group : config.groups) {
    if (!group.rope) continue;
    group.rope->layout = found.layout;
    std::erase_if(group.sources, [](const Source& source) { return source.what == "layout"; });
    group.sources.push_back({"layout", std::string(kLayoutSidecar)});
  }
  config.notes.push_back(
      {std::string(kLayoutSidecar),
       message("q and k were converted from ", core::name_of(found.converted_from), " to ",
               core::name_of(found.layout), "; engines that do not read this file would rotate ",
               "the wrong pairs")});
  return Done{};
}

}  // namespace phasor::config
