#include "config/encoding/tables.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "phasor/core/internal/extent.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/core/view.hpp"
#include "phasor/io/internal/file_text.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/npy.hpp"

namespace phasor::config {
namespace {

using encodings::Sinusoidal;
using encodings::Table;

struct Numbers {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  std::vector<double> wide;  // those of a list: text has more digits than float32
};

// The first entry of each depth sets the length that the others must have.
void collect(const ObjectReader& reader, std::string_view key, const Json& value, std::size_t depth,
             Numbers& numbers) {
  if (value.is_number()) {
    if (depth != numbers.shape.size()) {
      reader.refuse(key, message("must be lists of one depth, got the number ", shown(value),
                                 " next to a list"));
    }
    const double number = value.get<double>();
    if (std::abs(number) > std::numeric_limits<float>::max())
      reader.refuse(key, message("must be numbers in the range of float32, got ", number));
    numbers.wide.push_back(number);
    return;
  }
  if (!value.is_array()) {
    reader.refuse(key, message("must be nested lists of numbers, got ", shown(value), " in them"));
  }
  const auto length = static_cast<std::int64_t>(value.size());
  if (depth == numbers.shape.size()) {
    if (!numbers.wide.empty())
      reader.refuse(key, message("must be lists of one depth, got a list next to a number"));
    numbers.shape.push_back(length);
  }
  if (numbers.shape[depth] != length) {
    reader.refuse(key, message("must be lists of one length, got ", numbers.shape[depth], " and ",
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
                       message(path.string(), ": must be float32, float16 or bfloat16, got ",
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

using Shape = std::span<const std::int64_t>;

[[nodiscard]] TableAxes form_for(const ObjectReader& reader, std::string_view key, Shape shape,
                                 std::initializer_list<TableAxes> forms) {
  const std::optional<TableAxes> form = form_of(forms, shape.size());
  if (!form) {
    reader.refuse_as(
        ErrorCode::shape_mismatch, key,
        message("must be a table ", names_of(forms), ", got the shape ", core::shape_text(shape)));
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    reader.refuse_as(
        ErrorCode::shape_mismatch, key,
        message("must have at least one number, got the shape ", core::shape_text(shape)));
  }
  return *form;
}

[[nodiscard]] std::vector<std::int64_t> dense_strides(Shape shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

// The axes of an array as those of a table without numbers yet.
[[nodiscard]] Table laid_out(const TableAxes& form, Shape shape, Shape strides) {
  Table table;
  table.rows = table.dim = 1;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    switch (form.order[axis]) {
      case 'h':
        table.heads = shape[axis];
        table.head_stride = strides[axis];
        break;
      case 'r':
        table.rows = shape[axis];
        table.row_stride = strides[axis];
        break;
      default:
        table.dim = shape[axis];
    }
  }
  // The stride of a single row is never used, yet must not be less than a row.
  if (table.rows == 1) table.row_stride = table.dim;
  return table;
}

// Whether attention can read the features in place.
[[nodiscard]] bool contiguous_rows(const TableAxes& form, Shape shape, Shape strides) {
  const std::size_t last = shape.size() - 1;
  return form.order[last] != 'd' || shape[last] == 1 || strides[last] == 1;
}

// The stride of an axis with one entry is never used.
[[nodiscard]] bool same_places(Shape shape, Shape strides, Shape others) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] != 1 && strides[axis] != others[axis]) return false;
  }
  return true;
}

[[nodiscard]] std::vector<float> rounded(const std::vector<double>& values) {
  // Outside of float's range the conversion would be undefined.
  constexpr double kMost = std::numeric_limits<float>::max();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), [](double value) {
    if (value > kMost) return kInfinity;
    return value < -kMost ? -kInfinity : static_cast<float>(value);
  });
  return result;
}

// Every number in row-major order.
[[nodiscard]] std::vector<double> copied(const NamedTable& array, Shape strides) {
  std::int64_t count = 1;
  for (const std::int64_t length : array.shape) count *= length;
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(count));
  core::ConstHeadsView view;
  view.data = array.data;
  view.dtype = array.dtype;
  std::vector<std::int64_t> index(array.shape.size(), 0);
  for (std::int64_t done = 0; done < count; ++done) {
    std::int64_t at = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * strides[axis];
    values.push_back(core::element_of(view, at));
    for (std::size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < array.shape[axis]) break;
      index[axis] = 0;
    }
  }
  return values;
}

}  // namespace

std::filesystem::path file_named(const ObjectReader& reader, std::string_view key,
                                 const std::filesystem::path& folder) {
  const auto name = reader.value(key).get<std::string>();
  const std::filesystem::path path(name);
  if (path.empty() || path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end())
    reader.refuse(key,
                  message("must name a file in the encoding's folder, got ", io::in_quotes(name)));
  return folder.empty() ? path : io::as_folder(folder) / path;
}

void TableReader::keep(std::vector<float> values, Table& table) {
  table.data = loaded_.storage.emplace_back(std::move(values)).data();
}

void TableReader::keep(std::vector<double> values, Table& table) {
  keep(rounded(values), table);
  table.wide = loaded_.wide_storage.emplace_back(std::move(values)).data();
}

