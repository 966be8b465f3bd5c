// XXH64 against the values of its specification.
#include "phasor/io/internal/content_hash.hpp"

#include <gtest/gtest.h>

#include <string>

#include "phasor/io/internal/posix_file.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::io {
namespace {

std::uint64_t hash_of(std::string_view text) {
  ContentHash hash;
  hash.add(text);
  return hash.value();
}

TEST(ContentHash, IsXxh64) {
  EXPECT_EQ(hash_of(""), 0xEF46DB3751D8E999U);
  EXPECT_EQ(hash_of("a"), 0xD24EC4F1A98C6E5BU);
  EXPECT_EQ(hash_of("abc"), 0x44BC2CF5AD770999U);
  EXPECT_EQ(hash_of("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1U);
  ContentHash hash;
  hash.add("abc");
  EXPECT_EQ(hash.text(), "xxh64:44bc2cf5ad770999");
}

TEST(ContentHash, PiecesAreTheWhole) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i * 37);
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const std::string_view part = std::string_view(text).substr(0, size);
    ContentHash pieces;
    for (std::size_t at = 0, step = 1; at < size; at += step, step = step % 45 + 7)
      pieces.add(part.substr(at, step));
    EXPECT_EQ(pieces.value(), hash_of(part)) << size;
  }
}

class ContentHashOfFile : public testing::TemporaryFolder {};

TEST_F(ContentHashOfFile, SeesEveryByte) {
  std::string text(3'000'001, 'x');
  testing::put(at("a"), text);
  const auto file_hash = [&] {
    ContentHash hash;
    hash.add_file(open_input(at("a")).value_or_throw());
    return hash.value();
  };
  const std::uint64_t before = file_hash();
  EXPECT_EQ(before, hash_of(text));
  for (const std::size_t at_byte : {std::size_t{0}, std::size_t{1} << 20, text.size() - 1}) {
    std::string other = text;
    other[at_byte] ^= 1;
    testing::put(at("a"), other);
    EXPECT_NE(file_hash(), before) << at_byte;
  }
}

}  // namespace
}  // namespace phasor::io
