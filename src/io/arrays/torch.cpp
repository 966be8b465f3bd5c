// torch.save(): a zip archive with a pickle of names, shapes and strides (data.pkl), and one member per
// storage (data/0, data/1, ...), to which the pickle's persistent ids refer.
#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "io/arrays/gather.hpp"
#include "io/arrays/pickle.hpp"
#include "io/arrays/reader.hpp"
#include "io/arrays/zip.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file_text.hpp"
#include "phasor/io/internal/shape.hpp"

namespace phasor::io {
namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view kRebuildTensor = "torch._utils._rebuild_tensor_v2",
                           kRebuildTyped = "torch._utils._rebuild_tensor_v3",
                           kRebuildParameter = "torch._utils._rebuild_parameter",
                           kUntypedStorage = "torch.storage.UntypedStorage";
// expand() repeats a storage without a copy. A file may not claim much more than it holds.
constexpr std::size_t kMostRepeated = 1024;
constexpr int kDeepest = 64;

// A dtype of torch; `type` is none for those that NumPy lacks.
struct TorchType {
  std::string_view storage, dtype;
  std::optional<NpyType> type;
};
constexpr std::array<TorchType, 17> kTorchTypes{{
    {"torch.DoubleStorage", "torch.float64", NpyType::f64},
    {"torch.FloatStorage", "torch.float32", NpyType::f32},
    {"torch.HalfStorage", "torch.float16", NpyType::f16},
    {"torch.BFloat16Storage", "torch.bfloat16", NpyType::bf16},
    {"torch.LongStorage", "torch.int64", NpyType::i64},
    {"torch.IntStorage", "torch.int32", NpyType::i32},
    {"torch.ShortStorage", "torch.int16", NpyType::i16},
    {"torch.CharStorage", "torch.int8", NpyType::i8},
    {"torch.ByteStorage", "torch.uint8", NpyType::u8},
    {"torch.BoolStorage", "torch.bool", NpyType::boolean},
    {"torch.ComplexFloatStorage", "torch.complex64", NpyType::c64},
    {"torch.ComplexDoubleStorage", "torch.complex128", NpyType::c128},
    {"", "torch.uint16", NpyType::u16},
    {"", "torch.uint32", NpyType::u32},
    {"", "torch.uint64", NpyType::u64},
    {"", "torch.float8_e4m3fn", std::nullopt},
    {"", "torch.float8_e5m2", std::nullopt},
}};

// Every name that a pickle of tensors holds.
std::vector<std::string_view> torch_globals() {
  std::vector<std::string_view> names = {kRebuildTensor,  kRebuildTyped, kRebuildParameter,
                                         kUntypedStorage, "torch.Size",  "torch.device"};
  for (const TorchType& type : kTorchTypes) {
    if (!type.storage.empty()) names.push_back(type.storage);
    names.push_back(type.dtype);
  }
  return names;
}

struct TorchTensor {
  const ZipMember* storage = nullptr;
  NpyType type = NpyType::f32;
  std::int64_t offset = 0;  // all in elements
  std::vector<std::int64_t> strides;
  std::int64_t span = 0;  // elements from the first to the last that the tensor reads
};

class TorchReader final : public ArrayReader {
 public:
  TorchReader(std::shared_ptr<const ZipArchive> archive, std::string name)
      : ArrayReader(ArrayFormat::torch, std::move(name)), archive_(std::move(archive)) {}

  [[nodiscard]] Result<NpyArray> read(std::size_t index) const override {
    const ArrayEntry& entry = entries[index];
    const TorchTensor& tensor = tensors[index];
    NpyArray array = make_npy(tensor.type, entry.shape);
    const std::size_t width = size_of(tensor.type);
    const std::uint64_t first = static_cast<std::uint64_t>(tensor.offset) * width;
    if (tensor.strides == c_strides(entry.shape)) {
      if (const auto done = archive_->read_part(*tensor.storage, first, array.bytes); !done)
        return done.error();
      return array;
    }
    std::vector<std::byte> storage(static_cast<std::size_t>(tensor.span) * width);
    if (const auto done = archive_->read_part(*tensor.storage, first, storage); !done)
      return done.error();
    gather(storage, width, entry.shape, tensor.strides, array.bytes);
    return array;
  }

  std::vector<TorchTensor> tensors;  // one per entry

 private:
  std::shared_ptr<const ZipArchive> archive_;
};

// Walks through the pickle and collects its tensors. Failures are thrown.
class TensorCollector {
 public:
  TensorCollector(const Pickle& pickle, const ZipArchive& archive, std::string root,
                  TorchReader& out)
      : pickle_(pickle), archive_(archive), root_(std::move(root)), out_(out) {}

  void collect() { walk(pickle_.root, "", 0); }

