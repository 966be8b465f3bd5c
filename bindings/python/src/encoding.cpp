#include "encoding.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "module.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file.hpp"
#include "spec.hpp"

namespace phasor::python {
namespace {

using namespace nb::literals;  // NOLINT(google-build-using-namespace)
using config::LoadedEncoding;
using config::NamedTable;
using encodings::AttentionShape;

constexpr const char* kWhere = "encoding";
// Used to check an encoding before the shape of attention is known.
constexpr AttentionShape kAnyShape{1, 1, 64, 64, 1, 1, std::nullopt};

[[nodiscard]] bool has(nb::handle object, const char* attribute) {
  return PyObject_HasAttrString(object.ptr(), attribute) != 0;
}

// An Encoding may hold a parameter that requires grad; calls without gradients refuse it.
[[nodiscard]] nb::object detached(nb::handle object) {
  return has(object, "requires_grad") && has(object, "detach") ? object.attr("detach")()
                                                               : nb::borrow(object);
}

[[nodiscard]] bool is_plain(nb::handle value) {
  return value.is_none() || PyBool_Check(value.ptr()) || PyLong_Check(value.ptr()) ||
         PyFloat_Check(value.ptr()) || PyUnicode_Check(value.ptr()) || is_list(value) ||
         PyDict_Check(value.ptr());
}

// The JSON form of a member; an array is added to `tables`.
[[nodiscard]] nb::object plain_member(const std::string& key, const std::string& name,
                                      nb::handle value,
                                      std::vector<std::pair<std::string, nb::object>>& tables) {
  if (is_plain(value)) return nb::borrow(value);
  if (nb::isinstance<PySpec>(value)) return from_json(nb::cast<const PySpec&>(value).plain);
  if (is_mapping(value)) return as_dict(value);
  if (has(value, "__fspath__")) return value.attr("__fspath__")();
  if (!has(value, "__dlpack__") && PyObject_CheckBuffer(value.ptr()) == 0) {
    refuse(message("encoding: ", name,
                   " must be a number, text, a list, a dictionary or an array, got ",
                   kind_of(value)));
  }
  const nb::object bare = detached(value);
  const std::string where = "encoding: " + name;
  const Array array(bare, where.c_str());
  if (array.rank() == 0 && has(value, "item")) return value.attr("item")();
  // The only array member that is not a table.
  if (key == "slopes" && has(value, "tolist")) return value.attr("tolist")();
  (void)named(name, array);
  tables.emplace_back(name, nb::borrow(value));
  nb::dict reference;
  reference["array"] = nb::str(name.data(), name.size());
  return reference;
}

[[nodiscard]] nb::dict plain_members(nb::dict members, const std::string& prefix,
                                     std::vector<std::pair<std::string, nb::object>>& tables) {
  nb::dict plain;
  for (const auto& [key, value] : members) {
    if (!nb::isinstance<nb::str>(key)) {
      refuse(message("encoding: keys must be str, got ", kind_of(key)));
    }
    const auto name = nb::cast<std::string>(key);
    if (name != "encoding" || !is_list(value)) {
      plain[key] = plain_member(name, prefix + name, value, tables);
      continue;
    }
    nb::list items;
    std::size_t index = 0;
    for (const nb::handle item : value) {
      const std::string path = message(prefix, index++, ".");
      if (nb::isinstance<PySpec>(item)) {
        nb::dict spec = nb::cast<nb::dict>(from_json(nb::cast<const PySpec&>(item).plain));
        spec["encoding"] = "rope";
        items.append(spec);
      } else if (is_mapping(item)) {
        items.append(plain_members(as_dict(item), path, tables));
      } else {
        items.append(item);
      }
    }
    plain[key] = items;
  }
  return plain;
}

[[nodiscard]] bool waits_for_shape(nb::dict plain) {
  if (!plain.contains("encoding")) return false;
  const nb::object named = plain["encoding"];
  if (is_list(named)) {
    for (const nb::handle item : named) {
      if (PyDict_Check(item.ptr()) && waits_for_shape(nb::cast<nb::dict>(item))) return true;
    }
    return false;
  }
  if (!nb::isinstance<nb::str>(named)) return false;
  const auto name = nb::cast<std::string>(named);
  return (name == "rope" || name == "xpos") && !plain.contains("head_dim") &&
         !plain.contains("hidden_size") && !plain.contains("config");
}

// "shaw", or "rope+alibi" for several.
[[nodiscard]] std::string name_in(nb::dict plain) {
  if (!plain.contains("encoding")) return "rope";
  const nb::object named = plain["encoding"];
  if (nb::isinstance<nb::str>(named)) return nb::cast<std::string>(named);
  std::string names;
  if (is_list(named)) {
    for (const nb::handle item : named) {
      if (!PyDict_Check(item.ptr())) continue;
      names += (names.empty() ? "" : "+") + name_in(nb::cast<nb::dict>(item));
    }
  }
  return names;
}

[[nodiscard]] bool same_shape(const AttentionShape& a, const AttentionShape& b) {
  return a.head_dim == b.head_dim && a.query_tokens == b.query_tokens &&
         a.key_tokens == b.key_tokens && a.distances == b.distances;
}

// Whether parsing read the number of tokens: Transformer-XL and XLNet may.
[[nodiscard]] bool follows_tokens(const LoadedEncoding& loaded) {
  return std::any_of(loaded.parts.begin(), loaded.parts.end(), [](const auto& part) {
    return std::holds_alternative<encodings::TransformerXl>(part) ||
           std::holds_alternative<encodings::Xlnet>(part);
  });
}

}  // namespace

bool is_list(nb::handle object) {
  return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr());
}

