#include "io/safetensors/header.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "io/json/library.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file_text.hpp"
#include "phasor/io/internal/shape.hpp"

namespace phasor::io {
namespace {

struct SafetensorsTypeRow {
  TensorType type;
  std::string_view name;
};
constexpr std::array<SafetensorsTypeRow, 15> kSafetensorsTypes{{
    {TensorType::f64, "F64"},
    {TensorType::f32, "F32"},
    {TensorType::f16, "F16"},
    {TensorType::bf16, "BF16"},
    {TensorType::f8_e4m3, "F8_E4M3"},
    {TensorType::f8_e5m2, "F8_E5M2"},
    {TensorType::i64, "I64"},
    {TensorType::i32, "I32"},
    {TensorType::i16, "I16"},
    {TensorType::i8, "I8"},
    {TensorType::u64, "U64"},
    {TensorType::u32, "U32"},
    {TensorType::u16, "U16"},
    {TensorType::u8, "U8"},
    {TensorType::boolean, "BOOL"},
}};

// A map node takes about ten times the bytes of the shortest entry; no writer stores so many.
constexpr std::size_t kMaxMetadata = 100'000;

std::optional<TensorType> type_of(std::string_view name) {
  const auto* const row = std::find_if(kSafetensorsTypes.begin(), kSafetensorsTypes.end(),
                                       [&](const SafetensorsTypeRow& r) { return r.name == name; });
  return row == kSafetensorsTypes.end() ? std::nullopt : std::optional(row->type);
}

std::string type_names() {
  std::array<std::string_view, kSafetensorsTypes.size()> names;
  std::transform(kSafetensorsTypes.begin(), kSafetensorsTypes.end(), names.begin(),
                 [](const SafetensorsTypeRow& row) { return row.name; });
  return core::list_text(names);
}

// Builds the header from parser events; the first error ends the parse.
class HeaderHandler final : public JsonEvents {
 public:
  explicit HeaderHandler(std::string_view text) : text_(text) {}

  bool null() override { return wrong_value("null"); }
  bool boolean(bool value) override { return wrong_value(value ? "true" : "false"); }
  bool integer(std::int64_t value) override {
    // The parser calls natural() for numbers without a minus sign.
    if (place_ == Place::shape)
      return tensor_error(message("shape must not be negative, got ", value));
    if (place_ == Place::offsets)
      return tensor_error(message("data_offsets must not be negative, got ", value));
    return wrong_value(message(value));
  }
  bool natural(std::uint64_t value) override;
  bool real(double /*value*/, const std::string& text) override {
    return wrong_value(in_quotes(text));
  }
  bool string(std::string& value) override;
  bool start_object() override;
  bool key(std::string& name) override;
  bool end_object() override;
  bool start_array() override;
  bool end_array() override;
  void fault(std::size_t position, std::string_view reason) override {
    fail(message("header: ", json_fault_text(text_, position, reason)));
  }

  [[nodiscard]] Result<SafetensorsHeader> result() && {
    if (error_) return *error_;
    return std::move(header_);
  }

 private:
  // What the next event belongs to.
  enum class Place : std::uint8_t {
    start,
    top,             // between entries
    tensor_value,    // after a tensor's name
    tensor,          // inside a tensor, between its keys
    type,            // after "dtype"
    shape_value,     // after "shape"
    shape,           // inside its list
    offsets_value,   // after "data_offsets"
    offsets,         // inside its list
    metadata_value,  // after "__metadata__"
    metadata,        // inside it, between its keys
    metadata_text,   // after a key of it
  };

  bool fail(const std::string& text, ErrorCode code = ErrorCode::io) {
    error_ = Error(code, text);
    return false;
  }
  bool tensor_error(std::string_view text, ErrorCode code = ErrorCode::io) {
    return fail(message("tensor ", quoted_name(entry_.name), ": ", text), code);
  }
  bool wrong_value(const std::string& got);
  bool entry_key(const std::string& name);

