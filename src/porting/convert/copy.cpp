#include "porting/convert/copy.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <system_error>

#include "phasor/core/cancellation.hpp"
#include "phasor/io/internal/posix_file.hpp"

namespace phasor::porting {
namespace {

namespace fs = std::filesystem;

// Small enough to stay in the processor's cache between read and write.
constexpr std::uint64_t kStep = std::uint64_t{1} << 20;
// Bytes of one copy_file_range(), between two reports.
constexpr std::uint64_t kKernelStep = std::uint64_t{8} << 20;

const PlacedTensor* tensor_at(const CopyJob& job, std::uint64_t position) {
  const auto next = std::upper_bound(job.moved.begin(), job.moved.end(), position,
                                     [](std::uint64_t at, const PlacedTensor& tensor) {
                                       return at < tensor.offset + tensor.size;
                                     });
  return next == job.moved.end() ? nullptr : &*next;
}

class Copy {
 public:
  Copy(const CopyJob& job, const io::InputFile& source, int destination, std::uint64_t start)
      : job_(job),
        source_(source),
        destination_(destination),
        position_(start),
        name_(io::shown(job.destination)) {}

  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }

  // Copies the next few MiB.
  [[nodiscard]] Result<Done> step() {
    const PlacedTensor* tensor = tensor_at(job_, position_);
    const std::uint64_t plain_end = tensor == nullptr ? job_.state.size : tensor->offset;
    return position_ < plain_end ? copy(plain_end - position_) : permute(*tensor);
  }

 private:
  // Copies the first few MiB of `count` unchanged bytes.
  [[nodiscard]] Result<Done> copy(std::uint64_t count) {
    if (in_kernel_) {
      if (copy_in_kernel(std::min(count, kKernelStep))) return Done{};
      in_kernel_ = false;
    }
    count = std::min(count, kStep);
    in_.resize(std::max<std::size_t>(in_.size(), count));
    const std::span<std::byte> bytes = std::span(in_).first(count);
    if (const Result<Done> got = io::read_at(source_, position_, bytes); !got) return got;
    return write(bytes);
  }

  // Copies in the kernel. False is not an error yet: read() and write() try again and report it.
  [[nodiscard]] bool copy_in_kernel([[maybe_unused]] std::uint64_t count) {
#ifdef __linux__
    auto from = static_cast<off64_t>(position_);
    const ssize_t copied =
        ::copy_file_range(source_.descriptor.number(), &from, destination_, nullptr, count, 0);
    if (copied <= 0) return false;
    position_ += static_cast<std::uint64_t>(copied);
    return true;
#else
    return false;
#endif
  }

  [[nodiscard]] Result<Done> permute(const PlacedTensor& tensor) {
    const std::uint64_t block = tensor.permuted.block_bytes();
    const std::uint64_t left = tensor.offset + tensor.size - position_;
    const std::uint64_t count = std::min(std::max(kStep / block, std::uint64_t{1}) * block, left);
    in_.resize(std::max<std::size_t>(in_.size(), count));
    out_.resize(std::max<std::size_t>(out_.size(), count));
    const std::span<std::byte> from = std::span(in_).first(count);
    const std::span<std::byte> to = std::span(out_).first(count);
    if (const Result<Done> got = io::read_at(source_, position_, from); !got) return got;
    permute_blocks(tensor.permuted, (position_ - tensor.offset) / block, from, to);
    return write(to);
  }

  [[nodiscard]] Result<Done> write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(destination_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        return Error(
            ErrorCode::io,
            message(io::system_error(name_, "write", written < 0 ? errno : EIO).what(),
                    "; the bytes written so far are kept: run the same command again to resume"));
      }
      position_ += static_cast<std::uint64_t>(written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return Done{};
  }

  const CopyJob& job_;
  const io::InputFile& source_;
  int destination_;
  std::uint64_t position_;
  std::string name_;
  bool in_kernel_ = true;
  std::vector<std::byte> in_, out_;
};

[[nodiscard]] Result<Done> finish(const CopyJob& job, int descriptor) {
  if (job.finish == ConvertOptions::Finish::on_disk && ::fsync(descriptor) != 0) {
    return io::system_error(io::shown(job.partial), "flush", errno);
  }
  std::error_code error;
  fs::rename(job.partial, job.destination, error);
  if (error) {
    return io::system_error(io::shown(job.destination), "replace", error.value());
  }
  return Done{};
}

}  // namespace

std::uint64_t resume_point(const CopyJob& job) {
  std::error_code missing;
  const std::uintmax_t size = fs::file_size(job.partial, missing);
  if (missing || size > job.state.size) return 0;
  const PlacedTensor* tensor = tensor_at(job, size);
  if (tensor == nullptr || tensor->offset >= size) return size;
  const std::uint64_t block = tensor->permuted.block_bytes();
  return tensor->offset + (size - tensor->offset) / block * block;
}

Result<Done> copy_permuted(const CopyJob& job, const std::function<void(std::uint64_t)>& report) {
  Result<io::InputFile> opened = io::open_input(job.source);
  if (!opened) return opened.error();
  io::InputFile source = std::move(opened).value();
  source.state = job.state;
  if (const Result<Done> same = io::check_unchanged(source, "converted"); !same) return same;
#ifdef __linux__
  ::posix_fadvise(source.descriptor.number(), 0, 0, POSIX_FADV_SEQUENTIAL);
#endif
  std::error_code error;
  fs::create_directories(job.partial.parent_path(), error);
  const std::uint64_t start = resume_point(job);
  const io::Descriptor partial(
      ::open(job.partial.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  const auto failed = [&] { return io::system_error(io::shown(job.partial), "write", errno); };
  if (partial.number() < 0) return failed();
  // Only if necessary: ext4 treats a file truncated to 0 as one that is replaced, and waits for the
  // disk when it is closed.
  const off_t end = ::lseek(partial.number(), 0, SEEK_END);
  const auto wanted = static_cast<off_t>(start);
  if (end < 0 || (end != wanted && ::ftruncate(partial.number(), wanted) != 0)) return failed();
  if (::lseek(partial.number(), wanted, SEEK_SET) < 0) return failed();

  Copy copy(job, source, partial.number(), start);
  while (copy.position() < job.state.size) {
    core::throw_if_cancelled();  // what is written is kept: the next run resumes here
    if (const Result<Done> done = copy.step(); !done) return done;
    if (const Result<Done> same = io::check_unchanged(source, "converted"); !same) return same;
    report(copy.position());
  }
  return finish(job, partial.number());
}

}  // namespace phasor::porting