nb::dict as_dict(nb::handle mapping) {
  return nb::cast<nb::dict>(nb::handle(reinterpret_cast<PyObject*>(&PyDict_Type))(mapping));
}

void refuse_array(std::string_view where, std::string_view name,
                  std::span<const std::string_view> known) {
  refuse(message(where, ": the encoding has no array \"", name, "\"",
                 known.empty() ? "" : "; it has " + core::list_text(known, core::Quotes::around)));
}

NamedTable named(std::string_view name, const Array& array) {
  const core::DType dtype = float_type_of(array, message("encoding: ", name));
  return {name, array.data(), dtype, array.shape(), array.strides()};
}

PyEncoding PyEncoding::from_dict(nb::handle dictionary) {
  PyEncoding encoding;
  const nb::dict plain = plain_members(as_dict(dictionary), "", encoding.tables);
  encoding.name = name_in(plain);
  encoding.json = to_json(plain);
  encoding.needs_shape = waits_for_shape(plain);
  return encoding;
}

PyEncoding PyEncoding::from_file(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path file =
      std::filesystem::is_directory(path, ignored) ? path / "config.json" : path;
  PyEncoding encoding;
  encoding.json = io::read_text(file).value_or_throw();
  encoding.folder = file.parent_path();
  config::EncodingRequest request;
  request.shape = kAnyShape;
  const Result<LoadedEncoding> loaded =
      config::parse_encoding(encoding.json, encoding.folder, file.string(), request);
  nb::object object;
  try {
    object = from_json(encoding.json);
  } catch (const nb::python_error&) {
    // The error of parse_encoding() is thrown below: it names the file.
  }
  const bool is_object = object.is_valid() && PyDict_Check(object.ptr());
  encoding.needs_shape = is_object && waits_for_shape(nb::cast<nb::dict>(object));
  if (!loaded.ok() && !encoding.needs_shape) throw Error(loaded.error());
  encoding.name = name_in(nb::cast<nb::dict>(object));
  return encoding;
}

PyEncoding PyEncoding::with_tables(nb::handle others) const {
  if (!is_mapping(others)) {
    refuse(message("with_tables: tables must be a mapping, got ", kind_of(others)));
  }
  PyEncoding encoding;
  encoding.name = name;
  encoding.json = json;
  encoding.folder = folder;
  encoding.needs_shape = needs_shape;
  encoding.tables = tables;
  for (const auto& [key, value] : as_dict(others)) {
    const auto member = nb::cast<std::string>(nb::str(key));
    const auto found = std::find_if(encoding.tables.begin(), encoding.tables.end(),
                                    [&](const auto& table) { return table.first == member; });
    if (found == encoding.tables.end()) {
      std::vector<std::string_view> known;
      for (const auto& table : tables) known.push_back(table.first);
      refuse_array("with_tables", member, known);
    }
    (void)named(member, Array(detached(value), kWhere));
    found->second = nb::borrow(value);
  }
  encoding.check();
  return encoding;
}

