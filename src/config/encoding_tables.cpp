#include "config/encoding_tables.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "phasor/core/view.hpp"
#include "phasor/io/npy.hpp"

namespace phasor::config {
namespace {

using encodings::Sinusoidal;
using encodings::Table;

struct Numbers {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

[[nodiscard]] std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t length : shape) text += message(text.empty() ? "" : ", ", length);
  return "[" + text + "]";
}

// The first entry of each depth sets the length that the others must have.
void collect(const ObjectReader& reader, std::string_view key, const Json& value, std::size_t depth,
             Numbers& numbers) {
  if (value.is_number()) {
    if (depth != numbers.shape.size()) {
      reader.refuse(key, message("expected lists of one depth, got the number ", shown(value),
                                 " beside a list"));
    }
    const double number = value.get<double>();
    if (std::abs(number) > std::numeric_limits<float>::max())
      reader.refuse(key, message("expected numbers in the range of float32, got ", number));
    numbers.values.push_back(static_cast<float>(number));
    return;
  }
  if (!value.is_array()) {
    reader.refuse(key, message("expected nested lists of numbers, got ", shown(value), " in them"));
  }
  const auto length = static_cast<std::int64_t>(value.size());
  if (depth == numbers.shape.size()) {
    if (!numbers.values.empty())
      reader.refuse(key, message("expected lists of one depth, got a list beside a number"));
    numbers.shape.push_back(length);
  }
  if (numbers.shape[depth] != length) {
    reader.refuse(key, message("expected lists of one length, got ", numbers.shape[depth], " and ",
                               length, " numbers"));
  }
  for (const Json& entry : value) collect(reader, key, entry, depth + 1, numbers);
}

[[nodiscard]] Numbers read_file(const ObjectReader& reader, std::string_view key,
                                const std::filesystem::path& path) {
  const Result<io::NpyArray> array = io::read_npy(path);
  if (!array) reader.refuse_as(array.error().code(), key, array.error().what());
  Numbers numbers;
  numbers.shape = array->shape;
  numbers.values.resize(static_cast<std::size_t>(array->size()));
  const auto widen = [&](auto* stored) {
    std::transform(stored, stored + numbers.values.size(), numbers.values.begin(),
                   [](auto value) { return core::to_float(value); });
  };
  switch (array->type) {
    case io::NpyType::f32:
      std::copy_n(array->as<float>(), numbers.values.size(), numbers.values.begin());
      break;
    case io::NpyType::f16:
      widen(array->as<core::Half>());
      break;
    case io::NpyType::bf16:
      widen(array->as<core::BFloat16>());
      break;
    default:
      reader.refuse_as(ErrorCode::unsupported, key,
                       message(path.string(), ": expected float32, float16 or bfloat16, got ",
                               io::name_of(array->type)));
  }
  return numbers;
}

[[nodiscard]] std::optional<TableAxes> form_of(std::initializer_list<TableAxes> forms,
                                               std::size_t rank) {
  for (const TableAxes& form : forms) {
    if (form.order.size() == rank) return form;
  }
  return std::nullopt;
}

[[nodiscard]] std::string names_of(std::initializer_list<TableAxes> forms) {
  std::string names;
  for (const TableAxes& form : forms) names += message(names.empty() ? "" : " or ", form.text);
  return names;
}

}  // namespace

Table TableReader::table(const ObjectReader& reader, std::string_view key,
                         std::initializer_list<TableAxes> forms) {
  reader.mark_understood(key);
  const Json& value = reader.value(key);
  if (value.is_null()) return {};
  Numbers numbers;
  if (value.is_string()) {
    numbers = read_file(reader, key, folder_ / value.get<std::string>());
  } else if (value.is_array()) {
    collect(reader, key, value, 0, numbers);
  } else {
    reader.refuse(key,
                  message("expected a .npy file or nested lists of numbers, got ", shown(value)));
  }
  const std::optional<TableAxes> form = form_of(forms, numbers.shape.size());
  if (!form) {
    reader.refuse_as(
        ErrorCode::shape_mismatch, key,
        message("expected a table ", names_of(forms), ", got the shape ", text_of(numbers.shape)));
  }
  if (numbers.values.empty()) {
    reader.refuse_as(
        ErrorCode::shape_mismatch, key,
        message("expected at least one number, got the shape ", text_of(numbers.shape)));
  }
  storage_.push_back(std::move(numbers.values));
  Table table;
  table.data = storage_.back().data();
  table.rows = table.dim = 1;
  std::int64_t stride = 1;
  for (std::size_t axis = numbers.shape.size(); axis-- > 0;) {
    const std::int64_t length = numbers.shape[axis];
    switch (form->order[axis]) {
      case 'h':
        table.heads = length;
        table.head_stride = stride;
        break;
      case 'r':
        table.rows = length;
        table.row_stride = stride;
        break;
      default:
        table.dim = length;
    }
    stride *= length;
  }
  // Where there is one row the step to the next is never taken, yet must not be less than a row.
  if (table.row_stride == 0) table.row_stride = table.dim;
  return table;
}

Table TableReader::required(const ObjectReader& reader, std::string_view key,
                            std::initializer_list<TableAxes> forms) {
  const Table found = table(reader, key, forms);
  if (!found.given())
    reader.refuse(key, message("expected a table ", names_of(forms), ", got nothing"));
  return found;
}

std::optional<Sinusoidal> TableReader::sinusoidal(const ObjectReader& reader, std::string_view key,
                                                  std::optional<std::int64_t> head_dim) const {
  if (!reader.value(key).is_object()) return std::nullopt;
  const ObjectReader outer = *reader.object(key);
  const std::optional<ObjectReader> rows = outer.object("sinusoidal");
  if (!rows) outer.refuse("sinusoidal", "expected an object, got nothing");
  outer.refuse_rest("sinusoidal");
  Sinusoidal encoding;
  encoding.dim = rows->integer("dim").value_or(head_dim.value_or(0));
  if (encoding.dim == 0) rows->refuse("dim", "expected the width of a head, got nothing");
  encoding.base = rows->number("base").value_or(encoding.base);
  const std::string variant = rows->text("variant").value_or("interleaved");
  if (variant == "interleaved") {
    encoding.variant = Sinusoidal::Variant::interleaved;
  } else if (variant == "concat") {
    encoding.variant = Sinusoidal::Variant::concat;
  } else if (variant == "fairseq") {
    encoding.variant = Sinusoidal::Variant::fairseq;
  } else {
    rows->refuse("variant",
                 message("expected interleaved, concat or fairseq, got \"", variant, "\""));
  }
  rows->refuse_rest("variant, base, dim");
  encodings::validate(encoding);
  return encoding;
}

Table TableReader::rows_of(const Sinusoidal& encoding, Positions positions) {
  constexpr std::int64_t kMostNumbers = std::int64_t{1} << 24;
  if (positions.count > kMostNumbers / encoding.dim) {
    throw Error(ErrorCode::invalid_argument,
                message("sinusoidal: expected at most ", kMostNumbers, " numbers, got ",
                        positions.count, " rows of ", encoding.dim));
  }
  std::vector<std::int64_t> at(static_cast<std::size_t>(positions.count));
  for (std::size_t row = 0; row < at.size(); ++row)
    at[row] = positions.first + static_cast<std::int64_t>(row) * positions.step;
  storage_.emplace_back(at.size() * static_cast<std::size_t>(encoding.dim));
  encodings::sinusoidal_rows(encoding, at, storage_.back().data());
  return encodings::shared_rows(static_cast<const float*>(storage_.back().data()), positions.count,
                                encoding.dim);
}

}  // namespace phasor::config
