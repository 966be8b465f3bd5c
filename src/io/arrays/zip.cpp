#include "io/arrays/zip.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "io/arrays/inflate.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file_text.hpp"

namespace phasor::io {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50,
                        kEndRecord = 0x06054b50, kEndRecord64 = 0x06064b50,
                        kEndLocator64 = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                      kLocatorBytes = 20;
constexpr std::size_t kLongestComment = 65535;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the value is in the 64-bit record
constexpr std::uint16_t kIn64Short = 0xffff;
constexpr std::uint16_t kExtra64 = 1;
constexpr std::uint16_t kEncrypted = 1;  // bit of the flags
constexpr std::uint16_t kDeflated = 8;   // a method
constexpr std::size_t kInflateStep = std::size_t{64} << 10;

// Little-endian fields of a record. precondition  they are inside it
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class Number>
  [[nodiscard]] Number at(std::size_t offset) const {
    Number number;
    std::memcpy(&number, bytes_.data() + offset, sizeof(Number));
    return number;
  }
  [[nodiscard]] std::string_view text(std::size_t offset, std::size_t size) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + offset, size};
  }

 private:
  std::span<const std::byte> bytes_;
};

struct Directory {
  std::uint64_t offset = 0, size = 0, count = 0;
};

// Opens an archive; failures are thrown, with the file's name added by the caller.
class ZipReader {
 public:
  explicit ZipReader(const ByteSource& source) : source_(source) {}

  [[nodiscard]] std::vector<ZipMember> members() {
    const Directory directory = find_directory();
    std::vector<std::byte> bytes(static_cast<std::size_t>(directory.size));
    source_.read(directory.offset, bytes);
    std::vector<ZipMember> members;
    std::size_t at = 0;
    for (std::uint64_t i = 0; i < directory.count; ++i) members.push_back(entry(bytes, at));
    if (at != bytes.size()) {
      broken(message("the zip directory of ", directory.count, " members must have ", at,
                     " bytes, got ", bytes.size()));
    }
    for (ZipMember& member : members) locate(member, directory.offset);
    refuse_overlaps(members);
    return members;
  }

 private:
  [[noreturn]] static void broken(const std::string& text) { throw Error(ErrorCode::io, text); }
  [[noreturn]] static void lacking(const std::string& text) {
    throw Error(ErrorCode::unsupported, text);
  }

  template <std::size_t kBytes>
  [[nodiscard]] std::array<std::byte, kBytes> record(std::uint64_t offset,
                                                     std::string_view what) const {
    if (offset > source_.size() || source_.size() - offset < kBytes) {
      broken(message(kTruncated, what, " needs ", kBytes, " bytes at byte ", offset,
                     ", the file has ", source_.size()));
    }
    std::array<std::byte, kBytes> bytes;
    source_.read(offset, bytes);
    return bytes;
  }

  // The end record is the last one whose comment ends with the file.
  [[nodiscard]] std::uint64_t find_end(std::array<std::byte, kEndBytes>& end) const {
    const std::size_t size = std::min(source_.size(), kEndBytes + kLongestComment);
    std::vector<std::byte> tail(size);
    source_.read(source_.size() - size, tail);
    for (std::size_t at = size < kEndBytes ? 0 : size - kEndBytes + 1; at-- > 0;) {
      const Fields fields{std::span(tail).subspan(at)};
      if (fields.at<std::uint32_t>(0) != kEndRecord) continue;
      if (fields.at<std::uint16_t>(20) != size - at - kEndBytes) continue;
      std::copy_n(tail.begin() + static_cast<std::ptrdiff_t>(at), kEndBytes, end.begin());
      return source_.size() - size + at;
    }
    broken(message(kTruncated, "no end record of a zip archive in the last ", size, " bytes"));
  }