void PyEncoding::check() const {
  if (needs_shape) return;
  std::deque<Array> arrays;
  std::vector<nb::object> keepers;
  std::vector<NamedTable> named_tables;
  for (const auto& [member, object] : tables) {
    keepers.push_back(detached(object));
    named_tables.push_back(named(member, arrays.emplace_back(keepers.back(), kWhere)));
  }
  config::EncodingRequest request;
  request.shape = kAnyShape;
  request.tables = named_tables;
  (void)config::parse_encoding(json, folder, kWhere, request).value_or_throw();
}

std::shared_ptr<const LoadedEncoding> PyEncoding::load(const AttentionShape& shape,
                                                       std::span<const NamedTable> arrays) const {
  if (arrays.empty() && last_ != nullptr &&
      (same_shape(shape, last_shape_) ||
       (shape.head_dim == last_shape_.head_dim && !follows_tokens(*last_)))) {
    return last_;
  }
  config::EncodingRequest request;
  request.shape = shape;
  request.tables = arrays;
  auto loaded = std::make_shared<const LoadedEncoding>(
      config::parse_encoding(json, folder, kWhere, request).value_or_throw());
  if (arrays.empty()) {
    last_ = loaded;
    last_shape_ = shape;
  }
  return loaded;
}

std::string PyEncoding::text() const {
  const nb::object brief = nb::module_::import_("reprlib").attr("repr");
  std::string text = message("Encoding(\"", name, "\"");
  for (const auto& [key, value] : nb::cast<nb::dict>(from_json(json))) {
    const auto member = nb::cast<std::string>(key);
    if (member == "encoding" && nb::isinstance<nb::str>(value)) continue;
    const auto table = std::find_if(tables.begin(), tables.end(),
                                    [&](const auto& entry) { return entry.first == member; });
    text += message(", ", member, "=");
    if (table == tables.end()) {
      text += nb::cast<std::string>(brief(value));
    } else {
      const nb::object bare = detached(table->second);
      text += message("<", Array(bare, kWhere).text(), ">");
    }
  }
  return text + ")";
}

namespace {

// Arrays may refer back to the encoding: the garbage collector must see them.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const auto& [member, array] : nb::inst_ptr<PyEncoding>(self)->tables) Py_VISIT(array.ptr());
  return 0;
}

int clear(PyObject* self) {
  nb::inst_ptr<PyEncoding>(self)->tables.clear();
  return 0;
}

const PyType_Slot kSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(clear)},
                              {0, nullptr}};

}  // namespace

void add_encoding(nb::module_& module) {
  nb::class_<PyEncoding>(module, "Encoding", encoding_doc().c_str(), nb::is_final(),
                         nb::type_slots(kSlots))
      .def(
          "__init__",
          [](PyEncoding* self, const char* name, std::optional<double> scale,
             const nb::kwargs& members) {
            nb::dict all;
            all["encoding"] = name;
            if (members.contains("encoding")) {
              refuse("Encoding: the member \"encoding\" cannot be combined with the name");
            }
            for (const auto& [key, value] : members) all[key] = value;
            if (scale) all["scale"] = *scale;
            PyEncoding made = PyEncoding::from_dict(all);
            made.check();
            new (self) PyEncoding(std::move(made));
          },
          "name"_a, nb::kw_only(), "scale"_a = nb::none(), "members"_a)
      .def_static(
          "from_file",
          [](nb::handle path) {
            const nb::object text = nb::steal(PyOS_FSPath(path.ptr()));
            if (!text.is_valid()) throw nb::python_error();
            return PyEncoding::from_file(nb::cast<std::string>(text));
          },
          "path"_a)
      .def_prop_ro("name", [](const PyEncoding& self) { return self.name; })
      .def_prop_ro(
          "tables",
          [](const PyEncoding& self) {
            nb::dict tables;
            for (const auto& [member, array] : self.tables) tables[member.c_str()] = array;
            return tables;
          },
          "The arrays of the encoding, by member.")
      .def("with_tables", &PyEncoding::with_tables, "tables"_a,
           "The same encoding with some arrays replaced, by member.")
      .def("__repr__", &PyEncoding::text);
}

}  // namespace phasor::python
