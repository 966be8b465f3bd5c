#include "phasor/io/internal/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "phasor/io/internal/posix_file.hpp"
#include "phasor/io/internal/temporary_files.hpp"

namespace phasor::io {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // as the kernel
constexpr std::size_t kReadStep = std::size_t{1} << 20;

// "no such file or directory". std::strerror shares one buffer between threads; this does not.
std::string text_of(int error_number) {
  if (error_number == ENOMEM) return "out of memory";
  std::string text = std::generic_category().message(error_number);
  const bool is_acronym = text.size() > 1 && text[1] >= 'A' && text[1] <= 'Z';
  if (!is_acronym && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] + 32);
  return text;
}

Error cannot(std::string_view doing, const std::string& name, std::string_view reason) {
  return {ErrorCode::io, message("cannot ", doing, " ", name, ": ", reason)};
}

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "a special file";
}

Error not_regular(std::string_view doing, const std::string& name, mode_t mode) {
  return cannot(doing, name, message("it is ", kind_of(mode), ", not a regular file"));
}

// The target of `path` after its links: renaming over a link would replace the link. The last
// target need not exist.
Result<fs::path> follow_links(const fs::path& path) {
  fs::path target = path;
  for (int i = 0; i <= kMaxLinks; ++i) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(target, error);
    if (status.type() != fs::file_type::symlink) return target;
    const fs::path next = fs::read_symlink(target, error);
    if (error) return system_error(shown(path), "follow the link", error.value());
    target = target.parent_path() / next;  // an absolute `next` replaces the parent
  }
  return system_error(shown(path), "follow the link", ELOOP);
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

// Reports what closing the file would report, such as a full disk of a network file system. The file
// stays open, and so locked, under its first descriptor.
int close_copy(int descriptor) {
  const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  // Linux has closed the descriptor even when EINTR comes back.
  return (copy < 0 || ::close(copy) != 0) && errno != EINTR ? errno : 0;
}

// Makes the rename durable. Some file systems cannot flush a folder, and the new file is in place
// by now, so a failure here does not fail the write.
void flush_folder(const fs::path& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.number() >= 0) flush(descriptor.number());
}

}  // namespace

Error system_error(const std::string& name, std::string_view doing, int error_number) {
  return cannot(doing, name, text_of(error_number));
}

std::string shown(const fs::path& path) {
  return path.empty() ? "(empty path)" : one_line(path.string(), std::string::npos);
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Result<InputFile> open_input(const fs::path& path) {
  InputFile file;
  file.name = shown(path);
  // O_NONBLOCK: opening a pipe without a writer would block forever.
  file.descriptor = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.descriptor.number() < 0) return system_error(file.name, "open", errno);
  struct stat status {};
  if (::fstat(file.descriptor.number(), &status) != 0) {
    return system_error(file.name, "open", errno);
  }
  if (!S_ISREG(status.st_mode)) return not_regular("open", file.name, status.st_mode);
  file.size = static_cast<std::size_t>(status.st_size);
  file.state = state_of(status);
  return file;
}

FileState state_of(const struct stat& status) noexcept {
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
          std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

Result<Done> check_unchanged(const InputFile& file, std::string_view doing) {
  struct stat status {};
  if (::fstat(file.descriptor.number(), &status) != 0)
    return system_error(file.name, "read", errno);
  const FileState now = state_of(status);
  if (now == file.state) return Done{};
  const std::string what =
      now.size == file.state.size
          ? message("its ", now.size, " bytes were written to")
          : message("it has ", now.size, " bytes, ", file.state.size, " before");
  return file_error(file.name, message("the file changed while it was ", doing, ": ", what));
}

Result<Done> read_at(const InputFile& file, std::uint64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got =
        ::pread(file.descriptor.number(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(file.name, "read", errno);
    if (got == 0) {
      return file_error(file.name, message("the file became shorter while it was read: it had ",
                                           file.size, " bytes and ends at ", offset, " or before"));
    }
    offset += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return Done{};
}

Result<std::size_t> read_some(const InputFile& file, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const std::span<std::byte> rest = into.subspan(done);
    const ssize_t got = ::read(file.descriptor.number(), rest.data(), rest.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(file.name, "read", errno);
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
    return cannot("read", file.name, message("it has ", size, " bytes, the limit is ", limit));
  };
  if (file.size > limit) return too_long(file.size);
  // The size is only a first guess: a file may grow, and files of /proc report a size of 0.
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
  return replace_file(path, [&](const PutBytes& put) -> Result<Done> {
    for (const std::span<const std::byte> piece : pieces) {
      if (const Result<Done> done = put(piece); !done) return done;
    }
    return Done{};
  });
}

Result<Done> replace_file(const fs::path& path,
                          const std::function<Result<Done>(const PutBytes& put)>& write) {
  const std::string name = shown(path);
  const Result<fs::path> followed = follow_links(path);
  if (!followed) return followed.error();
  const fs::path& target = *followed;
  if (!target.has_filename()) {
    return cannot("write", name, "the path has no file name");
  }

  struct stat existing {};
  const bool exists = ::stat(target.c_str(), &existing) == 0;
  if (!exists && errno != ENOENT) return system_error(name, "write", errno);
  if (exists && !S_ISREG(existing.st_mode)) return not_regular("write", name, existing.st_mode);
  // A rename needs only the folder's permission; a read-only file is still an error.
  if (exists && ::access(target.c_str(), W_OK) != 0) {
    return system_error(name, "write", errno);
  }

  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  Result<TemporaryFile> created = TemporaryFile::create(folder, name);
  if (!created) return created.error();
  TemporaryFile temporary = std::move(created).value();
  const int descriptor = temporary.descriptor().number();
  if (exists) {
    // Only root can change the owner; otherwise the new file belongs to the writer.
    const bool other_owner = existing.st_uid != ::geteuid() || existing.st_gid != ::getegid();
    if (other_owner && ::fchown(descriptor, existing.st_uid, existing.st_gid) != 0) errno = 0;
    if (::fchmod(descriptor, existing.st_mode & 0777) != 0) {
      return system_error(name, "set the mode of", errno);
    }
  }
  const Result<Done> written = write([&](std::span<const std::byte> piece) -> Result<Done> {
    if (const int error = write_all(descriptor, piece)) return system_error(name, "write", error);
    return Done{};
  });
  if (!written) return written;
  if (const int error = flush(descriptor)) {
    return system_error(name, "flush", error);
  }
  if (const int error = close_copy(descriptor)) {
    return system_error(name, "write", error);
  }
  if (::rename(temporary.path().c_str(), target.c_str()) != 0) {
    return system_error(name, "replace", errno);
  }
  temporary.keep();
  flush_folder(folder);
  return Done{};
}

}  // namespace phasor::io
