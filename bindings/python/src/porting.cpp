// explain, diagnose, audit, diff and plan: what the command's --json prints, as dictionaries.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "module.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/models/internal/describe.hpp"
#include "phasor/porting/config_reports.hpp"
#include "phasor/porting/diagnose.hpp"
#include "spec.hpp"
#include "strided.hpp"
#include "without_gil.hpp"

namespace phasor::python {
namespace {

using Context = std::optional<std::int64_t>;

[[nodiscard]] porting::ReadableConfig readable(const ConfigArgument& config) {
  return (config.json.empty() ? porting::read_readable_config(config.path)
                              : porting::parse_readable_config(config.json))
      .value_or_throw();
}

// An index or a layer type; empty for None.
[[nodiscard]] std::string layer_name(nb::handle layer) {
  return layer.is_none() ? std::string() : nb::cast<std::string>(nb::str(layer));
}

[[nodiscard]] nb::object explain(nb::handle config, Context context) {
  const ConfigArgument argument = config_of(config, "explain: config");
  std::string page, weights;
  without_gil([&] {
    page = porting::explain_json(porting::explain(readable(argument), context).value_or_throw());
    if (!argument.path.empty()) {
      const auto description = models::describe_weights(argument.path);
      if (description) weights = models::describe_json(*description);
    }
  });
  nb::object made = from_json(page);
  if (!weights.empty()) made["weights"] = from_json(weights);
  return made;
}

[[nodiscard]] nb::object diff(nb::handle config, const std::vector<std::string>& between,
                              Context context, nb::handle layer, Context max_length,
                              std::int64_t shifts) {
  const ConfigArgument argument = config_of(config, "diff: config");
  const porting::DiffOptions options{.between = between,
                                     .context = context,
                                     .max_length = max_length,
                                     .shifts = shifts,
                                     .layer = layer_name(layer)};
  return from_json(porting::diff_json(porting::diff(readable(argument), options).value_or_throw()));
}

[[nodiscard]] nb::object plan(nb::handle config, std::int64_t to, Context trained,
                              nb::handle layer) {
  const ConfigArgument argument = config_of(config, "plan: config");
  const porting::PlanOptions options{.to = to, .trained = trained, .layer = layer_name(layer)};
  return from_json(porting::plan_json(porting::plan(readable(argument), options).value_or_throw()));
}

[[nodiscard]] io::NpyType npy_type(const Array& array) {
  switch (array.element()) {
    case Element::f64:
      return io::NpyType::f64;
    case Element::f32:
      return io::NpyType::f32;
    case Element::f16:
      return io::NpyType::f16;
    case Element::bf16:
      return io::NpyType::bf16;
    case Element::i64:
      return io::NpyType::i64;
    case Element::i32:
      return io::NpyType::i32;
    case Element::u8:
      return io::NpyType::u8;
    case Element::boolean:
      return io::NpyType::boolean;
  }
  return io::NpyType::boolean;
}

[[nodiscard]] io::NpyArray copy_of(const Array& array) {
  io::NpyArray copy = io::make_npy(npy_type(array), {array.shape().begin(), array.shape().end()});
  porting::copy_dense(strided(array), copy.bytes);
  return copy;
}

[[nodiscard]] std::optional<io::NpyArray> positions_copy(nb::handle positions) {
  const Numbers<double> numbers(positions, "diagnose: positions");
  if (!numbers.given()) return std::nullopt;
  io::NpyArray copy =
      io::make_npy(io::NpyType::f64, {numbers.shape().begin(), numbers.shape().end()});
  std::ranges::copy(numbers.get(), copy.as<double>());
  return copy;
}

[[nodiscard]] nb::object diagnose(nb::handle before, nb::handle after, nb::handle positions,
                                  const std::optional<std::vector<std::string>>& axes,
                                  nb::handle config, Context context) {
  const Array first(before, "diagnose: before"), second(after, "diagnose: after");
  const std::optional<io::NpyArray> places = positions_copy(positions);
  PySpec room;
  const PySpec* spec = config.is_none() ? nullptr : &spec_of(config, room, "diagnose: config");
  std::string page;
  without_gil([&] {
    const io::NpyArray from = copy_of(first), to = copy_of(second);
    const porting::DiagnoseInput input{&from, &to, places ? &*places : nullptr,
                                       axes.value_or(std::vector<std::string>())};
    if (spec == nullptr) {
      page = porting::diagnose_json(porting::diagnose(input));
      return;
    }
    const porting::ConfigDiagnosis both =
        porting::diagnose(input, spec->value, {.context = context});
    page = porting::diagnose_json(both.found, &both.check);
  });
  return from_json(page);
}

// The positions of a table's rows, [rows, axes] as audit() reads them; None: 0, 1, ...
[[nodiscard]] std::vector<double> table_positions(nb::handle object,
                                                  const encodings::RopeSpec& spec,
                                                  std::int64_t rows) {
  using OneRow = core::PositionsShape::OneRow;
  const auto axes = static_cast<std::size_t>(encodings::axis_count(spec.axes));
  const bool mrope = std::holds_alternative<encodings::MropeAxes>(spec.axes);
  const core::Positions positions = core::fit_positions(
      positions_of(object, "audit: positions").value_or(core::positions_counted(0, rows)),
      {static_cast<int>(axes), std::nullopt, rows,
       mrope ? OneRow::serves_every_axis : OneRow::serves_one_axis});
  std::vector<double> flat(static_cast<std::size_t>(rows) * axes);
  for (std::int64_t row = 0; row < rows; ++row) {
    positions.read_token(0, row,
                         std::span(flat).subspan(static_cast<std::size_t>(row) * axes, axes));
  }
  return flat;
}

[[nodiscard]] core::DType stored_in(const Array& cos, const Array& sin) {
  if (cos.rank() != 2 || !std::ranges::equal(cos.shape(), sin.shape()) ||
      cos.element() != sin.element())
    refuse(ErrorCode::shape_mismatch,
           message("audit: cos and sin must be [rows, pairs] of the same type, got ", cos.text(),
                   " and ", sin.text()));
  return float_type_of(cos, "audit: cos and sin");
}

[[nodiscard]] nb::object audit(nb::handle cos, nb::handle sin, nb::handle spec,
                               nb::handle positions, Context context, double threshold) {
  if (!(threshold >= 0.0)) refuse(message("audit: threshold must be at least 0, got ", threshold));
  PySpec room;
  const encodings::RopeSpec& rope = spec_of(spec, room, "audit: spec").value;
  const Array cos_array(cos, "audit: cos"), sin_array(sin, "audit: sin");
  const core::DType stored = stored_in(cos_array, sin_array);
  const std::int64_t rows = cos_array.shape()[0];
  const Numbers<double> cos_values(cos, "audit: cos"), sin_values(sin, "audit: sin");
  const std::vector<double> places = table_positions(positions, rope, rows);
  const porting::ForeignTable table{cos_values.get(), sin_values.get(), places, rows, stored};
  if (!places.empty())
    context = encodings::context_for(rope, context, *std::ranges::max_element(places));
  const porting::AuditOptions options{context, threshold};
  std::string page;
  without_gil(
      [&] { page = porting::audit_json(porting::audit(rope, table, options), table, options); });
  return from_json(page);
}

}  // namespace

void add_porting(nb::module_& module) {
  module.def("explain", &explain, nb::arg("config"), nb::kw_only(), nb::arg("context") = nb::none(),
             "Every layer's encoding, resolved: what `phasor explain --json` prints.\n\n"
             "config is a dictionary, a path (config.json, folder or GGUF; weights in the\n"
             "same folder are described under \"weights\"), or an object with to_dict().");
  module.def(
      "diagnose", &diagnose, nb::arg("before"), nb::arg("after"), nb::kw_only(),
      nb::arg("positions") = nb::none(), nb::arg("axes") = nb::none(),
      nb::arg("config") = nb::none(), nb::arg("context") = nb::none(),
      "Finds the rotation between `before` and `after`: what `phasor diagnose --json` "
      "prints; with\n"
      "a config, also whether it is the config's (\"verdict\"), and which mistake it is if\n"
      "not (\"cause\").\n\n"
      "Both [tokens, head_dim], [tokens, heads, head_dim] or [batch, tokens, heads,\n"
      "head_dim], leading axes in any order; float64, float32, float16, bfloat16; strided\n"
      "views are fine. Both are copied for the call. positions [tokens] or\n"
      "[batch, tokens], for M-RoPE and images [axes, batch, tokens]; None: consecutive, from\n"
      "an offset that is searched for.");
  module.def(
      "audit", &audit, nb::arg("cos"), nb::arg("sin"), nb::arg("spec"),
      nb::arg("positions") = nb::none(), nb::kw_only(), nb::arg("context") = nb::none(),
      nb::arg("threshold") = porting::AuditOptions{}.threshold,
      "The errors of another engine's table: what `phasor audit --json` prints.\n\n"
      "cos and sin [rows, pairs] of the same float type; positions [rows] (None: 0, 1, ...), or\n"
      "[axes, rows]. If the numbers depend on the context and none is given, the largest\n"
      "position + 1 is used; the result has it as \"context\".");
  module.def("diff", &diff, nb::arg("config"), nb::kw_only(),
             nb::arg("between") = porting::DiffOptions{}.between, nb::arg("context") = nb::none(),
             nb::arg("layer") = nb::none(), nb::arg("max_length") = nb::none(),
             nb::arg("shifts") = 0,
             "Where engines differ on a config: what `phasor diff --json` prints.");
  module.def("plan", &plan, nb::arg("config"), nb::kw_only(), nb::arg("to"),
             nb::arg("trained") = nb::none(), nb::arg("layer") = nb::none(),
             "Methods to reach a longer context: what `phasor plan --json` prints.");
}

}  // namespace phasor::python
