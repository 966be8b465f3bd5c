// The temporary files that replace_file() writes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/posix_file.hpp"

namespace phasor::io {

// Removes the temporary files that this process is writing. For the signal handler of a program that
// then ends: makes only calls that a handler may make. The library itself installs no handler.
void remove_temporary_files() noexcept;

// A new file `.phasor-PROCESS-NUMBER.tmp`, locked as long as its descriptor is open. Removed with the
// object unless keep() was called.
class TemporaryFile {
 public:
  // Files of this kind in `folder` whose writer has died are removed first: their lock is free.
  //
  // error    Error(io), which says that `name` cannot be written
  [[nodiscard]] static Result<TemporaryFile> create(const std::filesystem::path& folder,
                                                    const std::string& name);
  TemporaryFile(TemporaryFile&& other) noexcept;
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  ~TemporaryFile();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const Descriptor& descriptor() const noexcept { return descriptor_; }
  // The file was renamed.
  void keep() noexcept;

 private:
  TemporaryFile(std::filesystem::path path, Descriptor descriptor, std::size_t slot) noexcept;

  std::filesystem::path path_;
  Descriptor descriptor_;
  std::size_t slot_;  // of the list that remove_temporary_files() reads
  bool kept_ = false;
};

}  // namespace phasor::io
