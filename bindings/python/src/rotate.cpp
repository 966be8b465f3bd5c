// rotate, rotate_qk, rotate_by and cos_sin.
#include "phasor/core/rotate.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "arrays.hpp"
#include "module.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "spec.hpp"
#include "without_gil.hpp"

namespace phasor::python {
namespace {

using core::Direction;

[[nodiscard]] Direction direction_of(bool inverse, bool transpose, const char* where) {
  if (inverse && transpose) {
    refuse(message(where, ": inverse and transpose cannot be combined"));
  }
  return inverse ? Direction::inverse : transpose ? Direction::transpose : Direction::forward;
}

[[nodiscard]] core::Role role_of(std::string_view name) {
  if (name == "query") return core::Role::query;
  if (name == "key") return core::Role::key;
  refuse(message("rotate: role must be query or key, got ", name));
}

// The rotation at `context`, or at the context that holds the largest position.
[[nodiscard]] std::shared_ptr<const core::Rotary> resolve(const PySpec& spec,
                                                          std::optional<std::int64_t> context,
                                                          const core::Positions& positions,
                                                          std::int64_t tokens) {
  return spec.rotary(encodings::context_for(spec.value, context, positions.largest(tokens)));
}

// None: 0, 1, ...
[[nodiscard]] core::Positions positions_or_zero(nb::handle object, const char* where) {
  if (object.is_none()) return core::positions_from(0);
  return *positions_of(object, where);
}

// A tensor to rotate and its output. A new output is contiguous along the last axis: if the input is
// not, it is copied to the output first and rotated there.
class Tensor {
 public:
  Tensor(nb::handle x, nb::handle out, const char* name, const char* out_name, Order order)
      : in_(x, name),
        out_(out, in_, in_.shape(), out_name),
        gathers_(out.is_none() && !in_.together()),
        view_(heads_of(gathers_ ? out_.array() : in_, order)),
        target_(writable_heads_of(out_.array(), order)) {}
  // Call it before the rotation; needs no GIL.
  void gather() const {
    if (gathers_) copy_elements(in_, out_.array());
  }
  [[nodiscard]] core::Rotation rotate(core::Role role) const { return {view_, target_, role}; }
  [[nodiscard]] const core::ConstHeadsView& view() const noexcept { return view_; }
  [[nodiscard]] nb::object finish() { return out_.finish(); }

