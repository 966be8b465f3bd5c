#include "phasor/io/tensors.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "phasor/io/internal/posix_file.hpp"

namespace phasor::io {
namespace {

// madvise() needs the start of a page; the kernel rounds the end up itself.
void advise(std::span<const std::byte> whole, std::span<const std::byte> part, int advice) {
  const auto address = [](const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); };
  const std::uintptr_t begin = address(whole.data());
  const std::uintptr_t first = address(part.data());
  if (part.empty() || first < begin || first - begin > whole.size() ||
      part.size() > whole.size() - (first - begin)) {
    return;
  }
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t offset = (first - begin) / page * page;
  const std::size_t length = first - begin - offset + part.size();
  // A mapping made with PROT_READ is never written through this pointer.
  ::madvise(const_cast<std::byte*>(whole.data()) + offset, length, advice);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Result<InputFile> input = open_input(path);
  if (!input) return input.error();
  MappedFile file;
  file.name_ = input->name;
  if (input->size == 0) return file;
  void* const mapped =
      ::mmap(nullptr, input->size, PROT_READ, MAP_PRIVATE, input->descriptor.number(), 0);
  if (mapped == MAP_FAILED) return system_error(file.name_, "map", errno);
  file.bytes_ = {static_cast<const std::byte*>(mapped), input->size};
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), name_(std::move(other.name_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(name_, other.name_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::will_need(std::span<const std::byte> part) const noexcept {
  advise(bytes_, part, MADV_WILLNEED);
}

void MappedFile::release(std::span<const std::byte> part) const noexcept {
  advise(bytes_, part, MADV_DONTNEED);
}

}  // namespace phasor::io
