#include "phasor/io/tensors.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "io/files/byte_source.hpp"
#include "io/safetensors/header.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/file_text.hpp"
#include "phasor/io/internal/shape.hpp"

namespace phasor::io {
namespace {

using Entry = SafetensorsHeader::Entry;

// throws   Error(io): the file cannot be read
Result<std::string> header_text(const ByteSource& source, std::string_view name) {
  if (source.size() < kSafetensorsLengthField) {
    return file_error(name, message(kTruncated, "a safetensors file has at least ",
                                    kSafetensorsLengthField, " bytes, got ", source.size()));
  }
  std::array<std::byte, kSafetensorsLengthField> bytes{};
  source.read(0, bytes);
  std::uint64_t length = 0;
  for (std::size_t i = kSafetensorsLengthField; i-- > 0;)
    length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  if (length > kMaxSafetensorsHeader) {
    return file_error(
        name, message("header must have at most ", kMaxSafetensorsHeader, " bytes, got ", length));
  }
  const std::size_t rest = source.size() - kSafetensorsLengthField;
  if (length > rest) {
    return file_error(
        name, message(kTruncated, "the header needs ", length, " bytes, ", rest, " are left"));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  source.read(kSafetensorsLengthField, std::as_writable_bytes(std::span(text)));
  return text;
}

// Checks that data_offsets start at `expected_begin`, end inside the data, and have the size of type
// and shape.
std::optional<Error> check_offsets(const Entry& entry, std::uint64_t expected_begin,
                                   std::size_t data_size, std::string_view name) {
  const auto offsets_error = [&](std::string_view text, std::string_view prefix = "") {
    return file_error(name, message(prefix, "tensor ", quoted_name(entry.name), ": data_offsets [",
                                    entry.begin, ", ", entry.end, "] ", text));
  };
  const Result<std::size_t> size = byte_count(block_bytes(entry.type), entry.shape);
  if (!size) {
    return Error(size.error().code(),
                 message(name, ": tensor ", quoted_name(entry.name), ": ", size.error().what()));
  }
  if (entry.begin > entry.end) return offsets_error("end before they begin");
  if (entry.end > data_size)
    return offsets_error(message("exceed the ", data_size, " bytes of data"), kTruncated);
  if (entry.end - entry.begin != *size) {
    return offsets_error(message("must span ", *size, " bytes, the size of shape ",
                                 core::shape_text(entry.shape), " of ",
                                 safetensors_name_of(entry.type)));
  }
  if (entry.begin != expected_begin) {
    return offsets_error(message(entry.begin < expected_begin ? "overlap" : "leave a gap after",
                                 " the tensor before, which ends at ", expected_begin));
  }
  return std::nullopt;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::read(const ByteSource& source, std::string_view name) {
  const Result<std::string> text = header_text(source, name);
  if (!text) return text.error();
  Result<SafetensorsHeader> parsed = parse_safetensors_header(*text);
  if (!parsed) return in_file(name, parsed.error());
  SafetensorsHeader header = std::move(parsed).value();

  SafetensorsFile file;
  file.metadata_ = std::move(header.metadata);
  // An empty tensor has the same offset as the next one; sorting by the end puts it first.
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const Entry& a, const Entry& b) {
                     return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
                   });
  for (std::size_t i = 0; i < header.entries.size(); ++i) {
    if (!file.by_name_.emplace(header.entries[i].name, i).second) {
      return file_error(name,
                        message("tensor ", quoted_name(header.entries[i].name), " appears twice"));
    }
  }
  const std::size_t start = kSafetensorsLengthField + text->size();
  const std::size_t data = source.size() - start;
  std::uint64_t end = 0;
  file.tensors_.reserve(header.entries.size());
  for (Entry& entry : header.entries) {
    if (const auto error = check_offsets(entry, end, data, name)) return *error;
    end = entry.end;
    Tensor& tensor = file.tensors_.emplace_back();
    tensor.name = std::move(entry.name);
    tensor.type = entry.type;
    tensor.shape = std::move(entry.shape);
    source.place(tensor, start + entry.begin);
  }
  if (end != data) {
    return file_error(
        name, message("the last tensor ends after ", end, " bytes of data, got ", data, " bytes"));
  }
  return file;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes,
                                               std::string_view name) {
  return read(ByteSource(bytes), name);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  Result<InputFile> opened = open_input(path);
  if (!opened) return opened.error();
  const auto file = std::make_shared<const InputFile>(std::move(opened).value());
  try {
    return read(ByteSource(file), file->name);
  } catch (const Error& error) {
    return error;
  }
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
  const auto write = [&](const PutBytes& put) -> Result<Done> {
    Result<Done> done = put(std::as_bytes(std::span(*front)));
    constexpr std::size_t kMost = std::size_t{1} << 20;
    std::vector<std::byte> piece;
    for (const Tensor& tensor : tensors) {
      if (done && tensor.file == nullptr) done = put(tensor.bytes);
      const std::size_t end = tensor.file == nullptr ? 0 : tensor.byte_size();
      for (std::size_t at = 0; done && at < end; at += piece.size()) {
        piece.resize(std::min(kMost, end - at));
        read_bytes(tensor, at, piece);
        done = put(piece);
      }
    }
    return done;
  };
  try {
    return replace_file(path, write);
  } catch (const Error& error) {
    return error;  // of a file that is read
  }
}

}  // namespace phasor::io
