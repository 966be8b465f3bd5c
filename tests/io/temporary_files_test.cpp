// Temporary files of processes that were killed.
#include "phasor/io/internal/temporary_files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "phasor/io/internal/file.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::io {
namespace {

namespace fs = std::filesystem;
using testing::get;
using testing::put;

class TemporaryFiles : public testing::TemporaryFolder {
 protected:
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(at("."))) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  void write(std::string_view name) const {
    const std::span<const std::byte> piece = testing::bytes_of("text");
    ASSERT_TRUE(replace_file(at(name), std::span(&piece, 1)).ok());
  }
  // Runs in a process of its own, which ends without destructors.
  template <class Call>
  void in_child(const Call& call) const {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      call();
      std::_Exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
};

using Names = std::vector<std::string>;

TEST_F(TemporaryFiles, OfADeadProcessAreRemovedByTheNextWrite) {
  in_child([&] {
    auto* const file = new TemporaryFile(TemporaryFile::create(at("."), "a").value_or_throw());
    if (::write(file->descriptor().number(), "half", 4) != 4) std::_Exit(1);
  });
  ASSERT_EQ(names().size(), 1U);
  EXPECT_TRUE(names()[0].starts_with(".phasor-"));
  write("a");
  EXPECT_EQ(names(), Names{"a"});
}

TEST_F(TemporaryFiles, ThatAreBeingWrittenStay) {
  const TemporaryFile file = TemporaryFile::create(at("."), "a").value_or_throw();
  in_child([&] { write("b"); });
  write("c");
  EXPECT_TRUE(fs::exists(file.path()));
  EXPECT_EQ(names().size(), 3U);
}

TEST_F(TemporaryFiles, OnlyRegularFilesOfTheirNameAreRemoved) {
  const Names others = {".phasor-.tmp",    ".phasor-1.tmp",   ".phasor-1-2.tmp.bak",
                        ".phasor-1-x.tmp", ".phasor-12-.tmp", "phasor-1-2.tmp"};
  for (const std::string& name : others) put(at(name), "mine");
  fs::create_directory(at(".phasor-1-0.tmp"));
  ASSERT_EQ(::mkfifo(at(".phasor-1-1.tmp").c_str(), 0600), 0);
  put(at("target"), "mine");
  fs::create_symlink("target", at(".phasor-1-2.tmp"));
  put(at(".phasor-1-3.tmp"), "stale");
  const std::size_t before = names().size();
  write("a");
  EXPECT_EQ(names().size(), before);  // one less, one more
  EXPECT_FALSE(fs::exists(at(".phasor-1-3.tmp")));
  EXPECT_EQ(get(at("target")), "mine");
}

TEST_F(TemporaryFiles, AreRemovedByASignalHandler) {
  in_child([&] {
    std::vector<TemporaryFile> files;
    for (int i = 0; i < 3; ++i)
      files.push_back(TemporaryFile::create(at("."), "a").value_or_throw());
    { const TemporaryFile gone = TemporaryFile::create(at("."), "a").value_or_throw(); }
    std::signal(SIGTERM, [](int) {
      remove_temporary_files();
      std::_Exit(0);
    });
    std::raise(SIGTERM);
    std::_Exit(1);
  });
  EXPECT_EQ(names(), Names{});
}

// The list of a signal handler has room for some; the others are ordinary temporary files.
TEST_F(TemporaryFiles, AnyNumberAtATime) {
  {
    std::vector<TemporaryFile> files;
    for (int i = 0; i < 50; ++i)
      files.push_back(TemporaryFile::create(at("."), "a").value_or_throw());
    EXPECT_EQ(names().size(), 50U);
  }
  EXPECT_EQ(names(), Names{});
  for (int i = 0; i < 50; ++i) write("a");
  EXPECT_EQ(names(), Names{"a"});
}

}  // namespace
}  // namespace phasor::io
