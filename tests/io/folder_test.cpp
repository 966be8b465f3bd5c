// Folders and what is in them.
#include "phasor/io/internal/folder.hpp"

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace phasor::io {
namespace {

using Names = std::vector<std::string>;

TEST(AsFolder, HasNoSlashAtItsEnd) {
  EXPECT_EQ(as_folder("model//").string(), "model");
  EXPECT_EQ(as_folder("a/b").string(), "a/b");
  EXPECT_EQ(as_folder("//").string(), "/");
  EXPECT_EQ(as_folder("").string(), "");
}

class FolderTest : public testing::TemporaryFolder {};

TEST_F(FolderTest, IsListedInOrderWithoutFollowingLinks) {
  std::filesystem::create_directories(at("b/inner"));
  testing::put(at("b/inner/x"), "1");
  testing::put(at("b/.hidden"), "2");
  testing::put(at("a"), "3");
  std::filesystem::create_directory_symlink(at("b"), at("link"));
  EXPECT_EQ(names_in(at("")).value_or_throw(), (Names{"a", "b", "link"}));
  EXPECT_EQ(files_below(at("")).value_or_throw(), (Names{"a", "b/.hidden", "b/inner/x", "link"}));
  EXPECT_EQ(names_in(at("missing")).error().code(), ErrorCode::io);
  EXPECT_EQ(files_below(at("a")).error().code(), ErrorCode::io);
}

}  // namespace
}  // namespace phasor::io
