// The relation between two tensors that should be equal.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/porting/internal/runs.hpp"
#include "porting/number_text.hpp"
#include "porting/rounding.hpp"

namespace phasor::porting {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
// Tokens that one run may be ahead of the other.
constexpr std::int64_t kMaxShift = 16;
// A difference in at most this share of the indices of an axis is one of a part.
constexpr double kPart = 0.75;
// Axes are reordered for tensors of up to this many.
constexpr std::size_t kMaxReordered = 5;

// Numbers of one tensor, and the shortest type that holds them all.
struct RunNumbers {
  Shape shape;
  std::vector<double> values;
  std::optional<core::DType> type;  // none: integers

  [[nodiscard]] std::size_t size() const { return values.size(); }
};

bool fits(const std::vector<double>& values, core::DType type) {
  return std::all_of(values.begin(), values.end(), [&](double value) {
    return !std::isfinite(value) || rounded(value, type) == value;
  });
}

RunNumbers numbers_of(const io::NpyArray& array) {
  RunNumbers made{array.shape, {}, std::nullopt};
  io::NpyArray as_real;
  const io::NpyArray* from = &array;
  if (io::is_complex(array.type) || array.type == io::NpyType::u16) {
    as_real = array;
    if (array.type == io::NpyType::u16) {
      as_real.type = io::NpyType::bf16;  // how NumPy users keep bfloat16
    } else {
      as_real.type = array.type == io::NpyType::c64 ? io::NpyType::f32 : io::NpyType::f64;
      as_real.shape.push_back(2);
    }
    made.shape = as_real.shape;
    from = &as_real;
  }
  made.values = io::to_doubles(*from).value_or_throw();
  if (const Result<core::DType> type = io::dtype_of(*from, ""); type) {
    made.type = *type;
    // A dump in float32 of an engine that computes in 16 bits. Whole numbers, such as positions, say
    // nothing.
    const bool is_whole = std::all_of(made.values.begin(), made.values.end(), [](double value) {
      return !std::isfinite(value) || value == std::floor(value);
    });
    for (const core::DType shorter : {core::DType::bf16, core::DType::f16, core::DType::f32}) {
      if (!is_whole && shorter > *type && fits(made.values, shorter)) {
        made.type = shorter;
        break;
      }
    }
  }
  return made;
}

double tolerance_of(core::DType type) {
  switch (type) {
    case core::DType::f64:
      return kRunRoundingsWide * 0x1p-53;
    case core::DType::f32:
      return kRunRoundingsWide * 0x1p-24;
    case core::DType::f16:
      return kRunRoundingsShort * 0x1p-11;
    case core::DType::bf16:
      break;
  }
  return kRunRoundingsShort * 0x1p-8;
}

// Root mean square of b - a divided by that of the larger one; 0 for two tensors of zeros.
double difference_of(std::span<const double> a, std::span<const double> b) {
  double squares = 0.0, of_a = 0.0, of_b = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += (b[i] - a[i]) * (b[i] - a[i]);
    of_a += a[i] * a[i];
    of_b += b[i] * b[i];
  }
  return squares == 0.0 ? 0.0 : std::sqrt(squares / std::max(of_a, of_b));
}

std::vector<std::size_t> strides_of(const Shape& shape) {
  std::vector<std::size_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * static_cast<std::size_t>(shape[axis]);
  return strides;
}

// Finds the relation. Every question is asked of tensors that are known to differ.
class Relation {
 public:
  Relation(RunNumbers a, RunNumbers b, double tolerance)
      : a_(std::move(a)), b_(std::move(b)), tolerance_(tolerance) {}

