#include "io/gguf/directory.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace phasor::io {
namespace {

// A type of ggml: number, name, elements and bytes of a block, and ours if there is one.
struct GgmlType {
  std::uint32_t number;
  std::string_view name;
  std::uint64_t elements;
  std::uint64_t bytes;
  std::optional<TensorType> ours = std::nullopt;
};

constexpr std::array kGgmlTypes = {
    GgmlType{0, "F32", 1, 4, TensorType::f32},
    GgmlType{1, "F16", 1, 2, TensorType::f16},
    GgmlType{2, "Q4_0", 32, 18, TensorType::q4_0},
    GgmlType{3, "Q4_1", 32, 20, TensorType::q4_1},
    GgmlType{6, "Q5_0", 32, 22, TensorType::q5_0},
    GgmlType{7, "Q5_1", 32, 24, TensorType::q5_1},
    GgmlType{8, "Q8_0", 32, 34, TensorType::q8_0},
    GgmlType{9, "Q8_1", 32, 36},
    GgmlType{10, "Q2_K", 256, 84},
    GgmlType{11, "Q3_K", 256, 110},
    GgmlType{12, "Q4_K", 256, 144, TensorType::q4_k},
    GgmlType{13, "Q5_K", 256, 176, TensorType::q5_k},
    GgmlType{14, "Q6_K", 256, 210, TensorType::q6_k},
    GgmlType{15, "Q8_K", 256, 292},
    GgmlType{16, "IQ2_XXS", 256, 66},
    GgmlType{17, "IQ2_XS", 256, 74},
    GgmlType{18, "IQ3_XXS", 256, 98},
    GgmlType{19, "IQ1_S", 256, 50},
    GgmlType{20, "IQ4_NL", 32, 18, TensorType::iq4_nl},
    GgmlType{21, "IQ3_S", 256, 110},
    GgmlType{22, "IQ2_S", 256, 82},
    GgmlType{23, "IQ4_XS", 256, 136},
    GgmlType{24, "I8", 1, 1, TensorType::i8},
    GgmlType{25, "I16", 1, 2, TensorType::i16},
    GgmlType{26, "I32", 1, 4, TensorType::i32},
    GgmlType{27, "I64", 1, 8, TensorType::i64},
    GgmlType{28, "F64", 1, 8, TensorType::f64},
    GgmlType{29, "IQ1_M", 256, 56},
    GgmlType{30, "BF16", 1, 2, TensorType::bf16},
    GgmlType{34, "TQ1_0", 256, 54},
    GgmlType{35, "TQ2_0", 256, 66},
    GgmlType{39, "MXFP4", 32, 17},
    GgmlType{40, "NVFP4", 64, 36},
    GgmlType{41, "Q1_0", 128, 18},
};

constexpr std::uint32_t kMaxDimensions = 4;
// Name length, one character, dimension count, one dimension, type, offset.
constexpr std::size_t kLeastEntry = 8 + 1 + 4 + 8 + 4 + 8;

struct DirectoryEntry {
  std::string name;
  const GgmlType* type = nullptr;
  std::vector<std::int64_t> shape;  // outermost first
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // from the start of the data
};

[[noreturn]] void refuse_entry(const DirectoryEntry& entry, const std::string& what) {
  refuse(message("tensor ", quoted_name(entry.name), ": ", what));
}

void read_shape(GgufCursor& cursor, DirectoryEntry& entry) {
  const auto dimensions = cursor.take<std::uint32_t>("dimension count");
  if (dimensions < 1 || dimensions > kMaxDimensions) {
    refuse_entry(entry,
                 message("dimensions must be from 1 to ", kMaxDimensions, ", got ", dimensions));
  }
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const auto extent = cursor.take<std::uint64_t>("dimension");
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (extent < 1 || extent > kMost / elements) {
      refuse_entry(entry, message("dimensions must be positive with a product below 2^63, got ",
                                  extent, " after a product of ", elements));
    }
    elements *= extent;
    entry.shape.push_back(static_cast<std::int64_t>(extent));
  }
}