  [[nodiscard]] Directory find_directory() const {
    std::array<std::byte, kEndBytes> bytes{};
    std::uint64_t end = find_end(bytes);
    const Fields record_of_end(bytes);
    const auto disk = record_of_end.at<std::uint16_t>(4);
    const auto first_disk = record_of_end.at<std::uint16_t>(6);
    Directory found{record_of_end.at<std::uint32_t>(16), record_of_end.at<std::uint32_t>(12),
                    record_of_end.at<std::uint16_t>(10)};
    if (found.offset == kIn64 || found.size == kIn64 || found.count == kIn64Short) {
      end = read_end64(end, found);
    } else if (disk != 0 || first_disk != 0 || found.count != record_of_end.at<std::uint16_t>(8)) {
      lacking(message("zip archives of several disks are not supported, got disk ", disk));
    }
    if (found.offset > end || found.size > end - found.offset) {
      broken(message("the zip directory must be before byte ", end, ", got bytes ", found.offset,
                     " to ", found.offset + found.size));
    }
    if (found.size > kMaxZipDirectory) {
      lacking(message("the zip directory must have at most ", kMaxZipDirectory, " bytes, got ",
                      found.size));
    }
    if (found.count > found.size / kEntryBytes) {
      broken(message("a zip directory of ", found.size, " bytes cannot have ", found.count,
                     " members"));
    }
    return found;
  }

  // Returns where the 64-bit end record starts.
  [[nodiscard]] std::uint64_t read_end64(std::uint64_t end, Directory& found) const {
    if (end < kLocatorBytes) broken("the zip archive has no 64-bit end record");
    const auto locator = record<kLocatorBytes>(end - kLocatorBytes, "the 64-bit end locator");
    if (Fields(locator).at<std::uint32_t>(0) != kEndLocator64)
      broken("the zip archive has no 64-bit end record");
    const auto offset = Fields(locator).at<std::uint64_t>(8);
    const auto bytes = record<kEnd64Bytes>(offset, "the 64-bit end record");
    const Fields fields(bytes);
    if (fields.at<std::uint32_t>(0) != kEndRecord64)
      broken(message("no 64-bit end record of a zip archive at byte ", offset));
    if (fields.at<std::uint32_t>(16) != 0 || fields.at<std::uint32_t>(20) != 0)
      lacking("zip archives of several disks are not supported");
    found = {fields.at<std::uint64_t>(48), fields.at<std::uint64_t>(40),
             fields.at<std::uint64_t>(32)};
    return offset;
  }

  [[nodiscard]] ZipMember entry(std::span<const std::byte> bytes, std::size_t& at) {
    const Fields fields(bytes.subspan(at));
    if (bytes.size() - at < kEntryBytes || fields.at<std::uint32_t>(0) != kDirectoryEntry)
      broken(message("the zip directory has no entry at its byte ", at));
    const std::size_t name_size = fields.at<std::uint16_t>(28),
                      extra_size = fields.at<std::uint16_t>(30),
                      comment_size = fields.at<std::uint16_t>(32);
    if (bytes.size() - at - kEntryBytes < name_size + extra_size + comment_size)
      broken(message("the zip directory ends inside the entry at its byte ", at));
    ZipMember member;
    member.name = fields.text(kEntryBytes, name_size);
    if (!names_.insert(member.name).second)
      broken(message("the zip archive has two members named ", quoted_name(member.name)));
    if ((fields.at<std::uint16_t>(8) & kEncrypted) != 0)
      lacking(message("member ", quoted_name(member.name), " is encrypted"));
    const auto method = fields.at<std::uint16_t>(10);
    if (method != 0 && method != kDeflated) {
      lacking(message("member ", quoted_name(member.name),
                      " must be stored or deflated (method 0 or 8), got method ", method));
    }
    if (method == kDeflated && !can_inflate()) {
      lacking(message("member ", quoted_name(member.name),
                      " is compressed, and this build is without zlib (PHASOR_ZLIB)"));
    }
    member.method = method == 0 ? ZipMember::Method::stored : ZipMember::Method::deflated;
    member.crc = fields.at<std::uint32_t>(16);
    member.packed = fields.at<std::uint32_t>(20);
    member.size = fields.at<std::uint32_t>(24);
    member.data = fields.at<std::uint32_t>(42);  // of its local header, until locate()
    read_extra(bytes.subspan(at + kEntryBytes + name_size, extra_size), member);
    at += kEntryBytes + name_size + extra_size + comment_size;
    return member;
  }

