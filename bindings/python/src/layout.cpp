// convert_layout.
#include "phasor/porting/convert.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include "arrays.hpp"
#include "module.hpp"
#include "strided.hpp"
#include "without_gil.hpp"

namespace phasor::python {
namespace {

[[nodiscard]] core::PairLayout target_of(std::string_view to) {
  const std::optional<core::PairLayout> layout = core::pair_layout_of(to);
  if (!layout || *layout == core::PairLayout::interleaved_to_half)
    refuse(message("convert_layout: to must be half or interleaved, got ", to));
  return *layout;
}

[[nodiscard]] nb::object convert_layout(nb::handle x, std::string_view to,
                                        std::optional<std::int64_t> heads,
                                        std::optional<std::int64_t> rotary_dim,
                                        std::int64_t rotary_offset,
                                        std::optional<std::int64_t> along, nb::handle out) {
  const porting::LayoutChange change{target_of(to), heads.value_or(1), rotary_dim, rotary_offset};
  // Default: axis 0 (the rows of a weight) with heads, the last axis (features) without.
  const std::int64_t axis = along.value_or(heads ? 0 : -1);
  const Array in(x, "convert_layout: x");
  if (axis < -in.rank() || axis >= in.rank())
    refuse(
        message("convert_layout: axis must be one of the ", in.rank(), " axes of x, got ", axis));
  Output output(out, in, in.shape(), "convert_layout: out");
  without_gil([&] {
    porting::convert_layout(change, axis < 0 ? axis + in.rank() : axis, strided(in),
                            writable_strided(output.array()));
  });
  return output.finish();
}

}  // namespace

void add_layout(nb::module_& module) {
  module.def(
      "convert_layout", &convert_layout, nb::arg("x"), nb::kw_only(), nb::arg("to"),
      nb::arg("heads") = nb::none(), nb::arg("rotary_dim") = nb::none(),
      nb::arg("rotary_offset") = 0, nb::arg("axis") = nb::none(), nb::arg("out") = nb::none(),
      "Reorders the features of each head along `axis` (length heads * head_dim) from the other\n"
      "layout to `to`: feature i of half is 2i of interleaved, i + rotary_dim/2 is 2i + 1, "
      "counted\n"
      "from rotary_offset; features outside rotary_dim stay in place.\n\n"
      "With heads: a projection's weight [heads * head_dim, hidden] or bias, along axis 0 unless\n"
      "axis is given. Without: activations [..., head_dim], along the last axis. Any "
      "element type\n"
      "of arrays; out must not share memory with x.");
}

}  // namespace phasor::python
