#include "phasor/io/safetensors.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "io/safetensors/header.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/shape.hpp"

namespace phasor::io {
namespace {

using Entry = SafetensorsHeader::Entry;

Error damaged(std::string_view name, const std::string& expected, const std::string& got) {
  return {ErrorCode::io, message(name, ": ", expected, ", got ", got)};
}

Result<std::string_view> header_text(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.size() < kSafetensorsLengthField) {
    return damaged(
        name, message("a safetensors file must have at least ", kSafetensorsLengthField, " bytes"),
        message(bytes.size()));
  }
  std::uint64_t length = 0;
  for (std::size_t i = kSafetensorsLengthField; i-- > 0;)
    length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  if (length > kMaxSafetensorsHeader) {
    return damaged(name, message("header must have at most ", kMaxSafetensorsHeader, " bytes"),
                   message(length));
  }
  const std::span<const std::byte> rest = bytes.subspan(kSafetensorsLengthField);
  if (length > rest.size()) {
    return damaged(name, message("file must hold its header of ", length, " bytes"),
                   message(rest.size(), " bytes"));
  }
  return std::string_view(reinterpret_cast<const char*>(rest.data()), length);
}

// Begins where the one before ended, ends inside the data, and has the bytes that type and shape
// ask for.
std::optional<Error> check_place(const Entry& entry, std::uint64_t expected_begin,
                                 std::size_t data_size, std::string_view name) {
  // Called, not built beforehand: a header has many tensors and few mistakes.
  const auto refused = [&](const std::string& expected, std::string_view how = "") {
    return damaged(name, message("tensor ", quoted_name(entry.name), ": data_offsets ", expected),
                   message("[", entry.begin, ", ", entry.end, "]", how));
  };
  const Result<std::size_t> size = byte_count(block_bytes(entry.type), entry.shape);
  if (!size) {
    return Error(size.error().code(),
                 message(name, ": tensor ", quoted_name(entry.name), ": ", size.error().what()));
  }
  if (entry.begin > entry.end) return refused("must not go back");
  if (entry.end > data_size)
    return refused(message("must stay inside the ", data_size, " bytes of data"));
  if (entry.end - entry.begin != *size) {
    return refused(message("must span the ", *size, " bytes of shape ", shape_text(entry.shape),
                           " of ", safetensors_name_of(entry.type)));
  }
  if (entry.begin != expected_begin) {
    return refused(message("must start at ", expected_begin, ", where the tensor before ends"),
                   entry.begin < expected_begin ? ", an overlap" : ", a gap");
  }
  return std::nullopt;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes,
                                               std::string_view name) {
  const Result<std::string_view> text = header_text(bytes, name);
  if (!text) return text.error();
  Result<SafetensorsHeader> parsed = parse_safetensors_header(*text);
  if (!parsed) return Error(parsed.error().code(), message(name, ": ", parsed.error().what()));
  SafetensorsHeader header = std::move(parsed).value();

  SafetensorsFile file;
  file.head_ = bytes.first(kSafetensorsLengthField + text->size());
  file.metadata_ = std::move(header.metadata);
  // An empty tensor shares its offset with the one behind it; by its end it comes first.
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const Entry& a, const Entry& b) {
                     return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
                   });
  for (std::size_t i = 0; i < header.entries.size(); ++i) {
    if (!file.by_name_.emplace(header.entries[i].name, i).second) {
      return damaged(name, "header must have each name once",
                     message("tensor ", quoted_name(header.entries[i].name), " twice"));
    }
  }
  const std::span<const std::byte> data = bytes.subspan(file.head_.size());
  std::uint64_t end = 0;
  file.tensors_.reserve(header.entries.size());
  for (Entry& entry : header.entries) {
    if (const auto error = check_place(entry, end, data.size(), name)) return *error;
    end = entry.end;
    file.tensors_.push_back({std::move(entry.name), entry.type, std::move(entry.shape),
                             data.subspan(entry.begin, entry.end - entry.begin)});
  }
  if (end != data.size()) {
    return damaged(
        name, message("file must end where its last tensor does, after ", end, " bytes of data"),
        message(data.size(), " bytes"));
  }
  return file;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped) return mapped.error();
  Result<SafetensorsFile> parsed = parse(mapped->bytes(), mapped->name());
  if (!parsed) return parsed;
  SafetensorsFile file = std::move(parsed).value();
  file.file_ = std::move(mapped).value();  // its bytes stay where they are
  return file;
}

const Tensor* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Result<Done> write_safetensors(const std::filesystem::path& path,
                               const std::vector<Tensor>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  const Result<std::string> front = safetensors_front(tensors, metadata);
  if (!front) return front.error();
  std::vector<std::span<const std::byte>> pieces{std::as_bytes(std::span(*front))};
  for (const Tensor& tensor : tensors) pieces.push_back(tensor.bytes);
  return replace_file(path, pieces);
}

}  // namespace phasor::io
