#include "phasor/porting/internal/table_forms.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "phasor/core/error.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::porting {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr core::EnumNames<TableForm::sin_cos> kFormNames("pairs", "concatenated", "interleaved",
                                                         "complex", "last_axis", "cos_sin",
                                                         "sin_cos");
constexpr std::array kEveryForm = {
    TableForm::pairs,     TableForm::concatenated, TableForm::interleaved, TableForm::complex,
    TableForm::last_axis, TableForm::cos_sin,      TableForm::sin_cos};

// The shape without its first axes of size 1, as many as are too many; none if it has too few.
std::optional<Shape> with_axes(Shape shape, std::size_t axes) {
  while (shape.size() > axes) {
    const auto one = std::find(shape.begin(), shape.end(), 1);
    if (one == shape.end()) return std::nullopt;
    shape.erase(one);
  }
  return shape.size() == axes ? std::optional(std::move(shape)) : std::nullopt;
}

// The rows of a table of this form, if the array has its shape.
std::optional<std::int64_t> rows_of(TableForm form, const io::NpyArray& array, bool has_sin,
                                    std::int64_t pairs) {
  if ((form == TableForm::complex) != io::is_complex(array.type)) return std::nullopt;
  const bool two_tables =
      form == TableForm::pairs || form == TableForm::concatenated || form == TableForm::interleaved;
  if (has_sin && !two_tables) return std::nullopt;
  const std::int64_t width =
      form == TableForm::pairs || form == TableForm::complex ? pairs : 2 * pairs;
  if (form == TableForm::last_axis) {
    const std::optional<Shape> shape = with_axes(array.shape, 3);
    return shape && (*shape)[1] == pairs && (*shape)[2] == 2 ? std::optional((*shape)[0])
                                                             : std::nullopt;
  }
  if (two_tables && !has_sin) {
    const std::optional<Shape> shape = with_axes(array.shape, 3);
    return shape && (*shape)[0] == 2 && (*shape)[2] == width ? std::optional((*shape)[1])
                                                             : std::nullopt;
  }
  const std::optional<Shape> shape = with_axes(array.shape, 2);
  return shape && (*shape)[1] == width ? std::optional((*shape)[0]) : std::nullopt;
}

core::DType stored_type(const io::NpyArray& array) {
  switch (array.type) {
    case io::NpyType::c64:
      return core::DType::f32;
    case io::NpyType::c128:
      return core::DType::f64;
    case io::NpyType::u16:
      return core::DType::bf16;
    default:
      return io::dtype_of(array, "the table").value_or_throw();
  }
}

// Complex numbers as two real ones each, uint16 as the bits of bfloat16.
std::vector<double> values_of(const io::NpyArray& array) {
  if (!io::is_complex(array.type) && array.type != io::NpyType::u16)
    return io::to_doubles(array).value_or_throw();
  io::NpyArray same = array;
  if (array.type == io::NpyType::u16) {
    same.type = io::NpyType::bf16;
  } else {
    same.type = array.type == io::NpyType::c64 ? io::NpyType::f32 : io::NpyType::f64;
    same.shape.push_back(2);
  }
  return io::to_doubles(same).value_or_throw();
}

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

struct Copies {
  std::int64_t first = 0, second = 0;  // features that hold one value
};
Copies copies_of(TableForm form, std::int64_t pair, std::int64_t pairs) {
  return form == TableForm::concatenated ? Copies{pair, pair + pairs}
                                         : Copies{2 * pair, 2 * pair + 1};
}

// Where the two copies of a value differ, in a table [rows, 2 pairs] of this form.
CopyDifference differences_in(TableForm form, std::span<const double> values, std::int64_t pairs) {
  CopyDifference found;
  const auto rows = static_cast<std::int64_t>(values.size()) / std::max<std::int64_t>(2 * pairs, 1);
  for (std::int64_t row = 0; row < rows; ++row) {
    const double* const at = values.data() + row * 2 * pairs;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      const Copies copies = copies_of(form, pair, pairs);
      if (same_number(at[copies.first], at[copies.second])) continue;
      if (found.count++ == 0) {
        found = {row, copies.first, copies.second, at[copies.first], at[copies.second], 1};
      }
    }
  }
  return found;
}

