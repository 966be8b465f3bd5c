#include "phasor/io/npy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <complex>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <string>

#include "io/arrays/gather.hpp"
#include "io/npy/header.hpp"
#include "io/npy/read.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/npy_text.hpp"
#include "phasor/io/internal/posix_file.hpp"
#include "phasor/io/internal/shape.hpp"

namespace phasor::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "arrays are copied from and to the file, which is little-endian");

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kPreludeV1 = 10;  // magic, version, 16-bit length
constexpr std::size_t kPreludeV2 = 12;  // magic, version, 32-bit length
constexpr std::size_t kMaxHeader = std::size_t{1} << 20;
constexpr std::size_t kAlignment = 64;
// Between two looks at the caller's cancellation.
constexpr std::size_t kElementsPerLook = std::size_t{1} << 20;

// Calls visit with one value of the C++ type that a type stores.
template <class Visit>
auto with_type(NpyType type, Visit visit) {
  switch (type) {
    case NpyType::f64:
      return visit(double{});
    case NpyType::f32:
      return visit(float{});
    case NpyType::f16:
      return visit(core::Half{});
    case NpyType::bf16:
      return visit(core::BFloat16{});
    case NpyType::i64:
      return visit(std::int64_t{});
    case NpyType::i32:
      return visit(std::int32_t{});
    case NpyType::i16:
      return visit(std::int16_t{});
    case NpyType::i8:
      return visit(std::int8_t{});
    case NpyType::u64:
      return visit(std::uint64_t{});
    case NpyType::u32:
      return visit(std::uint32_t{});
    case NpyType::u16:
      return visit(std::uint16_t{});
    case NpyType::u8:
      return visit(std::uint8_t{});
    case NpyType::boolean:
      return visit(bool{});
    case NpyType::c64:
      return visit(std::complex<float>{});
    case NpyType::c128:
      break;
  }
  return visit(std::complex<double>{});
}

// memcpy: the bytes need not be aligned for T.
template <class T>
T element(const NpyArray& array, std::size_t index) {
  if constexpr (std::is_same_v<T, bool>) {
    return array.bytes[index] != std::byte{0};  // a bool other than 0 and 1 is undefined behaviour
  } else {
    T value;
    std::memcpy(&value, array.bytes.data() + index * sizeof(T), sizeof(T));
    return value;
  }
}

template <class T>
double real_number(T value) {
  return static_cast<double>(value);
}
template <class T>
double real_number(std::complex<T> value) {
  return static_cast<double>(value.real());
}

template <class T>
std::size_t count_of(const NpyArray& array) {
  return array.bytes.size() / sizeof(T);
}

Error truncated(const std::string& name, std::string_view what, std::size_t needed,
                std::size_t left) {
  return file_error(name,
                    message(kTruncated, what, " needs ", needed, " bytes, ", left, " are left"));
}

// Fills `into`; Error(io) if the stream ends first.
Result<Done> read_whole(ByteStream& stream, std::span<std::byte> into, std::string_view what) {
  const Result<std::size_t> got = stream.read(into);
  if (!got) return got.error();
  if (*got == into.size()) return Done{};
  return truncated(stream.name(), what, into.size(), *got);
}

struct HeaderText {
  std::string text;
  std::size_t data_offset = 0;
};

Result<HeaderText> read_header(ByteStream& stream) {
  std::array<unsigned char, kPreludeV2> prelude{};
  const auto bytes = std::as_writable_bytes(std::span(prelude));
  if (stream.size() < kPreludeV1) {
    return truncated(stream.name(), "a .npy file", kPreludeV1, stream.size());
  }
  if (auto read = read_whole(stream, bytes.first(kPreludeV1), "the magic and version"); !read)
    return read.error();
  if (std::memcmp(prelude.data(), kNpyMagic.data(), kNpyMagic.size()) != 0) {
    const std::string_view start(reinterpret_cast<const char*>(prelude.data()), kNpyMagic.size());
    return file_error(stream.name(), message("not a .npy file: it must start with \\x93NUMPY, got ",
                                             in_quotes(start)));
  }
  const int major = prelude[6];
  const int minor = prelude[7];
  if (major < 1 || major > 3 || minor != 0) {
    return file_error(stream.name(),
                      message("version must be 1.0, 2.0 or 3.0, got ", major, ".", minor));
  }
  std::size_t length = prelude[8] | std::size_t{prelude[9]} << 8;
  std::size_t offset = kPreludeV1;
  if (major > 1) {
    if (auto read = read_whole(stream, bytes.subspan(kPreludeV1), "the header length"); !read)
      return read.error();
    length |= std::size_t{prelude[10]} << 16 | std::size_t{prelude[11]} << 24;
    offset = kPreludeV2;
  }
  if (length > kMaxHeader) {
    return file_error(stream.name(),
                      message("header must have at most ", kMaxHeader, " bytes, got ", length));
  }
  if (length > stream.size() - offset) {
    return truncated(stream.name(), "the header", length, stream.size() - offset);
  }
  HeaderText header{std::string(length, '\0'), offset + length};
  if (auto read = read_whole(stream, std::as_writable_bytes(std::span(header.text)), "the header");
      !read) {
    return read.error();
  }
  return header;
}

