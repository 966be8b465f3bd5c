#include "spec.hpp"

#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <functional>
#include <variant>

#include "arrays.hpp"
#include "module.hpp"
#include "phasor/config/config.hpp"
#include "phasor/encodings/internal/fields.hpp"

namespace phasor::python {
namespace {

using config::ModelConfig;

[[nodiscard]] PySpec spec_from(const ModelConfig& model, const std::string& layer) {
  const config::LayerGroup group = config::select_layer(model, layer).value_or_throw();
  if (!group.rope) {
    throw Error(ErrorCode::invalid_argument,
                message("RopeSpec.from_hf: ", layer.empty() ? "the model" : "layer " + layer,
                        " has no rotary encoding"));
  }
  return PySpec(*group.rope);
}

[[nodiscard]] std::string layer_text(nb::handle layer) {
  return layer.is_none() ? std::string() : nb::cast<std::string>(nb::str(layer));
}

// A config.json; keys of another scaling than the config's are a UserWarning.
[[nodiscard]] ModelConfig read_model(nb::handle config, const char* where) {
  const ConfigArgument argument = config_of(config, where);
  ModelConfig model = argument.json.empty() ? config::read_config(argument.path).value_or_throw()
                                            : config::parse_config(argument.json).value_or_throw();
  for (const config::KeyNote& note : model.notes) {
    if (note.leftover &&
        PyErr_WarnEx(PyExc_UserWarning, message(where, ": ", note.key, ": ", note.note).c_str(),
                     1) < 0)
      throw nb::python_error();
  }
  return model;
}

[[nodiscard]] PySpec from_hf(nb::handle config, nb::handle layer) {
  return spec_from(read_model(config, "RopeSpec.from_hf: config"), layer_text(layer));
}

[[nodiscard]] nb::object query_scale(nb::handle config, nb::handle positions, nb::handle layer) {
  const ModelConfig model = read_model(config, "query_scale: config");
  const config::LayerGroup group = config::select_layer(model, layer_text(layer)).value_or_throw();
  const Counted<double> at(positions, "query_scale: positions");
  // A model without such a key has the factor 1.
  const std::vector<double> factors = encodings::query_scales(
      group.query_scale.value_or(encodings::QueryScale{0.0, 1, 0}), at.values);
  nb::object array = numpy_empty(at.shape, Element::f64);
  std::ranges::copy(factors, static_cast<double*>(numpy_data(array)));
  return array;
}

// The reader of plain specs checks every member.
[[nodiscard]] PySpec from_plain(const nb::dict& members) {
  return spec_from(config::parse_config(to_json(members), "RopeSpec").value_or_throw(), "");
}

void init(PySpec* self, nb::handle head_dim, nb::handle base, nb::handle layout,
          nb::handle rotary_dim, nb::handle rotary_offset, nb::handle max_position_embeddings,
          nb::handle scaling, nb::handle mrope, nb::handle axial, nb::handle xpos,
          nb::handle frequencies, nb::handle frequency_factors, nb::handle amplitude) {
  // In the order of spec_fields().
  const std::array values = {
      head_dim, base,  layout, rotary_dim, rotary_offset, max_position_embeddings,
      scaling,  mrope, axial,  xpos,       frequencies,   frequency_factors,
      amplitude};
  const auto fields = encodings::spec_fields();
  nb::dict members;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string_view key = fields[i].key;
    if (!values[i].is_none()) members[nb::str(key.data(), key.size())] = values[i];
  }
  new (self) PySpec(from_plain(members));
}

[[nodiscard]] nb::dict members_of(const PySpec& spec) {
  return nb::cast<nb::dict>(from_json(spec.plain));
}

[[nodiscard]] std::string spec_repr(const PySpec& spec) {
  std::string text = "RopeSpec(";
  for (const auto& [key, value] : members_of(spec)) {
    if (text.back() != '(') text += ", ";
    text += nb::cast<std::string>(key) + "=" + nb::cast<std::string>(nb::repr(value));
  }
  // Such a spec has frequencies, but cannot rotate.
  return text + (spec.value.layout ? ")" : ", layout=None)");
}

[[nodiscard]] std::pair<nb::object, double> frequencies_of(const PySpec& spec,
                                                           std::optional<std::int64_t> context) {
  const core::Frequencies frequencies = encodings::resolve_frequencies(spec.value, context);
  const std::int64_t shape[] = {frequencies.pairs()};
  nb::object array = numpy_empty(shape, Element::f64);
  std::ranges::copy(frequencies.values(), static_cast<double*>(numpy_data(array)));
  return {array, frequencies.amplitude()};
}

[[nodiscard]] nb::dict scaling_of(const PySpec& spec) {
  const nb::dict members = members_of(spec);
  if (members.contains("scaling")) return nb::cast<nb::dict>(members["scaling"]);
  nb::dict none;
  none["type"] = "default";
  return none;
}

}  // namespace