std::string quoted_forms(const std::vector<TableForm>& forms) {
  std::vector<std::string_view> names;
  names.reserve(forms.size());
  for (const TableForm form : forms) names.push_back(kFormNames[form]);
  return core::list_text(names);
}

class TableReader {
 public:
  TableReader(const io::NpyArray& table, const io::NpyArray* sin, std::int64_t pairs)
      : table_(table), sin_(sin), pairs_(pairs) {}

  [[nodiscard]] TableReading read(std::optional<TableForm> wanted) {
    check_sin();
    reading_.stored = stored_type(table_);
    const std::vector<TableForm> fitting = forms_that_fit(wanted);
    first_ = values_of(table_);
    if (sin_ != nullptr) second_ = values_of(*sin_);
    reading_.form = choose(fitting);
    reading_.rows = *rows_of(reading_.form, table_, sin_ != nullptr, pairs_);
    if (sin_ == nullptr) split();
    fill();
    return std::move(reading_);
  }

 private:
  void check_sin() const {
    if (sin_ == nullptr || (sin_->shape == table_.shape && sin_->type == table_.type)) return;
    refuse(ErrorCode::shape_mismatch,
           message("cos and sin must have one shape and type, got ", io::name_of(table_.type), " ",
                   core::shape_text(table_.shape), " and ", io::name_of(sin_->type), " ",
                   core::shape_text(sin_->shape)));
  }

  [[nodiscard]] std::vector<TableForm> forms_that_fit(std::optional<TableForm> wanted) const {
    std::vector<TableForm> fitting;
    for (const TableForm form : kEveryForm) {
      if (wanted ? form != *wanted : form == TableForm::sin_cos) continue;
      if (rows_of(form, table_, sin_ != nullptr, pairs_)) fitting.push_back(form);
    }
    if (!fitting.empty()) return fitting;
    const std::string shapes =
        sin_ != nullptr ? message("[positions, ", pairs_, "] or [positions, ", 2 * pairs_, "] each")
                        : message("[2, positions, ", pairs_, "], [2, positions, ", 2 * pairs_,
                                  "], [positions, ", 2 * pairs_, "], [positions, ", pairs_,
                                  ", 2] or complex [positions, ", pairs_, "]");
    refuse(ErrorCode::shape_mismatch,
           message("a table of ", pairs_, " pairs", wanted ? " and the form " : "",
                   wanted ? kFormNames[*wanted] : "", " must have the shape ", shapes, ", got ",
                   io::name_of(table_.type), " ", core::shape_text(table_.shape)));
  }

  // Concatenated and interleaved tables have one shape: the numbers decide. Some copies may differ in a
  // wrong table; a form of which most differ is another form.
  [[nodiscard]] TableForm choose(std::vector<TableForm> fitting) const {
    const auto is_doubled = [](TableForm form) {
      return form == TableForm::concatenated || form == TableForm::interleaved;
    };
    if (fitting.size() == 2 && is_doubled(fitting[0]) && is_doubled(fitting[1])) {
      const std::int64_t in_halves = differing(TableForm::concatenated);
      const std::int64_t in_neighbours = differing(TableForm::interleaved);
      const auto entries = static_cast<std::int64_t>((first_.size() + second_.size()) / 2);
      const bool is_either = in_halves == 0 && in_neighbours == 0 && !same_in_both();
      if (!is_either && (in_halves == 0 || in_neighbours == 0 ||
                         2 * std::min(in_halves, in_neighbours) < entries)) {
        return in_halves <= in_neighbours ? TableForm::concatenated : TableForm::interleaved;
      }
      refuse(message("the numbers do not show whether the second half repeats the first (",
                     in_halves, " of ", entries, " entries differ) or each value its neighbour (",
                     in_neighbours, "): choose with --form ", quoted_forms(fitting)));
    }
    if (fitting.size() > 1) {
      refuse(message("the shape ", core::shape_text(table_.shape),
                     " fits several forms: choose with --form ", quoted_forms(fitting)));
    }
    if (fitting.front() == TableForm::cos_sin && pairs_ > 0 && !first_.empty() &&
        differences_in(TableForm::concatenated, first_, pairs_).count == 0) {
      refuse(
          "the second half of the table repeats the first, so it is cos or sin alone: give both, "
          "cos "
          "then sin");
    }
    return fitting.front();
  }