  std::string_view text_;
  Place place_ = Place::start;
  SafetensorsHeader header_;
  SafetensorsHeader::Entry entry_;
  bool has_type_ = false, has_shape_ = false, has_metadata_ = false;
  std::size_t offsets_ = 0;  // the integers in data_offsets
  std::string metadata_key_;
  std::optional<Error> error_;
};

bool HeaderHandler::wrong_value(const std::string& got) {
  switch (place_) {
    case Place::tensor_value:
      return tensor_error(message("must be an object of dtype, shape and data_offsets, got ", got));
    case Place::type:
      return tensor_error(message("dtype must be a string, got ", got));
    case Place::shape_value:
    case Place::shape:
      return tensor_error(message("shape must be a list of integers, got ", got));
    case Place::offsets_value:
    case Place::offsets:
      return tensor_error(message("data_offsets must be a list of two integers, got ", got));
    case Place::metadata_value:
      return fail(message("__metadata__ must be an object of strings, got ", got));
    case Place::metadata_text:
      return fail(
          message("__metadata__: ", quoted_name(metadata_key_), " must be a string, got ", got));
    default:
      return fail(message("header must be a JSON object, got ", got));
  }
}

bool HeaderHandler::natural(std::uint64_t value) {
  if (place_ == Place::shape) {
    if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
      return tensor_error(message("shape must fit in 63 bits, got ", value));
    if (entry_.shape.size() == kMaxDims)
      return tensor_error(message("shape has more than ", kMaxDims, " dimensions"));
    entry_.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  if (place_ == Place::offsets) {
    if (offsets_ < 2) (offsets_ == 0 ? entry_.begin : entry_.end) = value;
    ++offsets_;
    return true;
  }
  return wrong_value(message(value));
}

bool HeaderHandler::string(std::string& value) {
  if (place_ == Place::type) {
    const std::optional<TensorType> type = type_of(value);
    if (!type) {
      return tensor_error(
          message("dtype ", in_quotes(value), " is not supported; it must be ", type_names()),
          ErrorCode::unsupported);
    }
    entry_.type = *type;
    place_ = Place::tensor;
    return true;
  }
  if (place_ == Place::metadata_text) {
    if (header_.metadata.size() == kMaxMetadata)
      return fail(message("__metadata__ has more than ", kMaxMetadata, " entries"));
    if (!header_.metadata.emplace(metadata_key_, std::move(value)).second)
      return fail(message("__metadata__: key ", quoted_name(metadata_key_), " appears twice"));
    place_ = Place::metadata;
    return true;
  }
  return wrong_value(message("the string ", in_quotes(value)));
}

bool HeaderHandler::start_object() {
  switch (place_) {
    case Place::start:
      place_ = Place::top;
      return true;
    case Place::tensor_value:
      place_ = Place::tensor;
      return true;
    case Place::metadata_value:
      place_ = Place::metadata;
      return true;
    default:
      return wrong_value("an object");
  }
}

bool HeaderHandler::key(std::string& name) {
  if (place_ == Place::metadata) {
    metadata_key_ = std::move(name);
    place_ = Place::metadata_text;
    return true;
  }
  if (place_ == Place::tensor) return entry_key(name);
  if (name == kSafetensorsMetadata) {
    if (has_metadata_) return fail("'__metadata__' appears twice");
    has_metadata_ = true;
    place_ = Place::metadata_value;
    return true;
  }
  entry_ = {};
  entry_.name = std::move(name);
  has_type_ = has_shape_ = false;
  offsets_ = 0;
  place_ = Place::tensor_value;
  return true;
}

bool HeaderHandler::entry_key(const std::string& name) {
  const bool seen = (name == "dtype" && std::exchange(has_type_, true)) ||
                    (name == "shape" && std::exchange(has_shape_, true)) ||
                    (name == "data_offsets" && offsets_ > 0);
  if (seen) return tensor_error(message("key ", in_quotes(name), " appears twice"));
  if (name == "dtype") {
    place_ = Place::type;
  } else if (name == "shape") {
    place_ = Place::shape_value;
  } else if (name == "data_offsets") {
    place_ = Place::offsets_value;
  } else {
    return tensor_error(
        message("unknown key ", in_quotes(name), "; the keys are dtype, shape and data_offsets"));
  }
  return true;
}

bool HeaderHandler::end_object() {
  if (place_ == Place::tensor) {
    const std::string_view missing = !has_type_      ? "dtype"
                                     : !has_shape_   ? "shape"
                                     : offsets_ == 0 ? "data_offsets"
                                                     : "";
    if (!missing.empty()) return tensor_error(message("missing key '", missing, "'"));
    header_.entries.push_back(std::move(entry_));
  }
  // The next entry may follow a tensor or the metadata; after the header nothing follows.
  place_ = Place::top;
  return true;
}

bool HeaderHandler::start_array() {
  if (place_ == Place::shape_value) {
    place_ = Place::shape;
  } else if (place_ == Place::offsets_value) {
    place_ = Place::offsets;
  } else {
    return wrong_value("a list");
  }
  return true;
}

bool HeaderHandler::end_array() {
  if (place_ == Place::offsets && offsets_ != 2) {
    return wrong_value(message("a list of ", offsets_));
  }
  place_ = Place::tensor;
  return true;
}

// nullopt for text that is not UTF-8.
std::optional<std::string> json_text(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Error&) {
    return std::nullopt;
  }
}

Error write_error(const std::string& text) {
  return {ErrorCode::invalid_argument, message("write_safetensors: ", text)};
}

Result<std::string> entry_text(const Tensor& tensor, std::uint64_t begin) {
  const std::string who = message("tensor ", quoted_name(tensor.name), ": ");
  if (tensor.name == kSafetensorsMetadata)
    return write_error(message(who, "the name is reserved for the metadata"));
  const std::optional<std::string> name = json_text(tensor.name);
  if (!name)
    return write_error(message(who, "the name must be UTF-8, got ", in_quotes(tensor.name)));
  const std::string_view type = safetensors_name_of(tensor.type);
  if (type.empty()) {
    return write_error(
        message(who, "type ", name_of(tensor.type), " does not exist in safetensors"));
  }
  const Result<std::size_t> size = byte_count(block_bytes(tensor.type), tensor.shape);
  if (!size) return write_error(message(who, size.error().what()));
  if (tensor.file == nullptr && *size != tensor.bytes.size()) {
    return write_error(message(who, "shape ", core::shape_text(tensor.shape), " of ", type,
                               " needs ", *size, " bytes, got ", tensor.bytes.size()));
  }
  std::string shape;
  for (const std::int64_t dim : tensor.shape)
    shape += (shape.empty() ? "" : ",") + std::to_string(dim);
  return message(*name, R"(:{"dtype":")", type, R"(","shape":[)", shape, R"(],"data_offsets":[)",
                 begin, ",", begin + *size, "]}");
}

Result<std::string> metadata_text(const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) {
    const std::optional<std::string> shown_key = json_text(key), shown_value = json_text(value);
    if (!shown_key || !shown_value) {
      return write_error(
          message("metadata must be UTF-8, got ", quoted_name(key), ": ", in_quotes(value)));
    }
    text += message(text.empty() ? "" : ",", *shown_key, ":", *shown_value);
  }
  return text;
}

}  // namespace

