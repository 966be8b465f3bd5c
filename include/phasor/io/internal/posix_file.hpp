// File descriptors that close themselves, and errors of the operating system.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/file_text.hpp"

namespace phasor::io {

// A path in one line: control characters become '?'.
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
  // Passes the ownership of the number to the caller.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

// A regular file open for reading, and the size it had then.
struct InputFile {
  Descriptor descriptor;
  std::string name;  // for messages
  std::size_t size = 0;
};

// Error(io) when the file is missing, unreadable or not a regular file; never blocks on a pipe.
[[nodiscard]] Result<InputFile> open_input(const std::filesystem::path& path);

// Reads until `into` is full or the file ends; returns the bytes read.
[[nodiscard]] Result<std::size_t> read_some(const InputFile& file, std::span<std::byte> into);

}  // namespace phasor::io
