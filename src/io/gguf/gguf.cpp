#include "phasor/io/tensors.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "io/gguf/directory.hpp"
#include "io/gguf/metadata.hpp"
#include "phasor/io/internal/posix_file.hpp"

namespace phasor::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "GGUF values are copied from the file, which is little-endian");

constexpr std::string_view kGgufMagic = "GGUF";
constexpr std::size_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 30;

[[nodiscard]] std::uint32_t read_version(GgufCursor& cursor) {
  const auto version = cursor.take<std::uint32_t>("version");
  if ((version & 0xffffU) == 0 && version != 0)
    refuse(message("big-endian files are not supported, got version ", version));
  if (version != 2 && version != 3) refuse(message("version must be 2 or 3, got ", version));
  return version;
}

[[nodiscard]] Error wrong_kind(const GgufFile& file, std::string_view key, std::string_view kind,
                               std::string_view got) {
  return {ErrorCode::invalid_argument,
          message(file.name(), ": key ", quoted_name(key), " must be ", kind, ", got ", got)};
}

[[nodiscard]] std::string_view kind_of(const GgufValue& value) {
  constexpr std::array<std::string_view, std::variant_size_v<GgufValue>> kKinds = {
      "a bool",
      "an integer",
      "an integer",
      "a float",
      "a string",
      "an array of bools",
      "an array of integers",
      "an array of integers",
      "an array of floats",
      "an array of strings"};
  return kKinds[value.index()];
}

constexpr std::uint64_t kMostSigned = std::numeric_limits<std::int64_t>::max();

}  // namespace

Result<GgufFile> GgufFile::read(const ByteSource& source, std::string_view name) {
  try {
    std::string start(std::min(source.size(), kGgufMagic.size()), '\0');
    source.read(0, std::as_writable_bytes(std::span(start)));
    if (start != kGgufMagic)
      refuse(message("not a GGUF file: it must start with \"GGUF\", got ", in_quotes(start)));
    GgufFile file;
    file.name_ = name;
    GgufCursor cursor(source);
    static_cast<void>(cursor.take<std::uint32_t>("magic"));
    file.version_ = read_version(cursor);
    const auto tensor_count = cursor.take<std::uint64_t>("tensor count");
    const auto pair_count = cursor.take<std::uint64_t>("metadata count");
    file.metadata_ = read_gguf_metadata(cursor, pair_count);

    std::size_t alignment = kDefaultAlignment;
    if (const auto found = file.metadata_.find("general.alignment");
        found != file.metadata_.end()) {
      const auto* value = std::get_if<std::uint64_t>(&found->second);
      if (value == nullptr || !std::has_single_bit(*value) || *value > kMaxAlignment) {
        refuse(message(
            "general.alignment must be a power of two up to ", kMaxAlignment, ", got ",
            value == nullptr ? std::string(kind_of(found->second)) : std::to_string(*value)));
      }
      alignment = static_cast<std::size_t>(*value);
    }
    GgufDirectory directory = read_gguf_directory(cursor, tensor_count, alignment, source);
    file.tensors_ = std::move(directory.tensors);
    file.skipped_ = std::move(directory.skipped);
    for (std::size_t i = 0; i < file.tensors_.size(); ++i)
      file.by_name_.emplace(file.tensors_[i].name, i);
    return file;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io) return error;  // names the file
    return in_file(name, error);
  }
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string_view name) {
  return read(ByteSource(bytes), name);
}

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  Result<InputFile> opened = open_input(path);
  if (!opened) return opened.error();
  const auto file = std::make_shared<const InputFile>(std::move(opened).value());
  return read(ByteSource(file), file->name);
}

const Tensor* GgufFile::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Result<std::optional<std::int64_t>> GgufFile::integer(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return std::optional<std::int64_t>();
  if (const auto* plain = std::get_if<std::int64_t>(&found->second)) return std::optional(*plain);
  if (const auto* wide = std::get_if<std::uint64_t>(&found->second)) {
    if (*wide <= kMostSigned) return std::optional(static_cast<std::int64_t>(*wide));
    return wrong_kind(*this, key, "an integer below 2^63", std::to_string(*wide));
  }
  return wrong_kind(*this, key, "an integer", kind_of(found->second));
}

Result<std::optional<double>> GgufFile::number(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return std::optional<double>();
  if (const auto* real = std::get_if<double>(&found->second)) return std::optional(*real);
  if (const auto* plain = std::get_if<std::int64_t>(&found->second))
    return std::optional(static_cast<double>(*plain));
  if (const auto* wide = std::get_if<std::uint64_t>(&found->second))
    return std::optional(static_cast<double>(*wide));
  return wrong_kind(*this, key, "a number", kind_of(found->second));
}

Result<std::optional<bool>> GgufFile::flag(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return std::optional<bool>();
  if (const auto* value = std::get_if<bool>(&found->second)) return std::optional(*value);
  return wrong_kind(*this, key, "a bool", kind_of(found->second));
}

Result<std::optional<std::string>> GgufFile::text(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return std::optional<std::string>();
  if (const auto* value = std::get_if<std::string>(&found->second)) return std::optional(*value);
  return wrong_kind(*this, key, "a string", kind_of(found->second));
}

Result<std::optional<std::vector<std::int64_t>>> GgufFile::integers(std::string_view key) const {
  using Integers = std::vector<std::int64_t>;
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return std::optional<Integers>();
  if (const auto* plain = std::get_if<Integers>(&found->second)) return std::optional(*plain);
  const auto* wide = std::get_if<std::vector<std::uint64_t>>(&found->second);
  if (wide == nullptr)
    return wrong_kind(*this, key, "an array of integers", kind_of(found->second));
  Integers narrowed;
  narrowed.reserve(wide->size());
  for (const std::uint64_t value : *wide) {
    if (value > kMostSigned)
      return wrong_kind(*this, key, "an array of integers below 2^63", std::to_string(value));
    narrowed.push_back(static_cast<std::int64_t>(value));
  }
  return std::optional(std::move(narrowed));
}

bool looks_like_gguf(const std::filesystem::path& path) noexcept {
  // By system calls: open_input() needs memory, and without it a model would be taken for another
  // kind of file. A pipe without a writer is no reason to wait.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::array<char, kGgufMagic.size()> start{};
  return file.number() >= 0 &&
         ::pread(file.number(), start.data(), start.size(), 0) == ssize_t{start.size()} &&
         std::string_view(start.data(), start.size()) == kGgufMagic;
}

}  // namespace phasor::io
