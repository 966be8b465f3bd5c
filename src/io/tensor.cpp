#include "phasor/io/tensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "io/gguf/dequantise.hpp"
#include "phasor/core/view.hpp"
#include "phasor/io/internal/posix_file.hpp"

namespace phasor::io {

namespace {

struct TypeFacts {
  std::string_view name;
  std::int64_t elements;
  std::size_t bytes;
};

// In the order of TensorType.
constexpr std::array<TypeFacts, 24> kTypeFacts{{
    {"f64", 1, 8},      {"f32", 1, 4},      {"f16", 1, 2},      {"bf16", 1, 2},
    {"f8_e4m3", 1, 1},  {"f8_e5m2", 1, 1},  {"i64", 1, 8},      {"i32", 1, 4},
    {"i16", 1, 2},      {"i8", 1, 1},       {"u64", 1, 8},      {"u32", 1, 4},
    {"u16", 1, 2},      {"u8", 1, 1},       {"bool", 1, 1},     {"q4_0", 32, 18},
    {"q4_1", 32, 20},   {"q5_0", 32, 22},   {"q5_1", 32, 24},   {"q8_0", 32, 34},
    {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210}, {"iq4_nl", 32, 18},
}};
static_assert(static_cast<std::size_t>(TensorType::iq4_nl) + 1 == kTypeFacts.size());

// Bytes of a file that are read at once, on the stack.
constexpr std::size_t kPiece = std::size_t{16} << 10;

const TypeFacts& facts_of(TensorType type) noexcept {
  return kTypeFacts[static_cast<std::size_t>(type)];
}

template <class Stored, class Widen>
void widen_each(const std::byte* bytes, std::span<float> out, Widen widen) {
  for (float& value : out) {
    Stored stored;
    std::memcpy(&stored, bytes, sizeof(Stored));
    value = widen(stored);
    bytes += sizeof(Stored);
  }
}

template <class Number>
void cast_each(const std::byte* bytes, std::span<float> out) {
  widen_each<Number>(bytes, out, [](Number number) { return static_cast<float>(number); });
}

void widen(TensorType type, const std::byte* bytes, std::span<float> out) {
  switch (type) {
    case TensorType::f64:
      return cast_each<double>(bytes, out);
    case TensorType::f32:
      return cast_each<float>(bytes, out);
    case TensorType::f16:
      return widen_each<core::Half>(bytes, out, [](core::Half x) { return core::to_float(x); });
    case TensorType::bf16:
      return widen_each<core::BFloat16>(bytes, out,
                                        [](core::BFloat16 x) { return core::to_float(x); });
    case TensorType::i64:
      return cast_each<std::int64_t>(bytes, out);
    case TensorType::i32:
      return cast_each<std::int32_t>(bytes, out);
    case TensorType::i16:
      return cast_each<std::int16_t>(bytes, out);
    case TensorType::i8:
      return cast_each<std::int8_t>(bytes, out);
    case TensorType::u64:
      return cast_each<std::uint64_t>(bytes, out);
    case TensorType::u32:
      return cast_each<std::uint32_t>(bytes, out);
    case TensorType::u16:
      return cast_each<std::uint16_t>(bytes, out);
    case TensorType::u8:
      return cast_each<std::uint8_t>(bytes, out);
    case TensorType::boolean:
      return widen_each<std::uint8_t>(bytes, out,
                                      [](std::uint8_t x) { return x != 0 ? 1.0F : 0.0F; });
    default:
      return dequantise(type, bytes, out);
  }
}

}  // namespace

std::string_view name_of(TensorType type) noexcept { return facts_of(type).name; }
std::int64_t block_elements(TensorType type) noexcept { return facts_of(type).elements; }
std::size_t block_bytes(TensorType type) noexcept { return facts_of(type).bytes; }

std::int64_t Tensor::size() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::size_t Tensor::byte_size() const noexcept {
  const TypeFacts& facts = facts_of(type);
  return static_cast<std::size_t>(size() / facts.elements) * facts.bytes;
}

void read_bytes(const Tensor& tensor, std::size_t first, std::span<std::byte> out) {
  const std::size_t size = tensor.file == nullptr ? tensor.bytes.size() : tensor.byte_size();
  if (first > size || out.size() > size - first) {
    refuse(ErrorCode::out_of_range, message("read_bytes: tensor '", tensor.name, "' has ", size,
                                            " bytes, got ", out.size(), " from byte ", first));
  }
  if (tensor.file == nullptr) {
    std::copy_n(tensor.bytes.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
  } else {
    (void)read_at(*tensor.file, tensor.offset + first, out).value_or_throw();
  }
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  const std::size_t size = a.byte_size();
  if (b.byte_size() != size) return false;
  std::array<std::array<std::byte, kPiece>, 2> pieces;
  for (std::size_t done = 0; done < size;) {
    const std::size_t count = std::min(kPiece, size - done);
    read_bytes(a, done, std::span(pieces[0]).first(count));
    read_bytes(b, done, std::span(pieces[1]).first(count));
    if (std::memcmp(pieces[0].data(), pieces[1].data(), count) != 0) return false;
    done += count;
  }
  return true;
}

void to_floats(const Tensor& tensor, std::int64_t first, std::span<float> out) {
  const std::int64_t size = tensor.size();
  const auto count = static_cast<std::int64_t>(out.size());
  if (first < 0 || first > size || count > size - first) {
    refuse(ErrorCode::out_of_range, message("to_floats: tensor '", tensor.name, "' has ", size,
                                            " elements, got ", count, " from element ", first));
  }
  const TypeFacts& type = facts_of(tensor.type);
  if (first % type.elements != 0 || count % type.elements != 0) {
    refuse(message("to_floats: tensor '", tensor.name, "' of type ", type.name,
                   ": first and count must be multiples of ", type.elements, ", got ", first,
                   " and ", count));
  }
  if (tensor.type == TensorType::f8_e4m3 || tensor.type == TensorType::f8_e5m2) {
    refuse(ErrorCode::unsupported, message("to_floats: tensor '", tensor.name, "': type ",
                                           type.name, " cannot be converted to float32"));
  }
  const auto elements = static_cast<std::size_t>(type.elements);
  std::size_t at = static_cast<std::size_t>(first) / elements * type.bytes;
  if (tensor.file == nullptr) return widen(tensor.type, tensor.bytes.data() + at, out);
  std::array<std::byte, kPiece> piece;
  while (!out.empty()) {
    const std::size_t blocks = std::min(kPiece / type.bytes, out.size() / elements);
    read_bytes(tensor, at, std::span(piece).first(blocks * type.bytes));
    widen(tensor.type, piece.data(), out.first(blocks * elements));
    at += blocks * type.bytes;
    out = out.subspan(blocks * elements);
  }
}

}  // namespace phasor::io
