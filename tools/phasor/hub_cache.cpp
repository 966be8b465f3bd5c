#include "hub_cache.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"

namespace phasor::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";

[[nodiscard]] std::optional<fs::path> folder_in(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return io::as_folder(value);
}

[[nodiscard]] bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The characters of names on the hub; not "." or "..".
[[nodiscard]] bool is_name(std::string_view text) {
  if (text.empty() || text.front() == '.' || text.front() == '-') return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

// A path to a file that is not there should not look like a model that is not downloaded.
[[nodiscard]] bool is_file_name(std::string_view text) {
  constexpr std::array<std::string_view, 9> kEndings = {
      ".json", ".gguf", ".npy", ".npz", ".safetensors", ".pt", ".txt", ".bin", ".model"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return text.ends_with(ending); });
}

// "org/name@revision/file", the first and the last two parts perhaps missing.
struct HubName {
  std::string org, name, revision = "main", file;

  [[nodiscard]] std::string text() const { return org.empty() ? name : org + "/" + name; }
  [[nodiscard]] fs::path folder() const {
    std::string folder(kPrefix);
    if (!org.empty()) folder.append(org).append("--");
    return hub_folder() / folder.append(name);
  }
};

[[nodiscard]] std::optional<HubName> parse(std::string_view given) {
  HubName hub;
  const auto take = [&](char separator) {
    const std::size_t end = given.find(separator);
    const std::string_view part = given.substr(0, end);
    given.remove_prefix(end == std::string_view::npos ? given.size() : end + 1);
    return part;
  };
  std::string_view name = given.find('/') == std::string_view::npos ? given : std::string_view();
  if (name.empty()) {
    hub.org = take('/');
    if (!is_name(hub.org)) return std::nullopt;
    name = take('/');
    hub.file = given;
    if (hub.file.starts_with('/') || hub.file.find("..") != std::string::npos) return std::nullopt;
    if (hub.file.empty() && is_file_name(name)) return std::nullopt;
  }
  if (const std::size_t at = name.find('@'); at != std::string_view::npos) {
    hub.revision = name.substr(at + 1);
    if (!is_name(hub.revision)) return std::nullopt;
    name = name.substr(0, at);
  }
  if (!is_name(name)) return std::nullopt;
  hub.name = name;
  return hub;
}

// The folder of a revision; none when it is not there.
[[nodiscard]] std::optional<fs::path> snapshot_of(const HubName& hub) {
  const fs::path folder = hub.folder();
  const fs::path reference = folder / "refs" / hub.revision;
  std::string commit = hub.revision;
  if (is_there(reference)) {
    commit = io::read_text(reference).value_or_throw();
    commit.erase(commit.find_last_not_of(" \r\n") + 1);
    if (!is_name(commit)) return std::nullopt;
  }
  const fs::path snapshot = folder / "snapshots" / commit;
  return is_there(snapshot) ? std::optional(snapshot) : std::nullopt;
}

[[nodiscard]] std::string model_in(const fs::path& snapshot, const HubName& hub) {
  if (!hub.file.empty()) return (snapshot / hub.file).string();
  if (is_there(snapshot / "config.json")) return snapshot.string();
  std::vector<std::string> files;
  for (const std::string& name : io::names_in(snapshot).value_or_throw()) {
    if (name.ends_with(".gguf")) files.push_back(name);
  }
  if (files.size() == 1) return (snapshot / files.front()).string();
  if (files.empty()) return snapshot.string();
  std::string list;
  for (const std::string& name : files) list += (list.empty() ? "" : ", ") + name;
  refuse(message(hub.text(), " has several GGUF files: add one of ", list, ", as in ", hub.text(),
                 "/", files.front()));
}

}  // namespace

fs::path hub_folder() {
  for (const char* const variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto folder = folder_in(variable)) return *folder;
  }
  if (const auto home = folder_in("HF_HOME")) return *home / "hub";
  if (const auto cache = folder_in("XDG_CACHE_HOME")) return *cache / "huggingface" / "hub";
  return folder_in("HOME").value_or(fs::path(".")) / ".cache" / "huggingface" / "hub";
}

std::string model_path(const std::string& given) {
  if (given.empty() || is_there(given)) return given;
  const std::optional<HubName> hub = parse(given);
  if (!hub) return given;
  if (const std::optional<fs::path> snapshot = snapshot_of(*hub)) return model_in(*snapshot, *hub);
  if (hub->org.empty()) return given;
  const std::string revision =
      hub->revision == "main" ? std::string() : " --revision " + hub->revision;
  refuse(ErrorCode::io,
         message("cannot open ", given, ": no such file or folder, and no download in ",
                 hub->folder().string(), "; run: hf download ", hub->text(), revision));
}

std::string hub_name_of(const fs::path& path) {
  for (const fs::path& part : path) {
    std::string name = part.string();
    if (!name.starts_with(kPrefix)) continue;
    name.erase(0, kPrefix.size());
    if (const std::size_t at = name.find("--"); at != std::string::npos) name.replace(at, 2, "/");
    return name;
  }
  return {};
}

}  // namespace phasor::tools
