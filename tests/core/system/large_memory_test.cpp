#include "phasor/core/internal/large_memory.hpp"

#include <gtest/gtest.h>

#if defined(__linux__)
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace phasor::core {
namespace {

// Whether the mapping of an address was advised to use huge pages: "hg" among its flags in
// /proc/self/smaps.
bool is_advised(const std::byte* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin <= wanted && wanted < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line.find(" hg") != std::string::npos;
    }
  }
  ADD_FAILURE() << "no mapping of the address";
  return false;
}

class PreferHugePages : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = std::size_t{16} << 20;

  void SetUp() override {
    if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage"))
      GTEST_SKIP() << "this kernel has no transparent huge pages";
    void* const mapped =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    memory_ = static_cast<std::byte*>(mapped);
  }
  void TearDown() override {
    if (memory_ != nullptr) munmap(memory_, kBytes);
  }
  std::byte* memory_ = nullptr;
};

TEST_F(PreferHugePages, AdvisesTheWholePagesOfALargeBlock) {
  // As glibc gives it: 64 bytes after the beginning of a page.
  prefer_huge_pages(memory_ + 64, kBytes - 64);
  EXPECT_TRUE(is_advised(memory_ + kBytes / 2));
  EXPECT_TRUE(is_advised(memory_ + kBytes - 1));
  EXPECT_FALSE(is_advised(memory_));
}

TEST_F(PreferHugePages, KeepsWhatWasWritten) {
  memory_[kBytes / 2] = std::byte{7};
  prefer_huge_pages(memory_, kBytes);
  EXPECT_EQ(memory_[kBytes / 2], std::byte{7});
}

TEST_F(PreferHugePages, LeavesASmallBlockAlone) {
  prefer_huge_pages(memory_, std::size_t{1} << 20);
  EXPECT_FALSE(is_advised(memory_));
}

}  // namespace
}  // namespace phasor::core
#endif
