#include "io/arrays/inflate.hpp"

#include <zlib.h>

#include <algorithm>
#include <new>

namespace phasor::io {
namespace {

// zlib counts in 32 bits.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

class ZlibInflater final : public Inflater {
 public:
  ZlibInflater() {
    // -15: the bytes of deflate alone, without zlib's header.
    if (inflateInit2(&stream_, -15) != Z_OK) throw std::bad_alloc();
  }
  ~ZlibInflater() override { inflateEnd(&stream_); }

  [[nodiscard]] Step run(std::span<const std::byte> in, std::span<std::byte> into) override {
    const auto given = static_cast<uInt>(std::min(in.size(), kMostBytes));
    const auto room = static_cast<uInt>(std::min(into.size(), kMostBytes));
    // zlib reads them only; its older headers lack the const.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
    stream_.avail_in = given;
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = room;
    const int code = ::inflate(&stream_, Z_NO_FLUSH);
    if (code == Z_MEM_ERROR) throw std::bad_alloc();
    return {given - stream_.avail_in, room - stream_.avail_out,
            code == Z_STREAM_END ? State::ended
            : code == Z_OK       ? State::more
                                 : State::damaged};
  }

 private:
  z_stream stream_{};
};

}  // namespace

bool can_inflate() noexcept { return true; }

std::unique_ptr<Inflater> make_inflater() { return std::make_unique<ZlibInflater>(); }

std::uint32_t check_sum(std::uint32_t before, std::span<const std::byte> bytes) noexcept {
  // Of a null pointer zlib returns the sum of nothing, not `before`.
  if (bytes.empty()) return before;
  return static_cast<std::uint32_t>(
      crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace phasor::io
