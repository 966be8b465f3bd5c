#include "config/plain_spec.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "config/hf/rope_dictionary.hpp"
#include "phasor/config/internal/spec_json.hpp"
#include "phasor/encodings/internal/fields.hpp"

namespace phasor::config {
namespace {

using encodings::FieldType;
using encodings::FieldValue;
using encodings::MropeAxes;
using encodings::RopeSpec;
using encodings::WhenMissing;
using encodings::Xpos;

// A key of another format, and the key of a plain spec that replaces it.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kNamesElsewhere = {{
    {"rope_theta", "base"},
    {"theta", "base"},
    {"rotary_emb_base", "base"},
    {"partial_rotary_factor", "rotary_dim"},
    {"rotary_pct", "rotary_dim"},
    {"rope_scaling", "scaling"},
    {"rope_type", "scaling"},
    {"mrope_section", "mrope"},
    {"interleaved", "layout"},
    {"rope_layout", "layout"},
    {"offset", "rotary_offset"},
}};

[[nodiscard]] MropeAxes read_mrope(const ObjectReader& reader) {
  MropeAxes axes;
  std::optional<std::vector<std::int64_t>> sections = reader.integers("sections");
  if (!sections)
    reader.refuse("sections", "missing key: an integer for each row of positions, 3 or 4");
  axes.sections = *std::move(sections);
  const std::span<const std::string_view> orders = encodings::names_of_mrope_orders();
  const FieldValue order = read_value(reader, "order", FieldType::word, orders);
  if (const auto* name = std::get_if<std::string_view>(&order))
    axes.order = static_cast<MropeAxes::Order>(*encodings::choice_of(orders, *name));
  refuse_unknown_key(reader, std::array<std::string_view, 2>{"sections", "order"});
  return axes;
}

[[nodiscard]] Xpos read_xpos(const ObjectReader& reader) {
  Xpos xpos;
  for (const encodings::Field<Xpos>& field : encodings::xpos_fields()) {
    if (field.key == "centre" && reader.value(field.key).is_string()) {
      const FieldValue policy =
          read_value(reader, field.key, FieldType::word, encodings::names_of_xpos_centres());
      xpos.policy = static_cast<Xpos::Centre>(*encodings::choice_of(
          encodings::names_of_xpos_centres(), std::get<std::string_view>(policy)));
      if (xpos.policy == Xpos::Centre::fixed)
        reader.refuse(field.key, "must be a number, middle_floor or middle_ceil, got \"fixed\"");
      continue;
    }
    const FieldValue value = read_value(reader, field);
    if (!std::holds_alternative<std::monostate>(value)) field.set(xpos, value);
  }
  refuse_unknown_key(reader, keys_of(encodings::xpos_fields()));
  return xpos;
}

}  // namespace

bool is_plain_spec(const ObjectReader& top) {
  const auto has_any = [&](const auto& keys) {
    return std::any_of(keys.begin(), keys.end(),
                       [&](std::string_view key) { return top.has_even_null(key); });
  };
  constexpr std::array<std::string_view, 9> kModelKeys = {
      "model_type",          "architectures", "hidden_size",   "n_embd",         "embed_dim",
      "num_attention_heads", "text_config",   "vision_config", "rope_parameters"};
  constexpr std::array<std::string_view, 8> kPlainKeys = {
      "base", "layout", "scaling", "mrope", "axial", "xpos", "rotary_offset", "frequencies"};
  constexpr std::array<std::string_view, 5> kRopeKeys = {
      "rope_theta", "rope_scaling", "rotary_emb_base", "rotary_pct", "qk_rope_head_dim"};
  return !has_any(kModelKeys) && (has_any(kPlainKeys) || !has_any(kRopeKeys));
}

ModelConfig read_plain_spec(const ObjectReader& top) {
  for (const auto& [elsewhere, here] : kNamesElsewhere) {
    if (top.has_even_null(elsewhere)) {
      top.refuse(elsewhere, message("a plain spec has \"", here, "\" instead of this key"));
    }
  }
  ModelConfig config;
  RopeSpec spec;
  if (top.has("mrope") && top.has("axial"))
    top.refuse("axial", "axial and mrope cannot be combined");
  for (const encodings::Field<RopeSpec>& field : encodings::spec_fields()) {
    const FieldValue value = read_value(top, field);
    if (!std::holds_alternative<std::monostate>(value)) {
      if (value == FieldValue(std::vector<double>()))
        top.refuse(field.key, "must have an entry for each pair, got 0 entries");
      if (field.set != nullptr) field.set(spec, value);
    } else if (field.missing == WhenMissing::error && !top.has(field.unless)) {
      top.refuse(field.key, "missing key, which a plain spec needs");
    }
  }
  if (!top.has("head_dim")) spec.head_dim = encodings::width_of_list(spec);
  if (!top.has("rotary_dim")) spec.rotary_dim = encodings::rest_of_head(spec);
  config.max_position = top.integer("max_position_embeddings");
  if (config.max_position) config.max_position_key = "max_position_embeddings";
  if (const std::optional<ObjectReader> scaling = top.object("scaling")) {
    const Lengths lengths{config.max_position, std::nullopt};
    spec.scaling = read_rope_dictionary(*scaling, DictionaryForm::plain_scaling, lengths).scaling;
  }
  if (const std::optional<ObjectReader> mrope = top.object("mrope")) spec.axes = read_mrope(*mrope);
  if (const std::optional<ObjectReader> xpos = top.object("xpos")) spec.xpos = read_xpos(*xpos);
  refuse_unknown_key(top, keys_of(encodings::spec_fields()));

  encodings::validate(spec);
  LayerGroup group;
  group.softmax_scale = 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
  const auto given = [&](std::string_view key) {
    return top.has(key) ? std::string(key) : "default of a plain spec";
  };
  group.sources = {{"head_dim", top.has("head_dim") ? "head_dim" : "frequencies"},
                   {"rotary_dim", given("rotary_dim")},
                   spec.frequencies.empty() ? Source{"base", given("base")}
                                            : Source{"frequencies", "frequencies"},
                   {"scaling", top.has("scaling") ? "scaling.type" : "no key: unscaled"},
                   {"softmax_scale", "head_dim^-1/2"}};
  for (const std::string_view key : {"layout", "frequency_factors", "amplitude"}) {
    if (top.has(key)) group.sources.push_back({std::string(key), std::string(key)});
  }
  config.head_dim = spec.head_dim;
  group.rope = std::move(spec);
  config.groups.push_back(std::move(group));
  return config;
}

}  // namespace phasor::config