 private:
  Array in_;
  Output out_;
  bool gathers_;
  core::ConstHeadsView view_;
  core::HeadsView target_;
};

[[nodiscard]] nb::object rotate(nb::handle x, const PySpec& spec, nb::handle positions,
                                bool inverse, bool transpose, std::string_view role,
                                std::optional<std::int64_t> context, std::string_view order,
                                std::string_view angles, const PyTable* table, int threads,
                                nb::handle out) {
  const core::RotateOptions options{.direction = direction_of(inverse, transpose, "rotate"),
                                    .angles = angles_of(angles, "rotate"),
                                    .table = table == nullptr ? nullptr : &table->table,
                                    .threads = threads};
  Tensor tensor(x, out, "rotate: x", "rotate: out", order_of(order));
  const core::Positions at = positions_or_zero(positions, "rotate: positions");
  const auto rotary = resolve(spec, context, at, tensor.view().tokens);
  const core::Rotation rotation = tensor.rotate(role_of(role));
  without_gil([&] {
    tensor.gather();
    core::rotate(*rotary, at, {&rotation, 1}, options);
  });
  return tensor.finish();
}

[[nodiscard]] nb::object rotate_qk(nb::handle q, nb::handle k, const PySpec& spec,
                                   nb::handle positions, bool inverse, bool transpose,
                                   std::optional<std::int64_t> context, std::string_view order,
                                   std::string_view angles, const PyTable* table, int threads,
                                   nb::handle out) {
  const core::RotateOptions options{.direction = direction_of(inverse, transpose, "rotate_qk"),
                                    .angles = angles_of(angles, "rotate_qk"),
                                    .table = table == nullptr ? nullptr : &table->table,
                                    .threads = threads};
  nb::object out_q = nb::none(), out_k = nb::none();
  if (!out.is_none()) {
    if (!nb::isinstance<nb::tuple>(out) || nb::len(out) != 2) {
      refuse(message(
          "rotate_qk: out must be a tuple of two arrays, got ",
          nb::isinstance<nb::tuple>(out) ? message("a tuple of ", nb::len(out)) : kind_of(out)));
    }
    out_q = out[0];
    out_k = out[1];
  }
  Tensor query(q, out_q, "rotate_qk: q", "rotate_qk: out[0]", order_of(order));
  Tensor key(k, out_k, "rotate_qk: k", "rotate_qk: out[1]", order_of(order));
  const core::Positions at = positions_or_zero(positions, "rotate_qk: positions");
  const auto rotary = resolve(spec, context, at, query.view().tokens);
  const core::Rotation rotations[] = {query.rotate(core::Role::query), key.rotate(core::Role::key)};
  without_gil([&] {
    query.gather();
    key.gather();
    core::rotate(*rotary, at, rotations, options);
  });
  return nb::make_tuple(query.finish(), key.finish());
}

// The caller's cos and sin, [tokens, pairs] or [batch, tokens, pairs].
[[nodiscard]] core::CosSinRows rows_of(const Array& cos, const Array& sin,
                                       const core::ConstHeadsView& x) {
  const auto shape = cos.shape(), strides = cos.strides();
  if (!std::ranges::equal(shape, sin.shape()) || cos.element() != sin.element() ||
      !std::ranges::equal(strides, sin.strides())) {
    refuse(ErrorCode::shape_mismatch,
           message("rotate_by: cos and sin must have the same shape, type and strides, got ",
                   cos.text(), " and ", sin.text()));
  }
  core::CosSinRows rows{.cos = cos.data(), .sin = sin.data(), .dtype = float_type_of(cos)};
  const std::size_t rank = shape.size();
  const bool batched = rank == 3;
  if ((rank != 2 && rank != 3) || shape[rank - 2] != x.tokens ||
      (batched && shape[0] != x.batch && shape[0] != 1)) {
    refuse(ErrorCode::shape_mismatch,
           message("rotate_by: cos and sin must be [", x.tokens, ", pairs] or [", x.batch, ", ",
                   x.tokens, ", pairs], got ", cos.text()));
  }
  rows.pairs = shape[rank - 1];
  rows.pair_stride = strides[rank - 1];
  rows.token_stride = strides[rank - 2];
  rows.batch_stride = batched && shape[0] != 1 ? strides[0] : 0;
  return rows;
}

[[nodiscard]] nb::object rotate_by(nb::handle x, nb::handle cos, nb::handle sin,
                                   std::string_view layout, bool transpose,
                                   std::int64_t rotary_offset, std::string_view order, int threads,
                                   nb::handle out) {
  const std::optional<core::PairLayout> pairs = core::pair_layout_of(layout);
  if (!pairs) {
    refuse(message("rotate_by: layout must be half, interleaved or interleaved_to_half, got ",
                   layout));
  }
  const core::RotateOptions options{.direction = direction_of(false, transpose, "rotate_by"),
                                    .threads = threads};
  Tensor tensor(x, out, "rotate_by: x", "rotate_by: out", order_of(order));
  const Array cos_array(cos, "rotate_by: cos"), sin_array(sin, "rotate_by: sin");
  const core::CosSinRows rows = rows_of(cos_array, sin_array, tensor.view());
  const core::Rotation rotation = tensor.rotate(core::Role::query);
  without_gil([&] {
    tensor.gather();
    core::rotate_by(rows, *pairs, rotary_offset, {&rotation, 1}, options);
  });
  return tensor.finish();
}

template <class T>
void fill_rows(const core::Frequencies& frequencies, std::span<const double> positions,
               std::int64_t count, core::AngleMode mode, T* cos, T* sin) {
  const auto axes = static_cast<std::int64_t>(positions.size()) / std::max<std::int64_t>(count, 1);
  const auto pairs = static_cast<std::size_t>(frequencies.pairs());
  std::vector<double> at(static_cast<std::size_t>(axes));
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t axis = 0; axis < axes; ++axis)
      at[static_cast<std::size_t>(axis)] = positions[static_cast<std::size_t>(axis * count + row)];
    const std::span<T> to_cos(cos + static_cast<std::size_t>(row) * pairs, pairs);
    const std::span<T> to_sin(sin + static_cast<std::size_t>(row) * pairs, pairs);
    if constexpr (std::is_same_v<T, float>) {
      core::cos_sin(frequencies, at, to_cos, to_sin, mode);
    } else {
      core::cos_sin(frequencies, at, to_cos, to_sin);
    }
  }
}

[[nodiscard]] nb::object cos_sin(const PySpec& spec, nb::handle positions,
                                 std::optional<std::int64_t> context, std::string_view dtype,
                                 std::string_view angles) {
  if (dtype != "float32" && dtype != "float64") {
    refuse(message("cos_sin: dtype must be float32 or float64, got ", dtype));
  }
  const core::AngleMode mode = angles_of(angles, "cos_sin");
  if (mode == core::AngleMode::float32 && dtype == "float64") {
    refuse(ErrorCode::unsupported, "cos_sin: angles=\"float32\" needs dtype float32, got float64");
  }
  const Counted<double> at(positions, "cos_sin: positions");
  std::vector<std::int64_t> shape = at.shape;
  if (!at.values.empty())
    context = encodings::context_for(spec.value, context, *std::ranges::max_element(at.values));
  const core::Frequencies frequencies = encodings::resolve_frequencies(spec.value, context);
  const int axes = frequencies.axis_count();
  if (axes > 1) {
    if (shape.size() < 2 || shape.front() != axes) {
      refuse(ErrorCode::shape_mismatch,
             message("cos_sin: positions must be [", axes, ", ...] for this spec, got ",
                     core::shape_text(shape)));
    }
    shape.erase(shape.begin());
  }
  const std::int64_t count = static_cast<std::int64_t>(at.values.size()) / axes;
  shape.push_back(frequencies.pairs());
  const Element element = dtype == "float32" ? Element::f32 : Element::f64;
  NewArray cos(positions, element, shape, "cos_sin: cos"),
      sin(positions, element, shape, "cos_sin: sin");
  void *const to_cos = cos.array().writable(), *const to_sin = sin.array().writable();
  without_gil([&] {
    if (element == Element::f32) {
      fill_rows(frequencies, at.values, count, mode, static_cast<float*>(to_cos),
                static_cast<float*>(to_sin));
    } else {
      fill_rows(frequencies, at.values, count, mode, static_cast<double*>(to_cos),
                static_cast<double*>(to_sin));
    }
  });
  return nb::make_tuple(cos.finish(), sin.finish());
}

