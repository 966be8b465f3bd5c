#include "phasor/io/internal/file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <string>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::io {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of;
using testing::get;
using testing::put;

class File : public testing::TemporaryFolder {};

Result<Done> replace(const fs::path& path, std::string_view text) {
  const std::array<std::span<const std::byte>, 1> pieces{bytes_of(text)};
  return replace_file(path, pieces);
}

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

TEST_F(File, ReadsTextWhole) {
  const std::string text = "one\ntwo\0three" + std::string(3'000'000, 'x');
  put(at("a"), text);
  const auto got = read_text(at("a"));
  ASSERT_TRUE(got.ok()) << got.error().what();
  EXPECT_EQ(*got, text);
}

TEST_F(File, ReadsUpToTheLimitAndNoFurther) {
  put(at("a"), "12345");
  EXPECT_TRUE(read_text(at("a"), 5).ok());
  tests::expect_error(ErrorCode::io, {at("a").string(), " 5 ", " 4"}, read_text(at("a"), 4));
}

TEST_F(File, ReadsAnEmptyFile) {
  put(at("a"), "");
  const auto got = read_text(at("a"));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, "");
}

TEST_F(File, RefusesToReadWhatIsNoRegularFile) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  for (const auto& [path, got] : {std::pair<fs::path, std::string>{at("pipe"), "a pipe"},
                                  {at("."), "a directory"},
                                  {"/dev/null", "a device"},
                                  {at("missing"), "no such file or directory"}}) {
    tests::expect_error(ErrorCode::io, {path.string(), got}, read_text(path));
  }
}

TEST_F(File, AMessageStaysOnOneLine) {
  const auto read = read_text(at("new\nline"));
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(std::string(read.error().what()).find('\n'), std::string::npos);
}

TEST_F(File, WritesThePiecesInOrder) {
  const std::array<std::span<const std::byte>, 3> pieces{bytes_of("ab"), {}, bytes_of("cd")};
  ASSERT_TRUE(replace_file(at("a"), pieces).ok());
  EXPECT_EQ(get(at("a")), "abcd");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(File, ReplacesAndLeavesNoTemporary) {
  put(at("a"), "a much longer old text");
  ASSERT_TRUE(replace(at("a"), "new").ok());
  EXPECT_EQ(get(at("a")), "new");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(File, ANewFileFollowsTheUmaskAndAnOldOneKeepsItsMode) {
  const mode_t before = ::umask(027);
  ASSERT_TRUE(replace(at("a"), "x").ok());
  EXPECT_EQ(mode_of(at("a")), 0640U);
  ASSERT_EQ(::chmod(at("a").c_str(), 0604), 0);
  ASSERT_TRUE(replace(at("a"), "y").ok());
  EXPECT_EQ(mode_of(at("a")), 0604U);
  ::umask(before);
}

TEST_F(File, WritesThroughLinks) {
  fs::create_directory(at("sub"));
  put(at("sub/real"), "old");
  fs::create_symlink("sub/real", at("link"));
  fs::create_symlink("link", at("link_to_link"));
  ASSERT_TRUE(replace(at("link_to_link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(at("link_to_link")));
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(get(at("sub/real")), "new");
}

TEST_F(File, ALinkToNothingMakesItsTarget) {
  fs::create_symlink("later", at("link"));
  ASSERT_TRUE(replace(at("link"), "x").ok());
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(get(at("later")), "x");
}

TEST_F(File, ANameAsLongAsANameCanBe) {
  const fs::path path = at(std::string(255, 'n'));
  ASSERT_TRUE(replace(path, "x").ok());
  EXPECT_EQ(get(path), "x");
}

TEST_F(File, RefusesPathsThatCannotBeWritten) {
  put(at("file"), "text");
  fs::create_symlink("loop", at("loop"));
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const struct {
    fs::path path;
    std::string_view reason;
  } cases[] = {
      {at("missing/a"), "no such file or directory"},
      {at("file/a"), "not a directory"},
      {at("loop"), "symbolic links"},
      {at("."), "a directory"},
      {at("") / "", "no file name"},
      {"", "no file name"},
      {at("pipe"), "a pipe"},
      {"/dev/null", "a device"},
      {"/dev/full", "a device"},
      {at(std::string(256, 'n')), "file name too long"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.path.string());
    const auto result = replace(c.path, "x");
    tests::expect_error(ErrorCode::io,
                        {c.path.empty() ? "(empty path)" : c.path.string(), c.reason}, result);
    EXPECT_EQ(std::string_view(result.error().what()).find('\n'), std::string_view::npos);
  }
  EXPECT_EQ(get(at("file")), "text");
  EXPECT_EQ(entries(), 3U);
}

// A write that fails half-way, as on a full disk: the process may write no file above 4 KiB.
TEST_F(File, AFailedWriteLeavesTheOldFileAndNoTemporary) {
  put(at("a"), "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto result = replace(at("a"), std::string(100'000, 'x'));
  const auto fresh = replace(at("b"), std::string(100'000, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);

  tests::expect_error(ErrorCode::io, {at("a").string(), "file too large"}, result);
  tests::expect_error(ErrorCode::io, {at("b").string(), "file too large"}, fresh);
  EXPECT_EQ(get(at("a")), "old");
  EXPECT_EQ(entries(), 1U);
}

}  // namespace
}  // namespace phasor::io
