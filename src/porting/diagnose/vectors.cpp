#include <algorithm>
#include <cmath>
#include <cstring>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "porting/diagnose/parts.hpp"

namespace phasor::porting::diagnosis {
namespace {

// NumPy has no bfloat16: it is often stored as u16, and is then copied to `room`.
const io::NpyArray& as_floats(const io::NpyArray& array, const char* name,
                              std::vector<std::string>& notes, io::NpyArray& room) {
  if (array.type == io::NpyType::u16) {
    room = array;
    room.type = io::NpyType::bf16;
    notes.push_back(message(name, " is uint16 and is read as the bits of bfloat16"));
    return room;
  }
  (void)io::dtype_of(array, message("diagnose: ", name)).value_or_throw();
  return array;
}

void check_shapes(const io::NpyArray& before, const io::NpyArray& after) {
  if (before.shape != after.shape) {
    refuse(ErrorCode::shape_mismatch,
           message("diagnose: before and after must have the same shape, got ",
                   core::shape_text(before.shape), " and ", core::shape_text(after.shape)));
  }
  if (before.shape.size() < 2 || before.shape.size() > 4) {
    refuse(ErrorCode::shape_mismatch,
           message("diagnose: the shape must be [tokens, head_dim], [tokens, heads, head_dim] or "
                   "[batch, tokens, heads, head_dim], got ",
                   core::shape_text(before.shape)));
  }
  if (before.size() == 0) {
    refuse(ErrorCode::shape_mismatch,
           message("diagnose: the tensors are empty: shape ", core::shape_text(before.shape)));
  }
  if (before.shape.back() % 2 != 0) {
    refuse(ErrorCode::shape_mismatch,
           message("diagnose: head_dim, the last axis, must be even, got ", before.shape.back(),
                   " in ", core::shape_text(before.shape)));
  }
}

bool all_kept_by(const std::vector<double>& values, core::DType type) {
  return std::all_of(values.begin(), values.end(), [type](double value) {
    return !std::isfinite(value) || rounded(value, type) == value;
  });
}

core::DType narrowest(const std::vector<double>& values, core::DType stored) {
  if (stored == core::DType::f16 || stored == core::DType::bf16) return stored;
  // bf16 before f16: values that both types can represent are rare, except small integers.
  for (const core::DType type : {core::DType::bf16, core::DType::f16, core::DType::f32}) {
    if (type == stored) return stored;
    if (all_kept_by(values, type)) return type;
  }
  return stored;
}

}  // namespace

double unit_of(core::DType type) noexcept {
  return type == core::DType::f64   ? 0x1p-53
         : type == core::DType::f32 ? 0x1p-24
         : type == core::DType::f16 ? 0x1p-11
                                    : 0x1p-8;
}

Vectors read_vectors(const DiagnoseInput& input, std::vector<std::string>& notes) {
  if (input.before == nullptr || input.after == nullptr) {
    refuse(ErrorCode::invalid_argument,
           message("diagnose: ", input.before == nullptr ? "before" : "after", " is missing"));
  }
  check_shapes(*input.before, *input.after);
  io::NpyArray rooms[2];
  const io::NpyArray& before = as_floats(*input.before, "before", notes, rooms[0]);
  const io::NpyArray& after = as_floats(*input.after, "after", notes, rooms[1]);
  Vectors vectors;
  vectors.shape.assign(before.shape.begin(), before.shape.end() - 1);
  vectors.dim = before.shape.back();
  vectors.count = before.size() / vectors.dim;
  core::throw_if_cancelled();
  vectors.before = io::to_doubles(before).value_or_throw();
  core::throw_if_cancelled();
  vectors.after = io::to_doubles(after).value_or_throw();
  core::throw_if_cancelled();
  vectors.stored = io::dtype_of(after, "after").value_or_throw();
  vectors.precision = narrowest(vectors.after, vectors.stored);
  if (vectors.precision != vectors.stored) {
    notes.push_back(message("every value of after fits ", type_name(vectors.precision),
                            ", stored as ", type_name(vectors.stored)));
  }
  vectors.unit = std::max(unit_of(vectors.precision), unit_of(core::DType::f32));
  vectors.usable.resize(static_cast<std::size_t>(vectors.count), 1);
  std::int64_t left_out = 0;
  for (std::int64_t v = 0; v < vectors.count; ++v) {
    core::throw_if_cancelled();
    const double* const x = vectors.before.data() + v * vectors.dim;
    if (!std::all_of(x, x + vectors.dim, [](double value) { return std::isfinite(value); })) {
      vectors.usable[static_cast<std::size_t>(v)] = 0;
      ++left_out;
    }
  }
  if (left_out > 0) {
    notes.push_back(
        message(left_out, " of ", vectors.count,
                " vectors before the rotation have values that are not finite and are ignored"));
  }
  return vectors;
}

std::optional<std::string> not_finite(const Vectors& vectors) {
  if (std::find(vectors.usable.begin(), vectors.usable.end(), 1) != vectors.usable.end()) {
    return std::nullopt;
  }
  return "no vector is finite both before and after";
}

void leave_out_not_finite(Vectors& vectors, std::vector<std::string>& notes) {
  std::vector<std::int64_t> bad;
  for (std::int64_t v = 0; v < vectors.count; ++v) {
    core::throw_if_cancelled();
    if (vectors.usable[static_cast<std::size_t>(v)] == 0) continue;
    const double* const y = vectors.after.data() + v * vectors.dim;
    if (std::all_of(y, y + vectors.dim, [](double value) { return std::isfinite(value); }))
      continue;
    vectors.usable[static_cast<std::size_t>(v)] = 0;
    bad.push_back(v);
  }
  if (bad.empty()) return;
  std::string places;
  constexpr std::size_t kShown = 6;
  for (std::size_t k = 0; k < std::min(bad.size(), kShown); ++k) {
    std::int64_t left = bad[k];
    std::vector<std::int64_t> index(vectors.shape.size());
    for (std::size_t axis = index.size(); axis-- > 0;) {
      index[axis] = left % vectors.shape[axis];
      left /= vectors.shape[axis];
    }
    places += (k == 0 ? "" : ", ") + core::shape_text(index);
  }
  notes.push_back(message(bad.size(), " of ", vectors.count,
                          " vectors of after hold values that are not finite and are ignored: at ",
                          places, bad.size() > kShown ? ", ..." : ""));
}

std::vector<std::uint8_t> changed_features(const Vectors& vectors) {
  // If `after` has a narrower type, unrotated features are rounded too.
  const double allowed =
      all_kept_by(vectors.before, vectors.precision) ? 0.0 : 1.01 * unit_of(vectors.precision);
  std::vector<std::uint8_t> changed(static_cast<std::size_t>(vectors.dim), 0);
  for (std::int64_t v = 0; v < vectors.count; ++v) {
    core::throw_if_cancelled();
    if (vectors.usable[static_cast<std::size_t>(v)] == 0) continue;
    for (std::int64_t j = 0; j < vectors.dim; ++j) {
      const auto at = static_cast<std::size_t>(v * vectors.dim + j);
      const double moved = std::abs(vectors.after[at] - vectors.before[at]);
      if (moved > allowed * std::abs(vectors.before[at])) changed[static_cast<std::size_t>(j)] = 1;
    }
  }
  return changed;
}

}  // namespace phasor::porting::diagnosis