  [[nodiscard]] RunDifference find() {
    RunDifference found;
    found.tolerance = tolerance_;
    if (drop_ones(a_.shape) != drop_ones(b_.shape)) {
      found.difference = kInfinite;
      const std::string order = axes_order();
      found.relation = order.empty() ? RunRelation::shape : RunRelation::transposed;
      found.text = message("the shapes are ", core::shape_text(a_.shape), " and ",
                           core::shape_text(b_.shape), order.empty() ? "" : ", " + order);
      return found;
    }
    if (const std::string text = find_not_finite(); !text.empty()) {
      found.difference = kInfinite;
      found.relation = RunRelation::not_finite;
      found.text = text;
      return found;
    }
    found.difference = difference_of(a_.values, b_.values);
    if (found.difference <= tolerance_) return found;
    found.relation = RunRelation::other;
    const auto ask = [&](RunRelation relation, std::string (Relation::*question)() const) {
      if (found.relation != RunRelation::other) return;
      std::string text = (this->*question)();
      if (text.empty()) return;
      found.relation = relation;
      found.text = std::move(text);
    };
    ask(RunRelation::scaled, &Relation::factor);
    ask(RunRelation::transposed, &Relation::axes_order);
    ask(RunRelation::permuted, &Relation::feature_order);
    ask(RunRelation::shifted, &Relation::token_shift);
    ask(RunRelation::part, &Relation::part_of_axis);
    if (found.relation == RunRelation::other) found.text = correlation();
    return found;
  }

 private:
  static Shape drop_ones(Shape shape) {
    std::erase(shape, 1);
    return shape;
  }

  // NaN and infinity at the same places are equal; they count as 0 from here on.
  [[nodiscard]] std::string find_not_finite() {
    for (std::size_t i = 0; i < a_.size(); ++i) {
      double &in_a = a_.values[i], &in_b = b_.values[i];
      if (std::isfinite(in_a) && std::isfinite(in_b)) continue;
      if (in_a != in_b && !(std::isnan(in_a) && std::isnan(in_b))) {
        return message("A has ", digits(in_a), " and B ", digits(in_b), " at element ", i, " of ",
                       core::shape_text(a_.shape));
      }
      in_a = in_b = 0.0;
    }
    return {};
  }

  // b = factor * a
  [[nodiscard]] std::string factor() const {
    double product = 0.0, squares = 0.0;
    for (std::size_t i = 0; i < a_.size(); ++i) {
      product += a_.values[i] * b_.values[i];
      squares += a_.values[i] * a_.values[i];
    }
    if (squares == 0.0) return "A is all zeros";
    if (std::all_of(b_.values.begin(), b_.values.end(), [](double x) { return x == 0.0; }))
      return "B is all zeros";
    const double factor = product / squares;
    std::vector<double> scaled = a_.values;
    for (double& value : scaled) value *= factor;
    if (factor == 0.0 || difference_of(scaled, b_.values) > tolerance_) return {};
    return message("B is ", digits(factor, 7), " times A");
  }

  // b[i, j, ...] = a in another order of axes
  [[nodiscard]] std::string axes_order() const {
    const std::size_t axes = a_.shape.size();
    if (axes != b_.shape.size() || axes < 2 || axes > kMaxReordered || a_.size() != b_.size())
      return {};
    std::vector<std::size_t> order(axes);
    std::iota(order.begin(), order.end(), 0U);
    while (std::next_permutation(order.begin(), order.end())) {
      bool fits_shape = true;
      for (std::size_t axis = 0; axis < axes; ++axis)
        fits_shape = fits_shape && b_.shape[axis] == a_.shape[order[axis]];
      if (!fits_shape || difference_of(reordered(order), b_.values) > tolerance_) continue;
      const std::vector<std::int64_t> shown(order.begin(), order.end());
      return message("B is A with its axes in the order ", core::shape_text(shown));
    }
    return {};
  }

  [[nodiscard]] std::vector<double> reordered(const std::vector<std::size_t>& order) const {
    const std::vector<std::size_t> strides = strides_of(a_.shape);
    std::vector<double> out;
    out.reserve(a_.size());
    std::vector<std::int64_t> index(order.size(), 0);
    for (std::size_t i = 0; i < a_.size(); ++i) {
      std::size_t at = 0;
      for (std::size_t axis = 0; axis < order.size(); ++axis)
        at += static_cast<std::size_t>(index[axis]) * strides[order[axis]];
      out.push_back(a_.values[at]);
      for (std::size_t axis = order.size(); axis-- > 0;) {
        if (++index[axis] < b_.shape[axis]) break;
        index[axis] = 0;
      }
    }
    return out;
  }

