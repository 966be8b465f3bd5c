// Small files for every verb and every reader, in a folder of their own that is removed at the end.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace phasor::faults {

class Inputs {
 public:
  // Makes them in a child: this process must be as one that has just started.
  Inputs();
  ~Inputs();
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  std::filesystem::path folder_;
};

[[nodiscard]] std::string contents_of(const std::filesystem::path& file);
// Of every file in a folder and its folders, by relative path.
[[nodiscard]] std::map<std::string, std::string> contents_below(
    const std::filesystem::path& folder);

}  // namespace phasor::faults
