// encoding= and d_tables= of a call.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <string>

#include "encoding.hpp"
#include "phasor/config/encoding.hpp"
#include "spec.hpp"

namespace phasor::python {
namespace {

using config::LoadedEncoding;
using config::NamedTable;
using encodings::AttentionShape;

// "r1" or "r2", which only KERPLE has, with the path in a list before it.
[[nodiscard]] bool is_kerple_member(std::string_view member, std::string_view name) {
  return member.substr(member.rfind('.') + 1) == name;
}
[[nodiscard]] bool is_kerple_member(std::string_view member) {
  return is_kerple_member(member, "r1") || is_kerple_member(member, "r2");
}

}  // namespace

EncodingArgument::Held::Held(const Part& of, const std::string& with, nb::handle object)
    : part(&of),
      member(&with),
      name(of.prefix + with),
      where("encoding: " + name),
      array(object, where.c_str()) {}

void EncodingArgument::add(nb::handle object, std::string prefix) {
  Part& part = parts_.emplace_back();
  part.prefix = std::move(prefix);
  part.keeper = nb::borrow(object);
  if (nb::isinstance<PySpec>(object)) {
    part.spec = &nb::cast<const PySpec&>(object);
    return;
  }
  if (nb::isinstance<PyEncoding>(object)) {
    part.encoding = &nb::cast<const PyEncoding&>(object);
  } else if (is_mapping(object)) {
    part.encoding = &made_.emplace_back(PyEncoding::from_dict(object));
  } else if (nb::isinstance<nb::str>(object) || nb::hasattr(object, "__fspath__")) {
    part.encoding = &made_.emplace_back(
        PyEncoding::from_file(nb::cast<std::string>(nb::str(nb::object(nb::borrow(object))))));
  } else {
    refuse(
        message("encoding: must be a RopeSpec, an Encoding, a dictionary, a path, a list of "
                "those or None, got ",
                kind_of(object)));
  }
  for (const auto& [member, array] : part.encoding->tables) held_.emplace_back(part, member, array);
}

template <class TableOf>
encodings::ScoreTerms EncodingArgument::resolve(
    const TableOf& table_of, std::vector<std::shared_ptr<const LoadedEncoding>>& loaded) const {
  LoadedEncoding all;
  for (const Part& part : parts_) {
    if (part.spec != nullptr) {
      all.parts.emplace_back(part.spec->value);
      continue;
    }
    std::vector<NamedTable> arrays;
    for (const Held& held : held_) {
      if (held.part == &part) arrays.push_back(table_of(held));
    }
    const LoadedEncoding& one = *loaded.emplace_back(part.encoding->load(shape_, arrays));
    all.parts.insert(all.parts.end(), one.parts.begin(), one.parts.end());
    if (one.scale && all.scale && *one.scale != *all.scale) {
      refuse(ErrorCode::unsupported,
             message("encoding: encodings used together must have the same scale, got ", *all.scale,
                     " and ", *one.scale));
    }
    if (one.scale) all.scale = one.scale;
    if (!one.slopes.empty()) all.slopes = one.slopes;
    if (one.slope_order) all.slope_order = one.slope_order;
  }
  return config::resolve(all, shape_);
}

EncodingArgument::EncodingArgument(nb::handle object, const AttentionShape& shape) : shape_(shape) {
  if (object.is_none()) {
    terms_ = encodings::resolve(encodings::NoEncoding{}, shape);
    return;
  }
  if (is_list(object)) {
    std::size_t index = 0;
    for (const nb::handle item : object) add(item, message(index++, "."));
    if (parts_.empty()) refuse("encoding: the list is empty: give at least one encoding, or None");
  } else {
    add(object, "");
  }
  if (parts_.size() == 1 && parts_.front().spec != nullptr) {
    // The spec caches its last rotation: a decode step resolves nothing.
    const PySpec& spec = *parts_.front().spec;
    if (spec.value.head_dim != shape.head_dim) {
      refuse(ErrorCode::shape_mismatch, message("rope: head_dim must be the head_dim of q, ",
                                                shape.head_dim, ", got ", spec.value.head_dim));
    }
    terms_ = encodings::resolve(encodings::NoEncoding{}, shape);
    terms_.rotation = *spec.rotary(encodings::context_for(
        spec.value, shape.context,
        shape.largest_position.value_or(static_cast<double>(shape.key_tokens - 1))));
    return;
  }
  terms_ = resolve([](const Held& held) { return named(*held.member, held.array); }, loaded_);
}

TableGradients::Target::Target(const EncodingArgument::Held& of, nb::handle object)
    : table(&of),
      where(message("attention_backward: d_tables[\"", of.name, "\"]")),
      array(object, where.c_str(), Access::write) {}

const void* TableGradients::Target::address() const {
  if (!scratch.empty()) return scratch.data();
  return wide_scratch.empty() ? array.data() : wide_scratch.data();
}

NamedTable TableGradients::Target::named() const {
  const bool wide = scratch.empty() && (!wide_scratch.empty() || array.element() == Element::f64);
  return {*table->member, address(), wide ? core::DType::f64 : core::DType::f32, array.shape(), {}};
}

void TableGradients::add(const EncodingArgument& encoding, nb::handle key, nb::handle value,
                         Arithmetic arithmetic) {
  const auto name = nb::cast<std::string>(nb::str(key));
  const auto held = std::find_if(encoding.held_.begin(), encoding.held_.end(),
                                 [&](const auto& table) { return table.name == name; });
  if (held == encoding.held_.end()) {
    std::vector<std::string_view> known;
    for (const auto& table : encoding.held_) known.push_back(table.name);
    refuse_array("attention_backward: d_tables", name, known);
  }
  Target& target = targets_.emplace_back(*held, value);
  const Array& array = target.array;
  if (array.element() != Element::f32 && array.element() != Element::f64) {
    refuse(ErrorCode::unsupported,
           message(target.where, " must be float32 or float64, got ", array.text()));
  }
  if (!std::ranges::equal(array.shape(), held->array.shape())) {
    refuse(ErrorCode::shape_mismatch, message(target.where, " must have the shape of ",
                                              held->array.text(), ", got ", array.text()));
  }
  for (const auto& table : encoding.held_) {
    if (table.array.data() == array.data())
      refuse(message(target.where, " must not share memory with a table, got ", table.name));
  }
  const bool computed = is_kerple_member(*held->member);
  const bool wide = arithmetic == Arithmetic::f64 || computed;
  if (!computed && array.dense() && (array.element() == Element::f32 || wide)) return;
  if (wide) {
    target.wide_scratch.resize(static_cast<std::size_t>(array.size()));
  } else {
    target.scratch.resize(static_cast<std::size_t>(array.size()));
  }
}

TableGradients::TableGradients(nb::handle d_tables, const EncodingArgument& encoding,
                               Arithmetic arithmetic) {
  if (d_tables.is_none()) return;
  if (!is_mapping(d_tables)) {
    refuse(
        message("attention_backward: d_tables must be a mapping from names of tables to arrays, "
                "got ",
                kind_of(d_tables)));
  }
  for (const auto& [key, value] : as_dict(d_tables)) add(encoding, key, value, arithmetic);
  // The terms again, over the gradient arrays: each table view is then a gradient view.
  const encodings::ScoreTerms terms = encoding.resolve(
      [&](const EncodingArgument::Held& held) {
        for (const Target& target : targets_) {
          if (target.table == &held && !is_kerple_member(*held.member)) return target.named();
        }
        return named(*held.member, held.array);
      },
      loaded_);
  const auto rows = [&](const std::optional<encodings::RelativeRows>& relative) {
    return relative ? gradient_of(relative->table) : encodings::TableGradient{};
  };
  terms_.content_bias = gradient_of(terms.content_bias);
  terms_.position_bias = gradient_of(terms.position_bias);
  terms_.query_rows = rows(terms.query_rows);
  terms_.key_rows = rows(terms.key_rows);
  terms_.bias = rows(terms.bias);
  terms_.extra_query = gradient_of(terms.extra_query);
  terms_.extra_key = gradient_of(terms.extra_key);
  terms_.first_row = gradient_of(terms.first_row);
  terms_.first_column = gradient_of(terms.first_column);
  terms_.segment_rows = gradient_of(terms.segment_rows);
  terms_.segment_bias = gradient_of(terms.segment_bias);
  terms_.value_rows = rows(terms.value_rows);
  const bool wants_kerple = std::any_of(targets_.begin(), targets_.end(), [](const Target& target) {
    return is_kerple_member(*target.table->member);
  });
  if (wants_kerple) add_kerple_rows(terms.bias->table, arithmetic);
}

void TableGradients::add_kerple_rows(const encodings::Table& bias, Arithmetic arithmetic) {
  for (const auto& loaded : loaded_) {
    for (const encodings::Encoding& part : loaded->parts) {
      if (const auto* kerple = std::get_if<encodings::Kerple>(&part)) kerple_ = *kerple;
    }
  }
  const auto size = static_cast<std::size_t>(bias.heads * bias.rows);
  terms_.bias = encodings::heads_then_rows<float>(nullptr, bias.heads, bias.rows, 1);
  if (arithmetic == Arithmetic::f64) {
    wide_kerple_rows_.resize(size);
    terms_.bias.wide = wide_kerple_rows_.data();
  } else {
    kerple_rows_.resize(size);
    terms_.bias.data = kerple_rows_.data();
  }
}

encodings::TableGradient TableGradients::gradient_of(const encodings::Table& table) const {
  if (!table.given()) return {};
  for (const Target& target : targets_) {
    if (target.address() != table.data && target.address() != table.wide) continue;
    // Both point to memory of this object or of an array opened with Access::write.
    return {const_cast<float*>(table.data),
            table.heads,
            table.rows,
            table.dim,
            table.head_stride,
            table.row_stride,
            const_cast<double*>(table.wide)};
  }
  return {};
}

void TableGradients::finish() {
  if (kerple_) {
    encodings::TableGradient d_r1, d_r2;
    for (Target& target : targets_) {
      if (!is_kerple_member(*target.table->member)) continue;
      auto& gradient = is_kerple_member(*target.table->member, "r1") ? d_r1 : d_r2;
      gradient = encodings::row_per_head<float>(
          nullptr, static_cast<std::int64_t>(target.wide_scratch.size()), 1);
      gradient.wide = target.wide_scratch.data();
    }
    encodings::kerple_backward(*kerple_, terms_.bias, d_r1, d_r2);
  }
  for (Target& target : targets_) {
    const std::size_t size = target.scratch.size() + target.wide_scratch.size();
    const std::span<const std::int64_t> shape = target.array.shape();
    const std::span<const std::int64_t> strides = target.array.strides();
    std::vector<std::int64_t> index(shape.size(), 0);
    for (std::size_t done = 0; done < size; ++done) {
      std::int64_t at = 0;
      for (std::size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * strides[axis];
      const double value = target.scratch.empty() ? target.wide_scratch[done]
                                                  : static_cast<double>(target.scratch[done]);
      if (target.array.element() == Element::f64) {
        static_cast<double*>(target.array.writable())[at] += value;
      } else {
        auto& number = static_cast<float*>(target.array.writable())[at];
        number = static_cast<float>(static_cast<double>(number) + value);
      }
      for (std::size_t axis = index.size(); axis-- > 0;) {
        if (++index[axis] < shape[axis]) break;
        index[axis] = 0;
      }
    }
  }
}

}  // namespace phasor::python
