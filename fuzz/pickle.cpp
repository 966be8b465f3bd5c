// The pickle of a .pt file, in an archive with two storages: mutations reach the pickle without having to
// keep an archive whole.
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "arrays.hpp"

using namespace phasor;

namespace {

struct Member {
  std::string_view name, data;
};

// Stored, without check sums.
std::string zip_of(std::initializer_list<Member> members) {
  const auto put = [](std::string& text, std::size_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 0xff);
  };
  std::string file, directory;
  for (const Member& member : members) {
    const std::size_t at = file.size();
    for (const bool local : {true, false}) {
      std::string& text = local ? file : directory;
      put(text, local ? 0x04034b50 : 0x02014b50, 4);
      text.append(local ? 14 : 16, '\0');  // versions, flags, method, time, date, check sum
      put(text, member.data.size(), 4);
      put(text, member.data.size(), 4);
      put(text, member.name.size(), 2);
      text.append(local ? 2 : 12, '\0');  // extra field, comment, disk, attributes
      if (!local) put(text, at, 4);
      text += member.name;
    }
    file += member.data;
  }
  const std::size_t at = file.size();
  file += directory;
  put(file, 0x06054b50, 4);
  put(file, 0, 4);
  put(file, members.size(), 2);
  put(file, members.size(), 2);
  put(file, directory.size(), 4);
  put(file, at, 4);
  put(file, 0, 2);
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > fuzz::kMaxInput) return 0;
  const std::string first(96, '\1'), second(48, '\2');
  const std::string file = zip_of(
      {{"a/data.pkl", fuzz::text_of(data, size)}, {"a/data/0", first}, {"a/data/1", second}});
  fuzz::read_arrays(std::as_bytes(std::span(file)));
  return 0;
}
