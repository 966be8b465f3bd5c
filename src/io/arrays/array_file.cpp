#include "phasor/io/internal/array_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "io/arrays/reader.hpp"
#include "io/arrays/zip.hpp"
#include "io/npy/read.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file_text.hpp"
#include "phasor/io/internal/posix_file.hpp"

namespace phasor::io {
namespace {

constexpr std::string_view kArrayEnding = ".npy";
constexpr std::string_view kPickleName = "data.pkl";

// A stream over a whole file, from its start.
class SourceStream final : public ByteStream {
 public:
  SourceStream(const ByteSource& source, std::string name)
      : ByteStream(std::move(name), source.size()), source_(source) {}
  [[nodiscard]] Result<std::size_t> read(std::span<std::byte> into) override {
    const std::size_t count = std::min(into.size(), size() - at_);
    source_.read(at_, into.first(count));
    at_ += count;
    return count;
  }

 private:
  const ByteSource& source_;
  std::size_t at_ = 0;
};

ArrayEntry entry_of(std::string name, const NpyFacts& facts) {
  return {std::move(name), std::string(name_of(facts.type)), facts.shape, facts.bytes, {}};
}

class NpyReader final : public ArrayReader {
 public:
  explicit NpyReader(const ArraySource& source)
      : ArrayReader(ArrayFormat::npy, source.name), source_(source.bytes) {}
  [[nodiscard]] Result<NpyArray> read(std::size_t) const override {
    SourceStream stream(*source_, name);
    return read_npy_stream(stream);
  }

 private:
  std::shared_ptr<const ByteSource> source_;
};

// numpy.savez(): one .npy per array.
class NpzReader final : public ArrayReader {
 public:
  NpzReader(std::shared_ptr<const ZipArchive> archive, std::string name)
      : ArrayReader(ArrayFormat::npz, std::move(name)), archive_(std::move(archive)) {
    for (const ZipMember& member : archive_->members()) add(member);
  }
  [[nodiscard]] Result<NpyArray> read(std::size_t index) const override {
    const std::unique_ptr<ByteStream> stream = archive_->stream(archive_->members()[index]);
    return read_npy_stream(*stream);
  }

 private:
  void add(const ZipMember& member) {
    std::string key = member.name;
    if (key.ends_with(kArrayEnding)) key.resize(key.size() - kArrayEnding.size());
    const std::unique_ptr<ByteStream> stream = archive_->stream(member);
    const Result<NpyFacts> facts = read_npy_facts(*stream);
    if (facts) {
      entries.push_back(entry_of(std::move(key), *facts));
    } else {
      entries.push_back(
          {std::move(key), "unknown", {}, static_cast<std::size_t>(member.size), facts.error()});
    }
  }

  std::shared_ptr<const ZipArchive> archive_;
};

std::optional<NpyType> npy_type_of_tensor(TensorType type) {
  constexpr std::array<std::pair<TensorType, NpyType>, 13> kTypes{{
      {TensorType::f64, NpyType::f64},
      {TensorType::f32, NpyType::f32},
      {TensorType::f16, NpyType::f16},
      {TensorType::bf16, NpyType::bf16},
      {TensorType::i64, NpyType::i64},
      {TensorType::i32, NpyType::i32},
      {TensorType::i16, NpyType::i16},
      {TensorType::i8, NpyType::i8},
      {TensorType::u64, NpyType::u64},
      {TensorType::u32, NpyType::u32},
      {TensorType::u16, NpyType::u16},
      {TensorType::u8, NpyType::u8},
      {TensorType::boolean, NpyType::boolean},
  }};
  for (const auto& [from, to] : kTypes) {
    if (from == type) return to;
  }
  return std::nullopt;
}

class SafetensorsReader final : public ArrayReader {
 public:
  SafetensorsReader(SafetensorsFile file, std::string name)
      : ArrayReader(ArrayFormat::safetensors, std::move(name)), file_(std::move(file)) {
    for (const Tensor& tensor : file_.tensors()) {
      const std::optional<NpyType> type = npy_type_of_tensor(tensor.type);
      ArrayEntry entry{tensor.name,
                       std::string(type ? name_of(*type) : name_of(tensor.type)),
                       tensor.shape,
                       tensor.byte_size(),
                       {}};
      if (!type) {
        entry.problem =
            Error(ErrorCode::unsupported, message(ArrayReader::name, ": ", quoted_name(tensor.name),
                                                  ": type ", entry.type, " is not supported"));
      }
      entries.push_back(std::move(entry));
    }
  }
  [[nodiscard]] Result<NpyArray> read(std::size_t index) const override {
    const Tensor& tensor = file_.tensors()[index];
    NpyArray array = make_npy(*npy_type_of_tensor(tensor.type), tensor.shape);
    read_bytes(tensor, 0, array.bytes);
    return array;
  }

