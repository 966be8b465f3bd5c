// The bytes of a checkpoint file: in memory that the caller keeps, or in an open file that is read as
// needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "phasor/io/internal/posix_file.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::io {

class ByteSource {
 public:
  explicit ByteSource(std::span<const std::byte> bytes) noexcept
      : bytes_(bytes), size_(bytes.size()) {}
  explicit ByteSource(std::shared_ptr<const InputFile> file) noexcept
      : file_(std::move(file)), size_(file_->size) {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  // precondition  the bytes are within size()
  // throws        Error(io): the file cannot be read or has become shorter
  void read(std::uint64_t offset, std::span<std::byte> into) const;

  // Tells a tensor where its bytes are.
  //
  // precondition  its byte_size() bytes are within size()
  void place(Tensor& tensor, std::uint64_t offset) const;

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const InputFile> file_;
  std::size_t size_;
};

}  // namespace phasor::io
