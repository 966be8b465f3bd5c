#include "model_files.hpp"

#include <cstdlib>
#include <system_error>

#include "phasor/io/internal/folder.hpp"

namespace phasor::tools {
namespace {

[[nodiscard]] std::optional<std::filesystem::path> folder_of(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return io::as_folder(value);
}

}  // namespace

std::vector<std::filesystem::path> model_folders() {
  std::vector<std::filesystem::path> folders;
  if (const auto models = folder_of("PHASOR_MODELS")) folders.push_back(*models);
  if (const auto cache = folder_of("XDG_CACHE_HOME")) {
    folders.push_back(*cache / "phasor");
  } else if (const auto home = folder_of("HOME")) {
    folders.push_back(*home / ".cache" / "phasor");
  }
  return folders;
}

std::optional<std::filesystem::path> find_model_file(const std::string& name) {
  for (const std::filesystem::path& folder : model_folders()) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(folder / name, ignored)) return folder / name;
  }
  return std::nullopt;
}

}  // namespace phasor::tools
