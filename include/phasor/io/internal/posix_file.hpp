// File descriptors that close themselves, and errors of the operating system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

struct stat;

#include "phasor/core/error.hpp"
#include "phasor/io/internal/file_text.hpp"

namespace phasor::io {

// A path in one line, as core::visible_text() shows it.
[[nodiscard]] std::string shown(const std::filesystem::path& path);

// Error(io): `cannot open name: no such file or directory`; `doing` is "open", "write", ...
[[nodiscard]] Error system_error(const std::string& name, std::string_view doing, int error_number);

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();

  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_ = -1;
};

// What shows that a file was written to or replaced. A write within the clock tick of the last one
// (some milliseconds) is not seen if it keeps the size.
struct FileState {
  std::uint64_t device = 0, inode = 0, size = 0;
  std::int64_t modified_ns = 0;  // since 1970

  bool operator==(const FileState&) const = default;
};
[[nodiscard]] FileState state_of(const struct ::stat& status) noexcept;

// A regular file open for reading, as it was then.
struct InputFile {
  Descriptor descriptor;
  std::string name;  // for messages
  std::size_t size = 0;
  FileState state = {};
};

// Error(io) when the file is missing, unreadable or not a regular file; never blocks on a pipe.
[[nodiscard]] Result<InputFile> open_input(const std::filesystem::path& path);

// Error(io) if the open file is no longer as it was when it was opened; `doing` is "read", "copied".
[[nodiscard]] Result<Done> check_unchanged(const InputFile& file, std::string_view doing);

// Fills `into` with the bytes from `offset` on. Error(io) if the file cannot be read or ends before: it
// has become shorter.
[[nodiscard]] Result<Done> read_at(const InputFile& file, std::uint64_t offset,
                                   std::span<std::byte> into);

// Reads until `into` is full or the file ends; returns the bytes read.
[[nodiscard]] Result<std::size_t> read_some(const InputFile& file, std::span<std::byte> into);

}  // namespace phasor::io
