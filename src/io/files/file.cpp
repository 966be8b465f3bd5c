#include "phasor/io/internal/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <system_error>

#include "phasor/io/internal/posix_file.hpp"

namespace phasor::io {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;            // as the kernel
constexpr int kMaxTemporaryNames = 100;  // left over by processes that were killed
constexpr std::size_t kReadStep = std::size_t{1} << 20;

// std::strerror shares one buffer between threads; this does not.
std::string text_of(int error_number) { return std::generic_category().message(error_number); }

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "another kind of file";
}

Error not_regular(const std::string& name, mode_t mode) {
  return {ErrorCode::io, message(name, ": must be a regular file, got ", kind_of(mode))};
}

// What `path` stands for once its own links are followed: renaming over a link would cut it. The
// last target need not exist.
Result<fs::path> follow_links(const fs::path& path) {
  fs::path target = path;
  for (int i = 0; i <= kMaxLinks; ++i) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(target, error);
    if (status.type() != fs::file_type::symlink) return target;
    const fs::path next = fs::read_symlink(target, error);
    if (error) return system_error(shown(path), "must be a link that can be read", error.value());
    target = target.parent_path() / next;  // an absolute `next` replaces the parent
  }
  return system_error(shown(path), "must lead to a file", ELOOP);
}

// Removes the file unless it was kept.
class Temporary {
 public:
  explicit Temporary(fs::path path) : path_(std::move(path)) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (!kept_) ::unlink(path_.c_str());
  }
  [[nodiscard]] const fs::path& path() const noexcept { return path_; }
  void keep() noexcept { kept_ = true; }

 private:
  fs::path path_;
  bool kept_ = false;
};

// Not derived from the target's name, which may already be as long as a name can be.
fs::path temporary_name(const fs::path& folder) {
  static std::atomic<unsigned> counter{0};
  return folder / message(".phasor-", ::getpid(), "-", counter.fetch_add(1), ".tmp");
}

int write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

int flush(int descriptor) {
  while (::fsync(descriptor) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

int close_checked(Descriptor descriptor) {
  // Linux has closed the descriptor even when EINTR comes back.
  return ::close(descriptor.release()) != 0 && errno != EINTR ? errno : 0;
}

// Makes the rename itself last through a power cut. Some file systems cannot do that for a folder,
// and the new file is in place by now, so a failure here is no failure of the write.
void flush_folder(const fs::path& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.number() >= 0) flush(descriptor.number());
}

}  // namespace

Error system_error(const std::string& name, std::string_view expected, int error_number) {
  return {ErrorCode::io, message(name, ": ", expected, ", got \"", text_of(error_number), "\"")};
}

std::string shown(const fs::path& path) {
  std::string text = path.string();
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text.empty() ? "(empty path)" : text;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Result<InputFile> open_input(const fs::path& path) {
  InputFile file;
  file.name = shown(path);
  // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
  file.descriptor = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.descriptor.number() < 0) return system_error(file.name, "must be readable", errno);
  struct stat status {};
  if (::fstat(file.descriptor.number(), &status) != 0) {
    return system_error(file.name, "must be readable", errno);
  }
  if (!S_ISREG(status.st_mode)) return not_regular(file.name, status.st_mode);
  file.size = static_cast<std::size_t>(status.st_size);
  return file;
}

Result<std::size_t> read_some(const InputFile& file, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const std::span<std::byte> rest = into.subspan(done);
    const ssize_t got = ::read(file.descriptor.number(), rest.data(), rest.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(file.name, "must be readable", errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

Result<std::string> read_text(const fs::path& path, std::size_t limit) {
  Result<InputFile> opened = open_input(path);
  if (!opened) return opened.error();
  const InputFile file = std::move(opened).value();
  const auto too_long = [&](std::size_t size) {
    return Error(ErrorCode::io,
                 message(file.name, ": must hold at most ", limit, " bytes, got ", size));
  };
  if (file.size > limit) return too_long(file.size);
  // The size is only a first guess: a file may grow, and files of /proc call themselves empty.
  std::string text;
  for (std::size_t step = std::max<std::size_t>(file.size + 1, 4096);; step = kReadStep) {
    const std::size_t before = text.size();
    text.resize(before + step);
    const Result<std::size_t> got =
        read_some(file, std::as_writable_bytes(std::span<char>(text).subspan(before)));
    if (!got) return got.error();
    text.resize(before + *got);
    if (text.size() > limit) return too_long(text.size());
    if (*got < step) return text;
  }
}

Result<Done> replace_file(const fs::path& path,
                          std::span<const std::span<const std::byte>> pieces) {
  const std::string name = shown(path);
  const Result<fs::path> followed = follow_links(path);
  if (!followed) return followed.error();
  const fs::path& target = *followed;
  if (!target.has_filename()) {
    return Error(ErrorCode::io, message(name, ": must name a file, got a path that ends in none"));
  }

  struct stat existing {};
  const bool exists = ::stat(target.c_str(), &existing) == 0;
  if (!exists && errno != ENOENT) return system_error(name, "must be writable", errno);
  if (exists && !S_ISREG(existing.st_mode)) return not_regular(name, existing.st_mode);
  // A rename needs only the folder's permission; a file that its owner made read-only is still
  // refused.
  if (exists && ::access(target.c_str(), W_OK) != 0) {
    return system_error(name, "must be writable", errno);
  }

  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  Descriptor descriptor;
  std::optional<Temporary> temporary;
  for (int i = 0; i < kMaxTemporaryNames && !temporary; ++i) {
    const fs::path candidate = temporary_name(folder);
    descriptor =
        Descriptor(::open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (descriptor.number() >= 0) {
      temporary.emplace(candidate);
    } else if (errno != EEXIST) {
      return system_error(name, "its folder must exist and be writable", errno);
    }
  }
  if (!temporary) return system_error(name, "its folder must have room for a temporary", EEXIST);

  if (exists) {
    // Only root can give a file away; for anyone else the new file is simply theirs.
    const bool other_owner = existing.st_uid != ::geteuid() || existing.st_gid != ::getegid();
    if (other_owner && ::fchown(descriptor.number(), existing.st_uid, existing.st_gid) != 0)
      errno = 0;
    if (::fchmod(descriptor.number(), existing.st_mode & 0777) != 0) {
      return system_error(name, "the new file must take the old one's mode", errno);
    }
  }
  for (const std::span<const std::byte> piece : pieces) {
    if (const int error = write_all(descriptor.number(), piece)) {
      return system_error(name, "must be written whole", error);
    }
  }
  if (const int error = flush(descriptor.number())) {
    return system_error(name, "must reach the disk", error);
  }
  if (const int error = close_checked(std::move(descriptor))) {
    return system_error(name, "must be written whole", error);
  }
  if (::rename(temporary->path().c_str(), target.c_str()) != 0) {
    return system_error(name, "must be replaceable", errno);
  }
  temporary->keep();
  flush_folder(folder);
  return Done{};
}

}  // namespace phasor::io