 private:
  SafetensorsFile file_;
};

bool starts_with(std::span<const std::byte> start, std::string_view magic) {
  return start.size() >= magic.size() && std::memcmp(start.data(), magic.data(), magic.size()) == 0;
}

// The bytes from `offset` on that start a file, at most 8.
std::vector<std::byte> bytes_at(const ByteSource& source, std::size_t offset) {
  if (offset >= source.size()) return {};
  std::vector<std::byte> bytes(std::min<std::size_t>(8, source.size() - offset));
  source.read(offset, bytes);
  return bytes;
}

// What a file of another kind is, or how it starts.
Error unknown_format(const ArraySource& source, std::span<const std::byte> start) {
  constexpr std::string_view kWanted = "; it must be .npy, .npz, .safetensors or .pt";
  // A pickle, or a tar archive.
  if (starts_with(start, "\x80") || starts_with(bytes_at(*source.bytes, 257), "ustar")) {
    return {ErrorCode::unsupported,
            message(source.name,
                    ": a pickle or a file of torch before 1.6; save it again with a newer torch")};
  }
  if (starts_with(start, "GGUF"))
    return {ErrorCode::unsupported, message(source.name, ": a GGUF file", kWanted)};
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  return file_error(source.name, start.empty() ? message("the file is empty", kWanted)
                                               : message("unknown format, it starts with ",
                                                         in_quotes(text), kWanted));
}

enum class Signature : std::uint8_t { npy, zip, safetensors, unknown };

Signature signature_of(const ByteSource& source, std::span<const std::byte> start) {
  if (starts_with(start, "\x93NUMPY")) return Signature::npy;
  if (starts_with(start, "PK\x03\x04") || starts_with(start, "PK\x05\x06")) return Signature::zip;
  // The size of the header, then JSON.
  if (start.size() == 8 && starts_with(bytes_at(source, 8), "{")) return Signature::safetensors;
  return Signature::unknown;
}

OpenedReader open_reader(const ArraySource& source, const std::filesystem::path* path,
                         std::span<const std::byte> bytes) {
  const std::vector<std::byte> start = bytes_at(*source.bytes, 0);
  switch (signature_of(*source.bytes, start)) {
    case Signature::npy:
      return open_npy_reader(source);
    case Signature::zip:
      return open_zip_reader(source);
    case Signature::safetensors: {
      Result<SafetensorsFile> file = path != nullptr ? SafetensorsFile::open(*path)
                                                     : SafetensorsFile::parse(bytes, source.name);
      if (!file) return file.error();
      return OpenedReader(
          std::make_unique<SafetensorsReader>(std::move(file).value(), source.name));
    }
    case Signature::unknown:
      break;
  }
  return unknown_format(source, start);
}

std::string shown_names(const std::vector<ArrayEntry>& entries) {
  constexpr std::size_t kShown = 12, kLongest = 40;
  std::string text;
  for (std::size_t i = 0; i < std::min(entries.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + one_line(entries[i].name, kLongest);
  return entries.size() > kShown ? message(text, ", ... (", entries.size(), " in all)") : text;
}

}  // namespace

OpenedReader open_npy_reader(const ArraySource& source) {
  SourceStream stream(*source.bytes, source.name);
  const Result<NpyFacts> facts = read_npy_facts(stream);
  if (!facts) return facts.error();
  auto reader = std::make_unique<NpyReader>(source);
  reader->entries.push_back(entry_of("", *facts));
  return OpenedReader(std::move(reader));
}

OpenedReader open_zip_reader(const ArraySource& source) {
  Result<ZipArchive> opened = ZipArchive::open(source.bytes, source.name);
  if (!opened) return opened.error();
  auto archive = std::make_shared<const ZipArchive>(std::move(opened).value());
  for (const ZipMember& member : archive->members()) {
    if (member.name == kPickleName || member.name.ends_with(message("/", kPickleName)))
      return open_torch_reader(archive, member, source.name);
  }
  return OpenedReader(std::make_unique<NpzReader>(std::move(archive), source.name));
}

std::string_view name_of(ArrayFormat format) noexcept {
  static constexpr core::EnumNames<ArrayFormat::torch> kNames("npy", "npz", "safetensors", "torch");
  return kNames[format];
}

Result<ArrayFile> ArrayFile::open(const std::filesystem::path& path) try {
  Result<InputFile> file = open_input(path);
  if (!file) return file.error();
  const std::string name = file->name;
  const ArraySource source{std::make_shared<const ByteSource>(
                               std::make_shared<const InputFile>(std::move(file).value())),
                           name};
  OpenedReader reader = open_reader(source, &path, {});
  if (!reader) return reader.error();
  return ArrayFile(std::move(reader).value());
} catch (const Error& error) {
  return error;
}

Result<ArrayFile> ArrayFile::parse(std::span<const std::byte> bytes, std::string_view name) try {
  const ArraySource source{std::make_shared<const ByteSource>(bytes), std::string(name)};
  OpenedReader reader = open_reader(source, nullptr, bytes);
  if (!reader) return reader.error();
  return ArrayFile(std::move(reader).value());
} catch (const Error& error) {
  return error;
}

ArrayFormat ArrayFile::format() const noexcept { return reader_->format; }
const std::string& ArrayFile::name() const noexcept { return reader_->name; }
const std::vector<ArrayEntry>& ArrayFile::entries() const noexcept { return reader_->entries; }

Result<NpyArray> ArrayFile::read(std::size_t index) const try {
  const ArrayEntry& entry = entries()[index];
  if (entry.problem) return *entry.problem;
  return reader_->read(index);
} catch (const Error& error) {
  return error;
}

Result<NpyArray> ArrayFile::read(const std::optional<std::string>& name) const {
  const std::vector<ArrayEntry>& all = entries();
  if (!name) {
    if (all.size() == 1) return read(std::size_t{0});
    if (all.empty())
      return Error(ErrorCode::invalid_argument, message(this->name(), ": it holds no array"));
    return Error(ErrorCode::invalid_argument,
                 message(this->name(), ": it holds ", all.size(),
                         " arrays; add the name of one after a colon: ", shown_names(all)));
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == *name) return read(i);
  }
  if (format() == ArrayFormat::npy) {
    return Error(ErrorCode::invalid_argument,
                 message(this->name(), ": a .npy file has no names, got ", quoted_name(*name)));
  }
  return Error(ErrorCode::invalid_argument,
               message(this->name(), ": no array is named ", quoted_name(*name), "; it holds ",
                       all.empty() ? "none" : shown_names(all)));
}

}  // namespace phasor::io