 private:
  [[noreturn]] static void broken(const std::string& text) { throw Error(ErrorCode::io, text); }

  void walk(std::uint32_t index, const std::string& name, int depth) {
    if (depth > kDeepest)
      broken(message("dicts and lists must be nested at most ", kDeepest, " deep"));
    // A value may be part of many others: without a bound, n lists that each hold the next one twice
    // would be 2^n.
    if (++steps_ > kMaxPickleValues)
      broken(message("dicts and lists must have at most ", kMaxPickleValues, " values"));
    const PickleValue& value = pickle_[index];
    if (value.kind == Kind::dict) {
      for (std::size_t i = 0; i < value.items.size(); i += 2)
        walk(value.items[i + 1], joined(name, key_text(value.items[i])), depth + 1);
    } else if (value.kind == Kind::list || value.kind == Kind::tuple) {
      for (std::size_t i = 0; i < value.items.size(); ++i)
        walk(value.items[i], joined(name, message(i)), depth + 1);
    } else if (value.kind == Kind::call && value.text == kRebuildParameter) {
      if (value.items.empty()) broken("a parameter without its tensor");
      walk(value.items.front(), name, depth + 1);
    } else if (value.kind == Kind::call &&
               (value.text == kRebuildTensor || value.text == kRebuildTyped)) {
      add_tensor(value, name);
    }
  }

  static std::string joined(const std::string& name, const std::string& key) {
    return name.empty() ? key : name + "." + key;
  }
  [[nodiscard]] std::string key_text(std::uint32_t index) const {
    const PickleValue& key = pickle_[index];
    if (key.kind == Kind::text) return key.text;
    if (key.kind == Kind::integer) return message(key.integer);
    throw Error(ErrorCode::unsupported, "a key of a dict must be text or an integer");
  }

  // _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, metadata); v3 has the dtype
  // before the metadata, which says that a view is conjugated or negated.
  void add_tensor(const PickleValue& call, const std::string& name) {
    if (!names_.insert(name).second) {
      throw Error(ErrorCode::unsupported, message("two tensors have the name ", quoted_name(name)));
    }
    const bool typed = call.text == kRebuildTyped;
    if (call.items.size() < (typed ? 7U : 6U))
      broken(message("tensor ", quoted_name(name), ": ", call.items.size(),
                     " values describe it, which is too few"));
    ArrayEntry entry;
    TorchTensor tensor;
    entry.name = name;
    entry.shape = integers(call.items[2], name);
    tensor.strides = integers(call.items[3], name);
    tensor.offset = integer(call.items[1], name);
    const TorchType& type = read_storage(call, typed, name, tensor);
    entry.type = type.type ? std::string(name_of(*type.type))
                           : std::string(type.dtype.substr(type.dtype.find('.') + 1));
    const std::size_t metadata = typed ? 7 : 6;
    const bool is_lazy =
        call.items.size() > metadata && !pickle_[call.items[metadata]].items.empty();
    if (!type.type || is_lazy) {
      entry.problem =
          Error(ErrorCode::unsupported,
                is_lazy ? message(out_.name, ": ", quoted_name(name),
                                  ": a conjugated or negated view is not supported; save "
                                  "tensor.resolve_conj().resolve_neg()")
                        : message(out_.name, ": ", quoted_name(name), ": type ", entry.type,
                                  " is not supported"));
    } else {
      tensor.type = *type.type;
      entry.bytes = check_extent(entry, tensor);
    }
    out_.entries.push_back(std::move(entry));
    out_.tensors.push_back(std::move(tensor));
  }

  // ("storage", type, key, location, elements)
  const TorchType& read_storage(const PickleValue& call, bool typed, const std::string& name,
                                TorchTensor& tensor) const {
    const PickleValue& reference = pickle_[call.items[0]];
    const PickleValue* const facts =
        reference.kind == Kind::persistent ? &pickle_[reference.items.front()] : nullptr;
    if (facts == nullptr || facts->items.size() < 5 ||
        pickle_[facts->items[1]].kind != Kind::global ||
        pickle_[facts->items[2]].kind != Kind::text) {
      broken(message("tensor ", quoted_name(name), " has no storage"));
    }
    const std::string member = message(root_, "data/", pickle_[facts->items[2]].text);
    tensor.storage = archive_.find(member);
    if (tensor.storage == nullptr) {
      broken(message("tensor ", quoted_name(name), ": the archive has no member ",
                     quoted_name(member)));
    }
    const std::string& wanted = typed ? pickle_[call.items[6]].text : pickle_[facts->items[1]].text;
    for (const TorchType& type : kTorchTypes) {
      if (wanted == (typed ? type.dtype : type.storage)) return type;
    }
    broken(message("tensor ", quoted_name(name), " has no type, got ", quoted_name(wanted)));
  }