PySpec::PySpec(const encodings::RopeSpec& spec)
    : value(spec), plain(config::plain_spec_json(spec)) {}

std::shared_ptr<const core::Rotary> PySpec::rotary(std::optional<std::int64_t> context) const {
  if (!encodings::depends_on_context(value)) context.reset();
  if (last_ == nullptr || last_context_ != context) {
    last_ = std::make_shared<const core::Rotary>(encodings::resolve(value, context));
    last_context_ = context;
  }
  return last_;
}

const PySpec& spec_of(nb::handle object, PySpec& room, const char* where) {
  if (nb::isinstance<PySpec>(object)) return nb::cast<const PySpec&>(object);
  room = spec_from(read_model(object, where), "");
  return room;
}

void add_spec(nb::module_& module) {
  module.def(
      "query_scale", &query_scale, nb::arg("config"), nb::arg("positions"),
      nb::arg("layer") = nb::none(),
      "The factor on the query at each position, float64: 1 + beta ln(1 + floor((position + "
      "offset) / length)) for models that scale queries by position (Ministral 3, Mistral 4, "
      "Llama 4), else 1. positions [...], or an int n for 0..n-1.");
  nb::class_<PySpec>(module, "RopeSpec", nb::is_final(), spec_doc().c_str())
      .def("__init__", &init, nb::arg("head_dim") = nb::none(), nb::kw_only(),
           nb::arg("base") = 10000.0, nb::arg("layout") = nb::none(),
           nb::arg("rotary_dim") = nb::none(), nb::arg("rotary_offset") = 0,
           nb::arg("max_position_embeddings") = nb::none(), nb::arg("scaling") = nb::none(),
           nb::arg("mrope") = nb::none(), nb::arg("axial") = nb::none(),
           nb::arg("xpos") = nb::none(), nb::arg("frequencies") = nb::none(),
           nb::arg("frequency_factors") = nb::none(), nb::arg("amplitude") = 1.0)
      .def_static(
          "from_hf", &from_hf, nb::arg("config"), nb::arg("layer") = nb::none(),
          "The rotation of a config.json: a dictionary, a path (file, folder or GGUF), or an "
          "object with to_dict().")
      .def_prop_ro("head_dim", [](const PySpec& spec) { return spec.value.head_dim; })
      .def_prop_ro("rotary_dim", [](const PySpec& spec) { return spec.value.rotary_dim; })
      .def_prop_ro("rotary_offset", [](const PySpec& spec) { return spec.value.rotary_offset; })
      .def_prop_ro(
          "base", [](const PySpec& spec) { return encodings::base_of(spec.value); },
          "None when a list of frequencies replaces it.")
      .def_prop_ro("layout",
                   [](const PySpec& spec) -> std::optional<std::string> {
                     if (!spec.value.layout) return std::nullopt;
                     return std::string(core::name_of(*spec.value.layout));
                   })
      .def_prop_ro("scaling", &scaling_of, "{\"type\": ..., ...} under the names that configs use.")
      .def_prop_ro(
          "axes", [](const PySpec& spec) { return encodings::axis_count(spec.value.axes); },
          "How many rows of positions a token has: 1, one for each section of M-RoPE (3 or 4), or\n"
          "2 (images).")
      .def_prop_ro("depends_on_context",
                   [](const PySpec& spec) { return encodings::depends_on_context(spec.value); })
      .def("frequencies", &frequencies_of, nb::arg("context") = nb::none(),
           "Radians per position, one per pair, and the amplitude.")
      .def("to_dict", &members_of, "The plain spec that RopeSpec(**...) takes again.")
      .def(
          "replace",
          [](const PySpec& spec, const nb::kwargs& changes) {
            nb::dict members = members_of(spec);
            for (const auto& [key, value] : changes) {
              if (value.is_none()) {
                if (members.contains(key)) nb::del(members[key]);
              } else {
                members[key] = value;
              }
            }
            return from_plain(members);
          },
          nb::arg("changes"), "The same spec with members changed; None takes one away.")
      .def(
          "__eq__",
          [](const PySpec& spec, nb::handle other) {
            return nb::isinstance<PySpec>(other) &&
                   nb::cast<const PySpec&>(other).plain == spec.plain;
          },
          nb::arg("other"))
      .def("__hash__",
           [](const PySpec& spec) {
             return static_cast<Py_ssize_t>(std::hash<std::string>()(spec.plain) >> 1);
           })
      .def("__repr__", &spec_repr)
      .def("__getstate__", [](const PySpec& spec) { return spec.plain; })
      .def("__setstate__", [](PySpec& spec, const std::string& plain) {
        new (&spec) PySpec(spec_from(config::parse_config(plain, "RopeSpec").value_or_throw(), ""));
      });
}

}  // namespace phasor::python
