// The bytes of a file, mapped into memory without a copy.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "phasor/core/error.hpp"
#include "phasor/export.h"

namespace phasor::io {

// Read-only. If another process shortens the file while it is mapped, reading the missing bytes
// raises SIGBUS: replace files by renaming, as replace_file() does.
class PHASOR_API MappedFile {
 public:
  // Error(io) when the file is missing, unreadable or not a regular file. An empty file has no bytes.
  [[nodiscard]] static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  // The path, in one line, for messages.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Asks the kernel to read ahead; a hint that cannot fail.
  void will_need(std::span<const std::byte> part) const noexcept;
  // Frees the memory of the pages of `part`; reading them again reads the file again.
  void release(std::span<const std::byte> part) const noexcept;

 private:
  std::span<const std::byte> bytes_;
  std::string name_;
};

}  // namespace phasor::io