  // Sizes and offsets above 32 bits.
  static void read_extra(std::span<const std::byte> extra, ZipMember& member) {
    while (extra.size() >= 4) {
      const auto id = Fields(extra).at<std::uint16_t>(0);
      const std::size_t size = Fields(extra).at<std::uint16_t>(2);
      if (size > extra.size() - 4) break;
      if (id == kExtra64) {
        std::span<const std::byte> values = extra.subspan(4, size);
        for (std::uint64_t* const value : {&member.size, &member.packed, &member.data}) {
          if (*value != kIn64) continue;
          if (values.size() < sizeof(std::uint64_t)) return;
          *value = Fields(values).at<std::uint64_t>(0);
          values = values.subspan(sizeof(std::uint64_t));
        }
        return;
      }
      extra = extra.subspan(4 + size);
    }
  }

  // Finds a member's bytes, which follow its local header.
  void locate(ZipMember& member, std::uint64_t end) const {
    const std::uint64_t start = member.data;
    const auto refuse_member = [&](const std::string& text) {
      broken(message("member ", quoted_name(member.name), ": ", text));
    };
    if (start > end || end - start < kLocalBytes) {
      refuse_member(message("its local header at byte ", start, " must be before byte ", end));
    }
    const auto bytes = record<kLocalBytes>(start, "a local header");
    const Fields fields(bytes);
    if (fields.at<std::uint32_t>(0) != kLocalHeader)
      refuse_member(message("no local header at byte ", start));
    const std::size_t name_size = fields.at<std::uint16_t>(26),
                      extra_size = fields.at<std::uint16_t>(28);
    const std::uint64_t header = kLocalBytes + name_size + extra_size;
    const std::uint64_t left = end - start;
    if (left < header || left - header < member.packed) {
      refuse_member(message(kTruncated, "it needs ", member.packed, " bytes after byte ",
                            start + header, ", the directory is at byte ", end));
    }
    std::string name(name_size, '\0');
    source_.read(start + kLocalBytes, std::as_writable_bytes(std::span(name)));
    if (name != member.name)
      refuse_member(message("its local header has the name ", quoted_name(name)));
    member.data = start + header;
    if (member.method == ZipMember::Method::stored && member.packed != member.size)
      refuse_member(message("stored in ", member.packed, " bytes, but said to have ", member.size));
    if (member.size / kMostInflated > member.packed) {
      refuse_member(message(member.packed, " deflated bytes cannot hold the ", member.size,
                            " bytes that it is said to have"));
    }
  }

  static void refuse_overlaps(const std::vector<ZipMember>& members) {
    std::vector<const ZipMember*> in_order;
    in_order.reserve(members.size());
    for (const ZipMember& member : members) in_order.push_back(&member);
    std::sort(in_order.begin(), in_order.end(),
              [](const ZipMember* a, const ZipMember* b) { return a->data < b->data; });
    for (std::size_t i = 1; i < in_order.size(); ++i) {
      const ZipMember &before = *in_order[i - 1], &next = *in_order[i];
      // A local header is between the two.
      if (next.data < before.data + before.packed + kLocalBytes + next.name.size()) {
        broken(message("members ", quoted_name(before.name), " and ", quoted_name(next.name),
                       " overlap"));
      }
    }
  }

  const ByteSource& source_;
  std::set<std::string> names_;
};

class MemberStream final : public ByteStream {
 public:
  MemberStream(const ByteSource& source, const ZipMember& member, std::string name,
               std::optional<std::uint32_t> crc)
      : ByteStream(std::move(name), static_cast<std::size_t>(member.size)),
        source_(source),
        at_(member.data),
        end_(member.data + member.packed),
        crc_(crc) {
    if (member.method == ZipMember::Method::deflated) inflater_ = make_inflater();
  }

  [[nodiscard]] Result<std::size_t> read(std::span<std::byte> into) override {
    const std::size_t count = std::min(into.size(), size() - done_);
    into = into.first(count);
    if (inflater_ != nullptr) {
      if (const Result<Done> got = inflate_into(into); !got) return got.error();
    } else {
      source_.read(at_, into);
      at_ += count;
    }
    sum_ = check_sum(sum_, into);
    done_ += count;
    if (done_ < size() || ended_) return count;
    ended_ = true;
    if (inflater_ != nullptr) {
      if (const Result<Done> got = expect_end(); !got) return got.error();
    }
    if (crc_ && sum_ != *crc_) {
      return file_error(name(), message("the check sum must be ", *crc_, ", got ", sum_,
                                        ": the file is damaged"));
    }
    return count;
  }