bool same_memory_in_both_orders(const std::vector<std::int64_t>& shape) {
  return std::count(shape.begin(), shape.end(), 0) > 0 ||
         std::count_if(shape.begin(), shape.end(), [](std::int64_t dim) { return dim > 1; }) <= 1;
}

}  // namespace

Result<NpyFacts> read_npy_facts(ByteStream& stream) {
  const Result<HeaderText> text = read_header(stream);
  if (!text) return text.error();
  Result<NpyHeader> parsed = parse_npy_header(text->text);
  if (!parsed) return in_file(stream.name(), parsed.error());
  NpyHeader header = std::move(parsed).value();
  const Result<NpyType> type = npy_type_of(header.descr);
  if (!type) return in_file(stream.name(), type.error());
  const Result<std::size_t> size = byte_count(size_of(*type), header.shape);
  if (!size) return in_file(stream.name(), size.error());
  // Before allocation: the header may claim more than the file has.
  const std::size_t left = stream.size() - text->data_offset;
  if (left != *size) {
    return file_error(stream.name(), message(left < *size ? kTruncated : "", "shape ",
                                             core::shape_text(header.shape), " of ", name_of(*type),
                                             " needs ", *size, " bytes of data, got ", left));
  }
  return NpyFacts{*type, header.order, std::move(header.shape), *size};
}

Result<NpyArray> read_npy_stream(ByteStream& stream) {
  Result<NpyFacts> read = read_npy_facts(stream);
  if (!read) return read.error();
  NpyFacts facts = std::move(read).value();
  NpyArray array{facts.type, std::move(facts.shape), {}};
  try {
    array.bytes.resize(facts.bytes);
  } catch (const std::bad_alloc&) {
    return file_error(stream.name(),
                      message("out of memory: the array needs ", facts.bytes, " bytes"));
  }
  if (auto data = read_whole(stream, array.bytes, "the data"); !data) return data.error();
  if (facts.order == NpyHeader::Order::fortran && !same_memory_in_both_orders(array.shape)) {
    std::vector<std::byte> ordered(array.bytes.size());
    gather(array.bytes, size_of(array.type), array.shape, fortran_strides(array.shape), ordered);
    array.bytes = std::move(ordered);
  }
  return array;
}

std::size_t size_of(NpyType type) noexcept {
  return with_type(type, [](auto value) { return sizeof(value); });
}

std::string_view name_of(NpyType type) noexcept {
  static constexpr core::EnumNames<NpyType::c128> kNames(
      "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64",
      "uint32", "uint16", "uint8", "bool", "complex64", "complex128");
  return kNames[type];
}

bool is_integer(NpyType type) noexcept {
  return with_type(type, [](auto value) {
    return std::is_integral_v<decltype(value)> && !std::is_same_v<decltype(value), bool>;
  });
}

bool is_complex(NpyType type) noexcept { return type == NpyType::c64 || type == NpyType::c128; }

std::int64_t NpyArray::size() const noexcept {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t product = 1;
  for (const std::int64_t dim : shape) product *= dim;
  return product;
}

NpyArray make_npy(NpyType type, std::vector<std::int64_t> shape) {
  const Result<std::size_t> bytes = byte_count(size_of(type), shape);
  if (!bytes) refuse(message("make_npy: ", bytes.error().what()));
  return {type, std::move(shape), std::vector<std::byte>(*bytes)};
}

