// Zip archives, as NumPy and torch write them: stored and deflated members, 64-bit sizes. Untrusted
// input: every offset and size is checked before it is used, members may not overlap, and a member
// may not inflate to more than deflate can produce or than its entry says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/byte_source.hpp"
#include "io/files/byte_stream.hpp"
#include "phasor/core/error.hpp"

namespace phasor::io {

// Deflate writes at least two bits for 258 bytes.
inline constexpr std::uint64_t kMostInflated = 1032;
// Of names and other facts about members; a member needs 46 bytes and its name.
inline constexpr std::size_t kMaxZipDirectory = std::size_t{64} << 20;

struct ZipMember {
  std::string name;
  enum class Method : std::uint8_t { stored, deflated };
  Method method = Method::stored;
  std::uint32_t crc = 0;               // 0: not written, which torch can be told to do
  std::uint64_t packed = 0, size = 0;  // bytes in the archive, and after inflation
  std::uint64_t data = 0;              // offset of the first byte
};

class ZipArchive {
 public:
  // error    Error(io), with the file's name: no end record, or one that does not fit; a directory or a
  //          member beyond the file; members that overlap, repeat a name, or differ from their local
  //          header; a size that deflate cannot produce. Error(unsupported): encrypted members, several
  //          disks, other methods than stored and deflate
  [[nodiscard]] static Result<ZipArchive> open(std::shared_ptr<const ByteSource> source,
                                               std::string name);

  [[nodiscard]] const std::vector<ZipMember>& members() const noexcept { return members_; }
  // Null when the name is unknown.
  [[nodiscard]] const ZipMember* find(std::string_view name) const noexcept;

  // The member's bytes, inflated. The archive must outlive the stream. Reading the last byte checks size
  // and check sum: Error(io).
  [[nodiscard]] std::unique_ptr<ByteStream> stream(const ZipMember& member) const;
  // The whole member, of at most `limit` bytes.
  [[nodiscard]] Result<std::vector<std::byte>> read(const ZipMember& member,
                                                    std::size_t limit) const;
  // Bytes [first, first + into.size()) of a member. Those of a stored one are read alone, and its check
  // sum is compared only if they are all of it.
  //
  // precondition  they are within its size
  [[nodiscard]] Result<Done> read_part(const ZipMember& member, std::uint64_t first,
                                       std::span<std::byte> into) const;

 private:
  std::shared_ptr<const ByteSource> source_;
  std::string name_;
  std::vector<ZipMember> members_;
};

}  // namespace phasor::io