 private:
  Error damaged() const {
    return file_error(
        name(), message("the deflated bytes are damaged after ", done_, " of ", size(), " bytes"));
  }

  [[nodiscard]] Result<Done> inflate_into(std::span<std::byte> into) {
    while (!into.empty()) {
      const Inflater::Step step = inflate_some(into);
      into = into.subspan(step.written);
      if (step.state == Inflater::State::ended && into.empty()) {
        at_end_ = true;
        return Done{};
      }
      // No progress, or an end before the declared size.
      if (step.state != Inflater::State::more ||
          (step.written == 0 && left_.empty() && at_ == end_)) {
        return damaged();
      }
    }
    return Done{};
  }

  // The declared size was reached: deflate must end here too.
  [[nodiscard]] Result<Done> expect_end() {
    while (!at_end_) {
      std::byte more{};
      const Inflater::Step step = inflate_some(std::span(&more, 1));
      if (step.written != 0) {
        return file_error(name(), message("it inflates to more than the ", size(),
                                          " bytes that it is said to have"));
      }
      if (step.state == Inflater::State::ended) break;
      if (step.state != Inflater::State::more || (left_.empty() && at_ == end_)) return damaged();
    }
    return Done{};
  }

  [[nodiscard]] Inflater::Step inflate_some(std::span<std::byte> into) {
    if (left_.empty()) refill();
    const Inflater::Step step = inflater_->run(left_, into);
    left_ = left_.subspan(step.read);
    return step;
  }

  void refill() {
    input_.resize(std::min<std::size_t>(kInflateStep, static_cast<std::size_t>(end_ - at_)));
    source_.read(at_, input_);
    at_ += input_.size();
    left_ = input_;
  }

  const ByteSource& source_;
  std::uint64_t at_, end_;  // the packed bytes that are left
  std::optional<std::uint32_t> crc_;
  std::uint32_t sum_ = 0;
  std::size_t done_ = 0;
  bool ended_ = false, at_end_ = false;
  std::vector<std::byte> input_;
  std::span<const std::byte> left_;     // of input_
  std::unique_ptr<Inflater> inflater_;  // null: the member is stored
};

}  // namespace

Result<ZipArchive> ZipArchive::open(std::shared_ptr<const ByteSource> source,
                                    std::string name) try {
  ZipArchive archive;
  archive.members_ = ZipReader(*source).members();
  archive.source_ = std::move(source);
  archive.name_ = std::move(name);
  return archive;
} catch (const Error& error) {
  return in_file(name, error);
}

const ZipMember* ZipArchive::find(std::string_view name) const noexcept {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&](const ZipMember& member) { return member.name == name; });
  return found == members_.end() ? nullptr : &*found;
}

std::unique_ptr<ByteStream> ZipArchive::stream(const ZipMember& member) const {
  return std::make_unique<MemberStream>(*source_, member,
                                        message(name_, ": ", quoted_name(member.name)),
                                        member.crc != 0 ? std::optional(member.crc) : std::nullopt);
}

Result<std::vector<std::byte>> ZipArchive::read(const ZipMember& member, std::size_t limit) const {
  if (member.size > limit) {
    return file_error(name_, message("member ", quoted_name(member.name), " must have at most ",
                                     limit, " bytes, got ", member.size));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(member.size));
  if (const Result<Done> done = read_part(member, 0, bytes); !done) return done.error();
  return bytes;
}

Result<Done> ZipArchive::read_part(const ZipMember& member, std::uint64_t first,
                                   std::span<std::byte> into) const {
  if (member.method == ZipMember::Method::stored && into.size() < member.size) {
    source_->read(member.data + first, into);
    return Done{};
  }
  const std::unique_ptr<ByteStream> bytes = stream(member);
  std::vector<std::byte> skipped(std::min<std::uint64_t>(first, kInflateStep));
  for (std::uint64_t left = first; left > 0;) {
    const auto piece = std::span(skipped).first(std::min<std::uint64_t>(left, skipped.size()));
    const Result<std::size_t> got = bytes->read(piece);
    if (!got) return got.error();
    left -= piece.size();
  }
  if (const Result<std::size_t> got = bytes->read(into); !got) return got.error();
  return Done{};
}

}  // namespace phasor::io
