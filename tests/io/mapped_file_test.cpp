#include "phasor/io/tensors.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::io {
namespace {

using testing::put;

class Mapped : public testing::TemporaryFolder {};

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(Mapped, HoldsTheBytesOfTheFile) {
  put(at("a"), "some text");
  const auto file = MappedFile::open(at("a"));
  ASSERT_TRUE(file.ok()) << file.error().what();
  EXPECT_EQ(text_of(file->bytes()), "some text");
  EXPECT_EQ(file->name(), at("a").string());
}

TEST_F(Mapped, AnEmptyFileHasNoBytes) {
  put(at("a"), "");
  const auto file = MappedFile::open(at("a"));
  ASSERT_TRUE(file.ok()) << file.error().what();
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(Mapped, RefusesWhatIsNoRegularFile) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  for (const auto& path :
       {at("missing"), at("."), at("pipe"), std::filesystem::path("/dev/zero")}) {
    tests::expect_error(ErrorCode::io, {path.string()}, MappedFile::open(path));
  }
}

TEST_F(Mapped, MovesKeepTheBytesWhereTheyAre) {
  put(at("a"), "first");
  put(at("b"), "second");
  MappedFile a = MappedFile::open(at("a")).value_or_throw();
  const std::byte* const address = a.bytes().data();
  MappedFile moved(std::move(a));
  EXPECT_EQ(moved.bytes().data(), address);
  moved = MappedFile::open(at("b")).value_or_throw();
  EXPECT_EQ(text_of(moved.bytes()), "second");
}

TEST_F(Mapped, AReplacedFileStaysAsItWas) {
  put(at("a"), "old");
  const auto file = MappedFile::open(at("a"));
  ASSERT_TRUE(file.ok());
  put(at("b"), "new");
  std::filesystem::rename(at("b"), at("a"));
  EXPECT_EQ(text_of(file->bytes()), "old");
}

std::size_t resident_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::size_t resident = 0, kilobytes = 0;
  // Rss of the mapping that starts at the first byte, in KiB.
  char address[32];
  std::snprintf(address, sizeof address, "%lx-", reinterpret_cast<unsigned long>(bytes.data()));
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(address)) inside = true;
    if (inside && std::sscanf(line.c_str(), "Rss: %zu", &kilobytes) == 1) {
      resident = kilobytes * 1024 / page;
      break;
    }
  }
  return resident;
}

TEST_F(Mapped, ReleasedPagesGoAndComeBack) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::string text(64 * page, 'x');
  text[40 * page + 7] = 'y';
  put(at("a"), text);
  const auto file = MappedFile::open(at("a"));
  ASSERT_TRUE(file.ok());
  file->will_need(file->bytes());
  EXPECT_EQ(text_of(file->bytes()), text);
  EXPECT_EQ(resident_pages(file->bytes()), 64U);
  // From the middle of a page: the whole page goes.
  file->release(file->bytes().subspan(page / 2, 32 * page));
  EXPECT_LE(resident_pages(file->bytes()), 32U);
  EXPECT_EQ(text_of(file->bytes()), text);
}

TEST_F(Mapped, HintsAboutOtherMemoryAreIgnored) {
  put(at("a"), "text");
  const auto file = MappedFile::open(at("a"));
  ASSERT_TRUE(file.ok());
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<std::byte> other(4 * page, std::byte{7});
  file->release(other);
  file->will_need(other);
  file->release({});
  MappedFile().release(other);
  EXPECT_EQ(std::count(other.begin(), other.end(), std::byte{7}),
            static_cast<std::ptrdiff_t>(other.size()));
}

}  // namespace
}  // namespace phasor::io
