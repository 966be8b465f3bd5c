// Bytes that are read once, from the first to the last: of a file, of memory, of a member of an archive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/posix_file.hpp"

namespace phasor::io {

class ByteStream {
 public:
  ByteStream(std::string name, std::size_t size) : name_(std::move(name)), size_(size) {}
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  virtual ~ByteStream() = default;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }  // for messages
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  // Reads until `into` is full or the stream ends; returns the bytes read.
  [[nodiscard]] virtual Result<std::size_t> read(std::span<std::byte> into) = 0;

 private:
  std::string name_;
  std::size_t size_;
};

// `file` must outlive the stream.
class FileStream final : public ByteStream {
 public:
  explicit FileStream(const InputFile& file) : ByteStream(file.name, file.size), file_(file) {}
  [[nodiscard]] Result<std::size_t> read(std::span<std::byte> into) override {
    return read_some(file_, into);
  }

 private:
  const InputFile& file_;
};

class MemoryStream final : public ByteStream {
 public:
  MemoryStream(std::string name, std::span<const std::byte> bytes)
      : ByteStream(std::move(name), bytes.size()), rest_(bytes) {}
  [[nodiscard]] Result<std::size_t> read(std::span<std::byte> into) override {
    const std::size_t count = std::min(into.size(), rest_.size());
    std::copy_n(rest_.begin(), count, into.begin());
    rest_ = rest_.subspan(count);
    return count;
  }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace phasor::io