  // Whether both doubled forms give the same table, as at position 0.
  [[nodiscard]] bool same_in_both() const {
    for (const std::vector<double>* const values : {&first_, &second_}) {
      for (std::size_t row = 0; row < values->size(); row += static_cast<std::size_t>(2 * pairs_)) {
        for (std::int64_t pair = 0; pair < pairs_; ++pair) {
          const double* const at = values->data() + row;
          if (!same_number(at[pair], at[2 * pair])) return false;
        }
      }
    }
    return true;
  }

  [[nodiscard]] std::int64_t differing(TableForm form) const {
    return differences_in(form, first_, pairs_).count + differences_in(form, second_, pairs_).count;
  }

  // One array into its cos and its sin.
  void split() {
    std::vector<double> all = std::move(first_);
    const std::size_t half = all.size() / 2;
    first_.clear();
    switch (reading_.form) {
      case TableForm::pairs:
      case TableForm::concatenated:
      case TableForm::interleaved:
        first_.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(half));
        second_.assign(all.begin() + static_cast<std::ptrdiff_t>(half), all.end());
        return;
      case TableForm::complex:
      case TableForm::last_axis:
        for (std::size_t i = 0; i < all.size(); i += 2) {
          first_.push_back(all[i]);
          second_.push_back(all[i + 1]);
        }
        return;
      case TableForm::cos_sin:
      case TableForm::sin_cos:
        break;
    }
    const auto width = static_cast<std::size_t>(pairs_);
    for (std::size_t i = 0; i < all.size(); ++i)
      (i / width % 2 == 0 ? first_ : second_).push_back(all[i]);
    if (reading_.form == TableForm::sin_cos) first_.swap(second_);
  }

  void fill() {
    if (reading_.form != TableForm::concatenated && reading_.form != TableForm::interleaved) {
      reading_.cos = std::move(first_);
      reading_.sin = std::move(second_);
      return;
    }
    const CopyDifference in_cos = differences_in(reading_.form, first_, pairs_),
                         in_sin = differences_in(reading_.form, second_, pairs_);
    if (in_cos.count + in_sin.count > 0) {
      reading_.copies = in_cos.count > 0 ? in_cos : in_sin;
      reading_.copies->count = in_cos.count + in_sin.count;
    }
    for (std::int64_t row = 0; row < reading_.rows; ++row) {
      for (std::int64_t pair = 0; pair < pairs_; ++pair) {
        const auto at = static_cast<std::size_t>(row * 2 * pairs_ +
                                                 copies_of(reading_.form, pair, pairs_).first);
        reading_.cos.push_back(first_[at]);
        reading_.sin.push_back(second_[at]);
      }
    }
  }

  const io::NpyArray& table_;
  const io::NpyArray* sin_;
  std::int64_t pairs_;
  std::vector<double> first_, second_;
  TableReading reading_;
};

}  // namespace

std::string_view name_of(TableForm form) noexcept { return kFormNames[form]; }

std::optional<TableForm> table_form_of(std::string_view name) noexcept {
  for (const TableForm form : kEveryForm) {
    if (name == kFormNames[form]) return form;
  }
  return std::nullopt;
}

TableReading read_table(const io::NpyArray& table, const io::NpyArray* sin, std::int64_t pairs,
                        std::optional<TableForm> form) {
  return TableReader(table, sin, pairs).read(form);
}

}  // namespace phasor::porting