void make_table(PyTable* self, const PySpec& spec, std::int64_t length, std::int64_t first,
                std::optional<std::int64_t> context, std::string_view angles, int threads) {
  const core::AngleMode mode = angles_of(angles, "CosSinTable");
  context = encodings::context_for(spec.value, context, static_cast<double>(first + length - 1));
  const core::Frequencies frequencies = encodings::resolve_frequencies(spec.value, context);
  new (self) PyTable{without_gil([&] {
    return core::CosSinTable::build(frequencies, {first, length}, mode, threads);
  })};
}

void add_table(nb::module_& module) {
  nb::class_<PyTable>(
      module, "CosSinTable", nb::is_final(),
      "cos and sin of positions first .. first + length - 1, computed once: the table= "
      "of rotate and rotate_qk.")
      .def("__init__", &make_table, nb::arg("spec"), nb::arg("length"), nb::kw_only(),
           nb::arg("first") = 0, nb::arg("context") = nb::none(), nb::arg("angles") = "exact",
           nb::arg("threads") = 0)
      .def_prop_ro("first", [](const PyTable& self) { return self.table.range().first; })
      .def("__len__", [](const PyTable& self) { return self.table.range().count; })
      .def_prop_ro("nbytes",
                   [](const PyTable& self) {
                     return 2 * self.table.range().count * self.table.pairs() *
                            static_cast<std::int64_t>(sizeof(float));
                   })
      .def("__repr__", [](const PyTable& self) {
        const core::PositionRange range = self.table.range();
        return message("CosSinTable(positions ", range.first, " to ", range.first + range.count - 1,
                       ", ", self.table.pairs(), " pairs)");
      });
}

}  // namespace

void add_rotate(nb::module_& module) {
  add_table(module);
  module.def("rotate", &rotate, nb::arg("x").none(), nb::arg("spec"),
             nb::arg("positions") = nb::none(), nb::kw_only(), nb::arg("inverse") = false,
             nb::arg("transpose") = false, nb::arg("role") = "query",
             nb::arg("context") = nb::none(), nb::arg("order") = "tokens_first",
             nb::arg("angles") = "exact", nb::arg("table") = nb::none(), nb::arg("threads") = 0,
             nb::arg("out") = nb::none(),
             "RoFormer (34): rotates every pair of x by the angle of its token's position.");
  module.def("rotate_qk", &rotate_qk, nb::arg("q").none(), nb::arg("k").none(), nb::arg("spec"),
             nb::arg("positions") = nb::none(), nb::kw_only(), nb::arg("inverse") = false,
             nb::arg("transpose") = false, nb::arg("context") = nb::none(),
             nb::arg("order") = "tokens_first", nb::arg("angles") = "exact",
             nb::arg("table") = nb::none(), nb::arg("threads") = 0, nb::arg("out") = nb::none(),
             "rotate() of queries and keys in one call.");
  module.def("rotate_by", &rotate_by, nb::arg("x").none(), nb::arg("cos"), nb::arg("sin"),
             nb::kw_only(), nb::arg("layout"), nb::arg("transpose") = false,
             nb::arg("rotary_offset") = 0, nb::arg("order") = "tokens_first",
             nb::arg("threads") = 0, nb::arg("out") = nb::none(),
             "Rotates x by the given cos and sin.");
  module.def("cos_sin", &cos_sin, nb::arg("spec"), nb::arg("positions").none(), nb::kw_only(),
             nb::arg("context") = nb::none(), nb::arg("dtype") = "float32",
             nb::arg("angles") = "exact",
             "cos and sin times the amplitude, [positions, pairs] each.");
  // For phasor.torch, which makes the results of its custom ops itself.
  module.def(
      "_prefer_huge_pages", [](nb::handle array) { prefer_huge_pages(Array(array, "array")); },
      nb::arg("array"), "Asks for huge pages for a new array without gaps, if it is large.");
}

}  // namespace phasor::python