Result<core::DType> dtype_of(const NpyArray& array, std::string_view what) {
  switch (array.type) {
    case NpyType::f64:
      return core::DType::f64;
    case NpyType::f32:
      return core::DType::f32;
    case NpyType::f16:
      return core::DType::f16;
    case NpyType::bf16:
      return core::DType::bf16;
    default:
      break;
  }
  return Error(ErrorCode::unsupported,
               message(what, ": dtype must be float64, float32, float16 or bfloat16, got ",
                       name_of(array.type)));
}

Result<std::vector<double>> to_doubles(const NpyArray& array) {
  if (is_complex(array.type)) {
    return Error(ErrorCode::unsupported,
                 message("to_doubles: the type must be real, got ", name_of(array.type)));
  }
  return with_type(array.type, [&](auto kind) -> Result<std::vector<double>> {
    using T = decltype(kind);
    std::vector<double> out;
    const std::size_t count = count_of<T>(array);
    out.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (i % kElementsPerLook == 0) core::throw_if_cancelled();
      const T value = element<T>(array, i);
      if constexpr (std::is_same_v<T, core::Half> || std::is_same_v<T, core::BFloat16>) {
        out.push_back(core::to_float(value));
      } else {
        if constexpr (sizeof(T) == 8 && std::is_integral_v<T>) {
          constexpr T kExact = T{1} << 53;
          if (value > kExact || (std::is_signed_v<T> && value < T{0} - kExact)) {
            return Error(
                ErrorCode::out_of_range,
                message("to_doubles: integers must be at most 2^53 in magnitude, got ", value));
          }
        }
        out.push_back(real_number(value));
      }
    }
    return out;
  });
}

Result<std::vector<std::int64_t>> to_integers(const NpyArray& array) {
  return with_type(array.type, [&](auto kind) -> Result<std::vector<std::int64_t>> {
    using T = decltype(kind);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      std::vector<std::int64_t> out(count_of<T>(array));
      for (std::size_t i = 0; i < out.size(); ++i) {
        const T value = element<T>(array, i);
        if constexpr (std::is_same_v<T, std::uint64_t>) {
          if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
            return Error(ErrorCode::out_of_range,
                         message("to_integers: values must be at most 2^63 - 1, got ", value));
          }
        }
        out[i] = static_cast<std::int64_t>(value);
      }
      return out;
    } else {
      return Error(ErrorCode::unsupported,
                   message("to_integers: the type must be an integer, got ", name_of(array.type)));
    }
  });
}

Result<NpyArray> read_npy(const std::filesystem::path& path) {
  const Result<InputFile> file = open_input(path);
  if (!file) return file.error();
  FileStream stream(*file);
  return read_npy_stream(stream);
}

Result<NpyArray> parse_npy(std::span<const std::byte> bytes, std::string_view name) {
  MemoryStream stream(std::string(name), bytes);
  return read_npy_stream(stream);
}

std::string npy_start(const NpyArray& array) {
  const Result<std::size_t> size = byte_count(size_of(array.type), array.shape);
  if (!size) refuse(message("write_npy: ", size.error().what()));
  if (*size != array.bytes.size()) {
    refuse(ErrorCode::shape_mismatch,
           message("write_npy: shape ", core::shape_text(array.shape), " of ", name_of(array.type),
                   " needs ", *size, " bytes, got ", array.bytes.size()));
  }
  std::string header = npy_header_text(array.type, array.shape);
  const std::size_t total =
      (kPreludeV1 + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  header.append(total - kPreludeV1 - header.size() - 1, ' ').push_back('\n');
  // kMaxDims dimensions of 20 characters are far below 65535, the limit of version 1.0.
  std::string start(kNpyMagic);
  start += {'\x01', '\x00', static_cast<char>(header.size() & 0xff),
            static_cast<char>(header.size() >> 8)};
  return start + header;
}

Result<Done> write_npy(const std::filesystem::path& path, const NpyArray& array) {
  const std::string start = npy_start(array);
  const std::array<std::span<const std::byte>, 2> pieces{std::as_bytes(std::span(start)),
                                                         array.bytes};
  return replace_file(path, pieces);
}

}  // namespace phasor::io