  // Returns the bytes of the tensor.
  [[nodiscard]] static std::size_t check_extent(const ArrayEntry& entry, TorchTensor& tensor) {
    const auto refuse_tensor = [&](const std::string& text) {
      broken(message("tensor ", quoted_name(entry.name), ": ", text));
    };
    const std::size_t width = size_of(tensor.type);
    if (entry.shape.size() != tensor.strides.size()) {
      refuse_tensor(message("shape ", core::shape_text(entry.shape), " and strides ",
                            core::shape_text(tensor.strides), " differ in length"));
    }
    if (entry.shape.size() > kMaxDims)
      refuse_tensor(message("it must have at most ", kMaxDims, " axes, got ", entry.shape.size()));
    const std::size_t bytes = byte_count(width, entry.shape).value_or_throw();
    std::int64_t last = 0;  // element
    bool fits = tensor.offset >= 0;
    for (std::size_t axis = 0; axis < entry.shape.size(); ++axis) {
      std::int64_t reach = 0;
      fits = fits && tensor.strides[axis] >= 0 &&
             !__builtin_mul_overflow(std::max<std::int64_t>(entry.shape[axis] - 1, 0),
                                     tensor.strides[axis], &reach) &&
             !__builtin_add_overflow(last, reach, &last);
    }
    const std::uint64_t elements = tensor.storage->size / width;
    const bool is_empty = bytes == 0;
    fits = fits && (is_empty || (static_cast<std::uint64_t>(last) < elements &&
                                 static_cast<std::uint64_t>(tensor.offset) <
                                     elements - static_cast<std::uint64_t>(last)));
    if (!fits) {
      refuse_tensor(message("offset ", tensor.offset, ", shape ", core::shape_text(entry.shape),
                            " and strides ", core::shape_text(tensor.strides),
                            " do not fit in its storage of ", elements, " elements"));
    }
    if (is_empty) tensor.offset = 0;
    tensor.span = is_empty ? 0 : last + 1;
    if (bytes / kMostRepeated > tensor.storage->size) {
      refuse_tensor(message("a view may be at most ", kMostRepeated,
                            " times as large as its storage of ", tensor.storage->size,
                            " bytes, got ", bytes, " bytes"));
    }
    return bytes;
  }

  [[nodiscard]] std::int64_t integer(std::uint32_t index, const std::string& name) const {
    if (pickle_[index].kind != Kind::integer)
      broken(message("tensor ", quoted_name(name), ": shape, strides and offset must be integers"));
    return pickle_[index].integer;
  }
  // A tuple, or torch.Size(tuple).
  [[nodiscard]] std::vector<std::int64_t> integers(std::uint32_t index,
                                                   const std::string& name) const {
    const PickleValue* value = &pickle_[index];
    if (value->kind == Kind::call && value->items.size() == 1) value = &pickle_[value->items[0]];
    std::vector<std::int64_t> list;
    for (const std::uint32_t item : value->items) list.push_back(integer(item, name));
    return list;
  }

  const Pickle& pickle_;
  const ZipArchive& archive_;
  std::string root_;  // folder of data.pkl, with '/' at its end
  TorchReader& out_;
  std::set<std::string> names_;
  std::size_t steps_ = 0;
};

[[nodiscard]] Result<Done> check_byte_order(const ZipArchive& archive, const std::string& root,
                                            const std::string& name) {
  const ZipMember* const order = archive.find(root + "byteorder");
  if (order == nullptr) return Done{};  // before torch 2.0: only little-endian machines wrote files
  const Result<std::vector<std::byte>> bytes = archive.read(*order, 16);
  if (!bytes) return bytes.error();
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  if (text == "little") return Done{};
  return Error(ErrorCode::unsupported,
               message(name, ": the byte order must be little, got ", in_quotes(text)));
}

}  // namespace

OpenedReader open_torch_reader(const std::shared_ptr<const ZipArchive>& archive,
                               const ZipMember& pickle, const std::string& name) {
  const std::string root = pickle.name.substr(0, pickle.name.rfind('/') + 1);
  if (const Result<Done> order = check_byte_order(*archive, root, name); !order)
    return order.error();
  const Result<std::vector<std::byte>> bytes = archive->read(pickle, kMaxPickleBytes);
  if (!bytes) return bytes.error();
  try {
    const std::vector<std::string_view> globals = torch_globals();
    const Pickle values = read_pickle(*bytes, globals).value_or_throw();
    auto reader = std::make_unique<TorchReader>(archive, name);
    TensorCollector(values, *archive, root, *reader).collect();
    return OpenedReader(std::move(reader));
  } catch (const Error& error) {
    return in_file(name, error);
  }
}

}  // namespace phasor::io
