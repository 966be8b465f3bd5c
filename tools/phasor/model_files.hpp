// Where downloaded model files are stored.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace phasor::tools {

// The folders that are searched, first to last: PHASOR_MODELS, then phasor in XDG_CACHE_HOME or in
// .cache of HOME, where `./dev model` puts them.
[[nodiscard]] std::vector<std::filesystem::path> model_folders();
[[nodiscard]] std::optional<std::filesystem::path> find_model_file(const std::string& name);

}  // namespace phasor::tools
