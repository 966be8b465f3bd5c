// A config as people give it: a path, org/name of the hub, JSON itself, or - for stdin.
#pragma once

#include <string>

#include "phasor/config/config.hpp"
#include "phasor/porting/config_reports.hpp"

namespace phasor::tools {

inline constexpr const char* kConfigHelp =
    "config.json (old or new form), a plain spec, a folder with config.json, a GGUF file, org/name "
    "from the Hugging Face cache, JSON itself ('{...}'), or - for stdin";

// For Flag::read_by(): model_path(), with JSON and - unchanged.
[[nodiscard]] std::string config_path(const std::string& given);

// Whether the text is JSON itself and not a path.
[[nodiscard]] bool is_json_text(const std::string& given);
// The text of a JSON file, of JSON itself, or of stdin.
[[nodiscard]] std::string read_json_text(const std::string& given);
// What messages call it: the path, "stdin" or "JSON".
[[nodiscard]] std::string config_name(const std::string& given);

// throws   Error as config::read_config()
[[nodiscard]] config::ModelConfig read_model_config(const std::string& given);
// throws   Error as porting::read_readable_config()
[[nodiscard]] porting::ReadableConfig read_readable(const std::string& given);

}  // namespace phasor::tools