Table TableReader::array(const ObjectReader& reader, std::string_view key,
                         std::initializer_list<TableAxes> forms) {
  const ObjectReader value = *reader.object(key);
  const std::optional<std::string> name = value.text("array");
  if (!name) {
    reader.refuse(key, message("must be a .npy file, nested lists of numbers or an array, got ",
                               shown(reader.value(key))));
  }
  value.refuse_rest("array");
  const auto found = std::find_if(arrays_.begin(), arrays_.end(),
                                  [&](const NamedTable& array) { return array.name == *name; });
  if (found == arrays_.end())
    reader.refuse(key, message("must name an array that was given, got \"", *name, "\""));
  const TableAxes form = form_for(reader, key, found->shape, forms);
  const std::vector<std::int64_t> dense = dense_strides(found->shape);
  const Shape strides = found->strides.empty() ? Shape(dense) : found->strides;
  std::vector<core::Dimension> dimensions;
  for (std::size_t axis = 0; axis < strides.size(); ++axis)
    dimensions.push_back({found->shape[axis], strides[axis]});
  if (!core::is_addressable(dimensions, sizeof(double))) {
    reader.refuse_as(
        ErrorCode::out_of_range, key,
        message("must lie within 2^56 bytes, got the shape ", core::shape_text(found->shape),
                " with the strides ", core::shape_text(strides)));
  }
  if (found->dtype == core::DType::f32 && contiguous_rows(form, found->shape, strides)) {
    Table table = laid_out(form, found->shape, strides);
    table.data = static_cast<const float*>(found->data);
    return table;
  }
  Table table = laid_out(form, found->shape, dense);
  std::vector<double> values = copied(*found, strides);
  if (found->dtype != core::DType::f64) {
    keep(rounded(values), table);
  } else if (!same_places(found->shape, strides, dense)) {
    keep(std::move(values), table);
  } else {
    keep(rounded(values), table);
    table.wide = static_cast<const double*>(found->data);
  }
  return table;
}

Table TableReader::table(const ObjectReader& reader, std::string_view key,
                         std::initializer_list<TableAxes> forms) {
  reader.mark_understood(key);
  const Json& value = reader.value(key);
  if (value.is_null()) return {};
  if (value.is_object()) return array(reader, key, forms);
  Numbers numbers;
  if (value.is_string()) {
    numbers = read_file(reader, key, file_named(reader, key, folder_));
  } else if (value.is_array()) {
    collect(reader, key, value, 0, numbers);
  } else {
    reader.refuse(key,
                  message("must be a .npy file or nested lists of numbers, got ", shown(value)));
  }
  const TableAxes form = form_for(reader, key, numbers.shape, forms);
  Table table = laid_out(form, numbers.shape, dense_strides(numbers.shape));
  if (value.is_array()) {
    keep(std::move(numbers.wide), table);
  } else {
    keep(std::move(numbers.values), table);
  }
  return table;
}

Table TableReader::required(const ObjectReader& reader, std::string_view key,
                            std::initializer_list<TableAxes> forms) {
  const Table found = table(reader, key, forms);
  if (!found.given()) reader.refuse(key, message("missing key: a table ", names_of(forms)));
  return found;
}

std::optional<Sinusoidal> TableReader::sinusoidal(const ObjectReader& reader, std::string_view key,
                                                  std::optional<std::int64_t> head_dim) const {
  const Json& value = reader.value(key);
  if (!value.is_object() || value.contains("array")) return std::nullopt;
  const ObjectReader outer = *reader.object(key);
  const std::optional<ObjectReader> rows = outer.object("sinusoidal");
  if (!rows) outer.refuse("sinusoidal", "missing key: an object");
  outer.refuse_rest("sinusoidal");
  Sinusoidal encoding;
  encoding.dim = rows->integer("dim").value_or(head_dim.value_or(0));
  if (encoding.dim == 0) rows->refuse("dim", "missing key: the width of a head");
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
                 message("must be interleaved, concat or fairseq, got \"", variant, "\""));
  }
  rows->refuse_rest("variant, base, dim");
  encodings::validate(encoding);
  return encoding;
}

Table TableReader::rows_of(const Sinusoidal& encoding, Positions positions) {
  constexpr std::int64_t kMostNumbers = std::int64_t{1} << 24;
  if (positions.count > kMostNumbers / encoding.dim) {
    throw Error(ErrorCode::invalid_argument,
                message("sinusoidal: must have at most ", kMostNumbers, " numbers, got ",
                        positions.count, " rows of ", encoding.dim));
  }
  std::vector<std::int64_t> at(static_cast<std::size_t>(positions.count));
  for (std::size_t row = 0; row < at.size(); ++row)
    at[row] = positions.first + static_cast<std::int64_t>(row) * positions.step;
  const std::size_t size = at.size() * static_cast<std::size_t>(encoding.dim);
  std::vector<double> wide(size);
  encodings::sinusoidal_rows(encoding, at, wide.data());
  Table table = encodings::shared_rows<const float>(nullptr, positions.count, encoding.dim);
  keep(std::move(wide), table);
  // Rounded once from the exact angle, not from float64.
  encodings::sinusoidal_rows(encoding, at, loaded_.storage.back().data());
  return table;
}

}  // namespace phasor::config
