// A file's bytes, read through the page cache without copying them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "phasor/core/error.hpp"
#include "phasor/export.h"

namespace phasor::io {

// Read-only. The bytes are the file's own: whoever shortens the file while it is mapped takes them
// away (SIGBUS), so replace files by renaming, as replace_file() does.
class PHASOR_API MappedFile {
 public:
  // Error(io) for what is missing, unreadable or not a regular file. An empty file has no bytes.
  [[nodiscard]] static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  // The path as it may stand in a one-line message.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Reads ahead; a hint, never an error.
  void will_need(std::span<const std::byte> part) const noexcept;
  // Gives the pages of `part` back to the system, so that a long stream stays small; reading them
  // again is allowed and reads the file again.
  void release(std::span<const std::byte> part) const noexcept;

 private:
  std::span<const std::byte> bytes_;
  std::string name_;
};

}  // namespace phasor::io