void read_type(GgufCursor& cursor, DirectoryEntry& entry) {
  const auto number = cursor.take<std::uint32_t>("tensor type");
  const auto* found =
      std::find_if(kGgmlTypes.begin(), kGgmlTypes.end(),
                   [number](const GgmlType& type) { return type.number == number; });
  if (found == kGgmlTypes.end()) refuse_entry(entry, message("unknown ggml type ", number));
  entry.type = found;
}

// precondition  the file's first dimension, the row, is still the first of entry.shape
void count_bytes(DirectoryEntry& entry) {
  const auto row = static_cast<std::uint64_t>(entry.shape.front());
  if (row % entry.type->elements != 0) {
    refuse_entry(entry, message("rows of type ", entry.type->name, " must be multiples of ",
                                entry.type->elements, ", got ", row));
  }
  std::uint64_t blocks = row / entry.type->elements;
  for (std::size_t i = 1; i < entry.shape.size(); ++i)
    blocks *= static_cast<std::uint64_t>(entry.shape[i]);
  // There are at most as many blocks as elements, below 2^63; their bytes may exceed 2^64.
  if (blocks > std::numeric_limits<std::uint64_t>::max() / entry.type->bytes)
    refuse_entry(entry, message("size must be below 2^64 bytes, got ", blocks, " blocks of ",
                                entry.type->bytes));
  entry.bytes = blocks * entry.type->bytes;
}

[[nodiscard]] DirectoryEntry read_entry(GgufCursor& cursor, std::size_t alignment) {
  DirectoryEntry entry;
  entry.name = cursor.name("tensor name");
  read_shape(cursor, entry);
  read_type(cursor, entry);
  count_bytes(entry);
  std::reverse(entry.shape.begin(), entry.shape.end());
  entry.offset = cursor.take<std::uint64_t>("tensor offset");
  if (entry.offset % alignment != 0)
    refuse_entry(entry,
                 message("offset must be a multiple of ", alignment, ", got ", entry.offset));
  return entry;
}

void refuse_overlaps(const std::vector<DirectoryEntry>& entries) {
  std::vector<const DirectoryEntry*> order;
  order.reserve(entries.size());
  for (const DirectoryEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const DirectoryEntry* a, const DirectoryEntry* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const DirectoryEntry& before = *order[i - 1];
    if (before.offset + before.bytes > order[i]->offset) {
      refuse_entry(*order[i], message("offset ", order[i]->offset, " overlaps tensor ",
                                      quoted_name(before.name), ", which ends at ",
                                      before.offset + before.bytes));
    }
  }
}

}  // namespace

GgufDirectory read_gguf_directory(GgufCursor& cursor, std::uint64_t count, std::size_t alignment,
                                  const ByteSource& source) {
  cursor.expect(count, kLeastEntry, "tensor directory");
  std::vector<DirectoryEntry> entries;
  std::set<std::string_view> names;
  entries.reserve(static_cast<std::size_t>(count));  // no reallocation: `names` views the entries
  for (std::uint64_t i = 0; i < count; ++i) {
    entries.push_back(read_entry(cursor, alignment));
    if (!names.insert(entries.back().name).second)
      refuse_entry(entries.back(), "the name appears twice");
  }

  const std::size_t padding = (alignment - cursor.at() % alignment) % alignment;
  const std::size_t start = padding <= cursor.left() ? cursor.at() + padding : source.size();
  const std::uint64_t data = source.size() - start;
  for (const DirectoryEntry& entry : entries) {
    if (entry.offset > data || entry.bytes > data - entry.offset) {
      refuse(message(kTruncated, "tensor ", quoted_name(entry.name), " needs ", entry.bytes,
                     " bytes at offset ", entry.offset, ", the data section has ", data));
    }
  }
  refuse_overlaps(entries);

  GgufDirectory directory;
  for (DirectoryEntry& entry : entries) {
    if (entry.type->ours) {
      Tensor& tensor = directory.tensors.emplace_back();
      tensor.name = std::move(entry.name);
      tensor.type = *entry.type->ours;
      tensor.shape = std::move(entry.shape);
      source.place(tensor, start + entry.offset);
    } else {
      directory.skipped.push_back(
          {std::move(entry.name), std::string(entry.type->name), std::move(entry.shape)});
    }
  }
  return directory;
}

}  // namespace phasor::io