  // Features of the last axis. The order is that of the numbers of one row, which must be different.
  [[nodiscard]] std::string feature_order() const {
    if (a_.shape.empty() || a_.shape.back() < 2) return {};
    const auto width = static_cast<std::size_t>(a_.shape.back());
    const std::size_t row = row_of_most_numbers(width);
    const auto sorted = [&](const std::vector<double>& values) {
      std::vector<std::size_t> order(width);
      std::iota(order.begin(), order.end(), 0U);
      std::sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
        return values[row * width + x] < values[row * width + y];
      });
      return order;
    };
    const std::vector<std::size_t> of_a = sorted(a_.values), of_b = sorted(b_.values);
    std::vector<std::size_t> from(width);  // b[j] = a[from[j]]
    for (std::size_t i = 0; i < width; ++i) from[of_b[i]] = of_a[i];
    std::vector<double> permuted;
    permuted.reserve(a_.size());
    for (std::size_t i = 0; i < a_.size(); ++i)
      permuted.push_back(a_.values[i / width * width + from[i % width]]);
    if (difference_of(permuted, b_.values) > tolerance_) return {};
    return message("B has the features of A in another order: ", named_order(from));
  }

  // The row with the largest smallest gap would be best; one with many different numbers is enough.
  [[nodiscard]] std::size_t row_of_most_numbers(std::size_t width) const {
    constexpr std::size_t kRowsTried = 64;
    std::size_t best = 0, most = 0;
    for (std::size_t row = 0; row < std::min(a_.size() / width, kRowsTried); ++row) {
      std::vector<double> numbers(
          a_.values.begin() + static_cast<std::ptrdiff_t>(row * width),
          a_.values.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
      std::sort(numbers.begin(), numbers.end());
      const auto different =
          static_cast<std::size_t>(std::unique(numbers.begin(), numbers.end()) - numbers.begin());
      if (different > most) {
        most = different;
        best = row;
      }
    }
    return best;
  }

  // The two pair layouts, within heads of any even size that divides the axis.
  [[nodiscard]] static std::string named_order(const std::vector<std::size_t>& from) {
    const std::size_t width = from.size();
    for (std::size_t head = width; head >= 4; --head) {
      if (width % head != 0 || head % 2 != 0) continue;
      bool to_half = true, to_interleaved = true;
      for (std::size_t j = 0; j < width; ++j) {
        const std::size_t start = j / head * head, i = j % head, half = head / 2;
        to_half = to_half && from[j] == start + (i < half ? 2 * i : 2 * (i - half) + 1);
        to_interleaved = to_interleaved && from[j] == start + (i % 2 == 0 ? i / 2 : i / 2 + half);
      }
      if (to_half || to_interleaved) {
        return message(to_half ? "A is interleaved, B is half" : "A is half, B is interleaved",
                       " (pair layouts of head_dim ", head, ")");
      }
    }
    std::size_t moved = 0;
    while (moved < width && from[moved] == moved) ++moved;
    return message("feature ", moved, " of B is feature ", moved < width ? from[moved] : moved,
                   " of A");
  }

  // b[t + shift] = a[t] along any axis but the last
  [[nodiscard]] std::string token_shift() const {
    const std::vector<std::size_t> strides = strides_of(a_.shape);
    for (std::size_t axis = 0; axis + 1 < a_.shape.size(); ++axis) {
      for (std::int64_t by = 1; by <= kMaxShift; ++by) {
        if (2 * by >= a_.shape[axis]) break;
        for (const std::int64_t shift : {by, -by}) {
          if (!is_shifted(axis, strides[axis], shift)) continue;
          return message("index t of axis ", axis, " of A is index t ", shift > 0 ? "+ " : "- ", by,
                         " of B");
        }
      }
    }
    return {};
  }
  [[nodiscard]] bool is_shifted(std::size_t axis, std::size_t stride, std::int64_t shift) const {
    std::vector<double> x, y;
    const auto count = static_cast<std::size_t>(a_.shape[axis]);
    for (std::size_t i = 0; i < a_.size(); ++i) {
      const auto to = static_cast<std::int64_t>(i / stride % count) + shift;
      if (to < 0 || to >= a_.shape[axis]) continue;
      x.push_back(a_.values[i]);
      y.push_back(b_.values[static_cast<std::size_t>(static_cast<std::int64_t>(i) +
                                                     shift * static_cast<std::int64_t>(stride))]);
    }
    return difference_of(x, y) <= tolerance_;
  }

  // The axis along which the fewest indices differ.
  [[nodiscard]] std::string part_of_axis() const {
    const std::vector<std::size_t> strides = strides_of(a_.shape);
    double least = kPart;
    std::string text;
    for (std::size_t axis = 0; axis < a_.shape.size(); ++axis) {
      const auto count = static_cast<std::size_t>(a_.shape[axis]);
      std::vector<double> squares(count), sizes(count);
      for (std::size_t i = 0; i < a_.size(); ++i) {
        const std::size_t at = i / strides[axis] % count;
        squares[at] += (b_.values[i] - a_.values[i]) * (b_.values[i] - a_.values[i]);
        sizes[at] += std::max(a_.values[i] * a_.values[i], b_.values[i] * b_.values[i]);
      }
      std::vector<std::size_t> differing;
      for (std::size_t i = 0; i < count; ++i) {
        if (squares[i] > tolerance_ * tolerance_ * sizes[i]) differing.push_back(i);
      }
      const double share = static_cast<double>(differing.size()) / static_cast<double>(count);
      if (count < 2 || differing.empty() || share > least) continue;
      least = share;
      text = message("only in ", differing.size(), " of ", count, " indices of axis ", axis, ": ",
                     ranges(differing));
    }
    return text;
  }

  [[nodiscard]] static std::string ranges(const std::vector<std::size_t>& indices) {
    constexpr std::size_t kShown = 6;
    std::string text;
    std::size_t shown = 0;
    for (std::size_t i = 0; i < indices.size(); ++shown) {
      if (shown == kShown) return text + ", ...";
      std::size_t end = i;
      while (end + 1 < indices.size() && indices[end + 1] == indices[end] + 1) ++end;
      if (!text.empty()) text += ", ";
      text += end == i ? message(indices[i]) : message(indices[i], "-", indices[end]);
      i = end + 1;
    }
    return text;
  }

  [[nodiscard]] std::string correlation() const {
    double product = 0.0, of_a = 0.0, of_b = 0.0;
    std::size_t largest = 0;
    for (std::size_t i = 0; i < a_.size(); ++i) {
      product += a_.values[i] * b_.values[i];
      of_a += a_.values[i] * a_.values[i];
      of_b += b_.values[i] * b_.values[i];
      if (std::abs(b_.values[i] - a_.values[i]) > std::abs(b_.values[largest] - a_.values[largest]))
        largest = i;
    }
    return message("no simple relation: correlation ", digits(product / std::sqrt(of_a * of_b), 4),
                   ", largest at element ", largest, " of ", core::shape_text(a_.shape), " (",
                   digits(a_.values[largest], 4), " and ", digits(b_.values[largest], 4), ")");
  }

  RunNumbers a_, b_;
  double tolerance_;
};

}  // namespace

std::string_view name_of(RunRelation relation) noexcept {
  static constexpr core::EnumNames<RunRelation::other> kNames("equal", "shape", "not_finite",
                                                              "transposed", "permuted", "scaled",
                                                              "shifted", "part", "other");
  return kNames[relation];
}

RunDifference compare_run_tensors(const io::NpyArray& a, const io::NpyArray& b) {
  RunNumbers of_a = numbers_of(a), of_b = numbers_of(b);
  // Integers must be equal; between an integer and a float the float's type decides.
  double tolerance = 0.0;
  std::string_view precision;
  for (const RunNumbers* const numbers : {&of_a, &of_b}) {
    if (!numbers->type || tolerance_of(*numbers->type) <= tolerance) continue;
    tolerance = tolerance_of(*numbers->type);
    precision = type_name(*numbers->type);
  }
  RunDifference found = Relation(std::move(of_a), std::move(of_b), tolerance).find();
  found.precision = precision;
  return found;
}

}  // namespace phasor::porting
