#include "phasor/io/internal/temporary_files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <string_view>

namespace phasor::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStart = ".phasor-", kEnd = ".tmp";
constexpr int kMaxNames = 100;  // left over by processes that could not be seen to be dead

// The files being written, for a signal handler, which may neither lock nor allocate. Written
// without a lock: a slot is claimed, filled, and only then shown.
struct Slot {
  enum State : int { free, claimed, shown };
  std::atomic<int> state{free};
  std::array<char, PATH_MAX> path{};
};
static_assert(std::atomic<int>::is_always_lock_free);
// Files that are written at the same time. One more is not in the list, and stays if the process is
// killed, until the next write to its folder.
constexpr std::size_t kSlots = 16;
std::array<Slot, kSlots> g_slots;

[[nodiscard]] std::size_t take_slot(const fs::path& path) noexcept {
  const std::string& text = path.native();
  if (text.size() >= PATH_MAX) return kSlots;
  for (std::size_t i = 0; i < kSlots; ++i) {
    int expected = Slot::free;
    if (!g_slots[i].state.compare_exchange_strong(expected, Slot::claimed)) continue;
    std::memcpy(g_slots[i].path.data(), text.c_str(), text.size() + 1);
    g_slots[i].state.store(Slot::shown);
    return i;
  }
  return kSlots;
}

void give_back(std::size_t slot) noexcept {
  if (slot < kSlots) g_slots[slot].state.store(Slot::free);
}

// Not derived from the target's name, which may already be as long as a name can be.
[[nodiscard]] fs::path temporary_name(const fs::path& folder) {
  static std::atomic<unsigned> counter{0};
  return folder / message(kStart, ::getpid(), "-", counter.fetch_add(1), kEnd);
}

[[nodiscard]] bool is_temporary_name(std::string_view name) noexcept {
  if (!name.starts_with(kStart) || !name.ends_with(kEnd)) return false;
  name = name.substr(kStart.size(), name.size() - kStart.size() - kEnd.size());
  const std::size_t dash = name.find('-');
  const auto is_number = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return dash != std::string_view::npos && is_number(name.substr(0, dash)) &&
         is_number(name.substr(dash + 1));
}

enum class Lock : std::uint8_t { taken, of_another, unavailable };  // unavailable: no locks here

[[nodiscard]] Lock lock(const Descriptor& descriptor) noexcept {
  if (::flock(descriptor.number(), LOCK_EX | LOCK_NB) == 0) return Lock::taken;
  return errno == EWOULDBLOCK ? Lock::of_another : Lock::unavailable;
}

// Removes the files of dead processes. What cannot be read, locked or removed stays.
void sweep(const fs::path& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (entries == nullptr) return;
  while (const dirent* const entry = ::readdir(entries.get())) {
    if (!is_temporary_name(entry->d_name)) continue;
    const fs::path path = folder / entry->d_name;
    // Not blocked by a pipe of this name.
    const Descriptor file(
        ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    struct stat status {};
    if (file.number() < 0 || ::fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode))
      continue;
    if (lock(file) == Lock::taken) ::unlink(path.c_str());
  }
}

// Whether the new file is ours: another process may have swept it before it was locked.
[[nodiscard]] bool holds(const Descriptor& descriptor) noexcept {
  struct stat status {};
  return lock(descriptor) != Lock::of_another && ::fstat(descriptor.number(), &status) == 0 &&
         status.st_nlink > 0;
}

}  // namespace

void remove_temporary_files() noexcept {
  const int before = errno;
  for (const Slot& slot : g_slots) {
    if (slot.state.load() == Slot::shown) ::unlink(slot.path.data());
  }
  errno = before;
}

Result<TemporaryFile> TemporaryFile::create(const fs::path& folder, const std::string& name) {
  sweep(folder);
  for (int i = 0; i < kMaxNames; ++i) {
    fs::path candidate = temporary_name(folder);
    // Listed before it exists: a signal may come as soon as it does.
    const std::size_t slot = take_slot(candidate);
    Descriptor descriptor(::open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    const int reason = errno;
    if (descriptor.number() >= 0 && holds(descriptor))
      return TemporaryFile(std::move(candidate), std::move(descriptor), slot);
    give_back(slot);
    if (descriptor.number() < 0 && reason != EEXIST) return system_error(name, "write", reason);
  }
  return Error(ErrorCode::io, message("cannot write ", name, ": too many temporary files (", kStart,
                                      "*", kEnd, ") in ", shown(folder)));
}

TemporaryFile::TemporaryFile(fs::path path, Descriptor descriptor, std::size_t slot) noexcept
    : path_(std::move(path)), descriptor_(std::move(descriptor)), slot_(slot) {}

TemporaryFile::TemporaryFile(TemporaryFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::move(other.descriptor_)),
      slot_(std::exchange(other.slot_, kSlots)),
      kept_(std::exchange(other.kept_, true)) {}

TemporaryFile::~TemporaryFile() {
  if (!kept_) ::unlink(path_.c_str());
  give_back(slot_);
}

void TemporaryFile::keep() noexcept { kept_ = true; }

}  // namespace phasor::io