std::string_view safetensors_name_of(TensorType type) noexcept {
  const auto* const row = std::find_if(kSafetensorsTypes.begin(), kSafetensorsTypes.end(),
                                       [&](const SafetensorsTypeRow& r) { return r.type == type; });
  return row == kSafetensorsTypes.end() ? std::string_view{} : row->name;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text) {
  // The parser would skip a byte order mark and treat a NUL as the end.
  if (!text.starts_with('{')) {
    return Error(ErrorCode::io,
                 message("header must start with '{', got ", in_quotes(text.substr(0, 1))));
  }
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    return Error(ErrorCode::io, message("header: ", json_fault_text(text, nul + 1, "NUL byte")));
  HeaderHandler handler(text);
  parse_events(text, handler);
  return std::move(handler).result();
}

Result<std::string> safetensors_front(const std::vector<Tensor>& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    const Result<std::string> entries = metadata_text(metadata);
    if (!entries) return entries.error();
    text += message('"', kSafetensorsMetadata, "\":{", *entries, "}");
  }
  std::vector<std::string_view> names;
  std::uint64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    const Result<std::string> entry = entry_text(tensor, begin);
    if (!entry) return entry.error();
    text += (text.size() > 1 ? "," : "") + *entry;
    names.emplace_back(tensor.name);
    begin += tensor.byte_size();  // no overflow: the bytes are in memory or in a file
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    return write_error(message("tensor ", quoted_name(*twice), " appears twice"));
  text += "}";
  text.append((0 - text.size()) % kSafetensorsLengthField, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    return write_error(
        message("header must have at most ", kMaxSafetensorsHeader, " bytes, got ", text.size()));
  }
  std::string front;
  for (std::size_t i = 0; i < kSafetensorsLengthField; ++i)
    front += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return front + text;
}

}  // namespace phasor::io
