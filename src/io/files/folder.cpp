#include "phasor/io/internal/folder.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/posix_file.hpp"

namespace phasor::io {
namespace {

namespace fs = std::filesystem;

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

[[nodiscard]] Result<Done> list(const fs::path& folder, std::vector<std::string>& names) {
  const std::unique_ptr<DIR, CloseFolder> entries(::opendir(folder.c_str()));
  if (entries == nullptr) return system_error(shown(folder), "read", errno);
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(entries.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return system_error(shown(folder), "read", errno);
  return Done{};
}

[[nodiscard]] bool is_folder_itself(const fs::path& path) noexcept {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// `inside` is the folder relative to `root`, with '/' at its end unless it is empty.
[[nodiscard]] Result<Done> list_below(const fs::path& root, const std::string& inside,
                                      std::vector<std::string>& files) {
  std::vector<std::string> names;
  if (auto listed = list(inside.empty() ? root : root / inside, names); !listed) return listed;
  for (const std::string& name : names) {
    std::string path = inside + name;
    if (!is_folder_itself(root / path)) {
      files.push_back(std::move(path));
    } else if (auto listed = list_below(root, path + "/", files); !listed) {
      return listed;
    }
  }
  return Done{};
}

}  // namespace

fs::path as_folder(const fs::path& path) {
  std::string text = path.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

Result<std::vector<std::string>> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  if (auto listed = list(folder, names); !listed) return listed.error();
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::vector<std::string>> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  if (auto listed = list_below(as_folder(folder), "", files); !listed) return listed.error();
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace phasor::io
