// Zip archives made byte by byte, so that a test can make any part of them wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace phasor::io::testing {

// As the records say; what a test does not set is right.
struct ZipPart {
  std::string name, data;
  std::uint16_t method = 0, flags = 0;
  std::uint32_t crc = 0;  // 0: not written
  // What the directory says.
  std::optional<std::uint64_t> size = {}, packed = {}, offset = {};
  std::optional<std::string> local_name = {};
  bool in_64_bits = false;  // sizes and offset are in the extra field
};

enum class ZipEnd : std::uint8_t { plain, in_64_bits };

inline std::string zip_bytes(const std::vector<ZipPart>& parts, ZipEnd end = ZipEnd::plain,
                             std::string_view comment = "") {
  const auto put = [](std::string& text, auto number) {
    text.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  const auto u16 = [&](std::string& text, std::uint64_t value) {
    put(text, static_cast<std::uint16_t>(value));
  };
  const auto u32 = [&](std::string& text, std::uint64_t value) {
    put(text, static_cast<std::uint32_t>(value));
  };
  std::string file, directory;
  for (const ZipPart& part : parts) {
    const std::uint64_t offset = part.offset.value_or(file.size());
    const std::uint64_t packed = part.packed.value_or(part.data.size());
    const std::uint64_t size = part.size.value_or(part.data.size());
    const std::string local = part.local_name.value_or(part.name);
    u32(file, 0x04034b50);
    for (const std::uint64_t field : {20U, 0U + part.flags, 0U + part.method, 0U, 0U})
      u16(file, field);
    for (const std::uint64_t field : {std::uint64_t{part.crc}, packed, size}) u32(file, field);
    u16(file, local.size());
    u16(file, 0);
    file += local + part.data;

    std::string extra;
    if (part.in_64_bits) {
      u16(extra, 1);
      u16(extra, 24);
      for (const std::uint64_t value : {size, packed, offset}) put(extra, value);
    }
    u32(directory, 0x02014b50);
    for (const std::uint64_t field : {20U, 20U, 0U + part.flags, 0U + part.method, 0U, 0U})
      u16(directory, field);
    u32(directory, part.crc);
    u32(directory, part.in_64_bits ? 0xffffffff : packed);
    u32(directory, part.in_64_bits ? 0xffffffff : size);
    for (const std::uint64_t field :
         {part.name.size(), extra.size(), std::size_t{0}, std::size_t{0}, std::size_t{0}})
      u16(directory, field);
    u32(directory, 0);
    u32(directory, part.in_64_bits ? 0xffffffff : offset);
    directory += part.name + extra;
  }
  const std::uint64_t at = file.size();
  file += directory;
  const bool wide = end == ZipEnd::in_64_bits;
  if (wide) {
    const std::uint64_t record = file.size();
    u32(file, 0x06064b50);
    put(file, std::uint64_t{44});
    u16(file, 45);
    u16(file, 45);
    u32(file, 0);
    u32(file, 0);
    for (const std::uint64_t field : {std::uint64_t{parts.size()}, std::uint64_t{parts.size()},
                                      std::uint64_t{directory.size()}, at})
      put(file, field);
    u32(file, 0x07064b50);
    u32(file, 0);
    put(file, record);
    u32(file, 1);
  }
  u32(file, 0x06054b50);
  u16(file, 0);
  u16(file, 0);
  u16(file, wide ? 0xffff : parts.size());
  u16(file, wide ? 0xffff : parts.size());
  u32(file, wide ? 0xffffffff : directory.size());
  u32(file, wide ? 0xffffffff : at);
  u16(file, comment.size());
  return file.append(comment);
}

}  // namespace phasor::io::testing
