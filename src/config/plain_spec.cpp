#include "config/plain_spec.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "config/hf/rope_dictionary.hpp"

namespace phasor::config {
namespace {

using encodings::AxialAxes;
using encodings::MropeAxes;
using encodings::RopeSpec;
using encodings::Xpos;

// A key that other formats use, and the name it has here.
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
constexpr std::string_view kKeys =
    "head_dim, rotary_dim, rotary_offset, base, layout, max_position_embeddings, scaling, mrope, "
    "axial, xpos";

[[nodiscard]] MropeAxes read_mrope(const ObjectReader& reader) {
  MropeAxes axes;
  std::optional<std::vector<std::int64_t>> sections = reader.integers("sections");
  if (!sections) reader.refuse("sections", "expected three integers, got nothing");
  axes.sections = *std::move(sections);
  const std::string order = reader.text("order").value_or("chunked");
  if (order == "chunked") {
    axes.order = MropeAxes::Order::chunked;
  } else if (order == "interleaved") {
    axes.order = MropeAxes::Order::interleaved;
  } else if (order == "alternating") {
    axes.order = MropeAxes::Order::alternating;
  } else {
    reader.refuse("order",
                  message("expected chunked, interleaved or alternating, got \"", order, "\""));
  }
  reader.refuse_rest("sections, order");
  return axes;
}

[[nodiscard]] AxialAxes read_axial(const ObjectReader& top, const std::string& kind) {
  if (kind == "concatenated") return {AxialAxes::Kind::concatenated};
  if (kind == "alternating") return {AxialAxes::Kind::alternating};
  if (kind == "per_half_head") return {AxialAxes::Kind::per_half_head};
  top.refuse("axial",
             message("expected concatenated, alternating or per_half_head, got \"", kind, "\""));
}

[[nodiscard]] Xpos read_xpos(const ObjectReader& reader) {
  Xpos xpos;
  xpos.scale_base = reader.number("scale_base").value_or(xpos.scale_base);
  xpos.gamma = reader.number("gamma").value_or(xpos.gamma);
  const Json& centre = reader.value("centre");
  if (centre.is_string()) {
    const std::string policy = *reader.text("centre");
    if (policy != "middle_floor" && policy != "middle_ceil") {
      reader.refuse("centre", message("expected a number, middle_floor or middle_ceil, got \"",
                                      policy, "\""));
    }
    xpos.policy = policy == "middle_floor" ? Xpos::Centre::middle_floor : Xpos::Centre::middle_ceil;
  } else {
    xpos.centre = reader.number("centre").value_or(xpos.centre);
  }
  reader.refuse_rest("scale_base, gamma, centre");
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
  constexpr std::array<std::string_view, 7> kPlainKeys = {
      "base", "layout", "scaling", "mrope", "axial", "xpos", "rotary_offset"};
  constexpr std::array<std::string_view, 5> kRopeKeys = {
      "rope_theta", "rope_scaling", "rotary_emb_base", "rotary_pct", "qk_rope_head_dim"};
  return !has_any(kModelKeys) && (has_any(kPlainKeys) || !has_any(kRopeKeys));
}

ModelConfig read_plain_spec(const ObjectReader& top) {
  for (const auto& [elsewhere, here] : kNamesElsewhere) {
    if (top.has_even_null(elsewhere)) {
      top.refuse(elsewhere, message("expected ", here, " in a plain spec, got ", elsewhere));
    }
  }
  ModelConfig config;
  RopeSpec spec;
  spec.head_dim = top.required_integer("head_dim");
  spec.rotary_offset = top.integer("rotary_offset").value_or(0);
  spec.rotary_dim = top.integer("rotary_dim").value_or(spec.head_dim - spec.rotary_offset);
  spec.base = top.number("base").value_or(spec.base);
  config.max_position = top.integer("max_position_embeddings");
  if (config.max_position) config.max_position_key = "max_position_embeddings";
  if (const std::optional<std::string> layout = top.text("layout")) {
    spec.layout = core::pair_layout_of(*layout);
    if (!spec.layout) {
      top.refuse("layout", message("expected interleaved, half or interleaved_to_half, got \"",
                                   *layout, "\""));
    }
  }
  if (const std::optional<ObjectReader> scaling = top.object("scaling")) {
    const Lengths lengths{config.max_position, std::nullopt};
    spec.scaling = read_rope_dictionary(*scaling, DictionaryForm::plain_scaling, lengths).scaling;
  }
  if (top.has("mrope") && top.has("axial"))
    top.refuse("axial", "expected mrope or axial, got both");
  if (const std::optional<ObjectReader> mrope = top.object("mrope")) spec.axes = read_mrope(*mrope);
  if (const std::optional<std::string> axial = top.text("axial"))
    spec.axes = read_axial(top, *axial);
  if (const std::optional<ObjectReader> xpos = top.object("xpos")) spec.xpos = read_xpos(*xpos);
  top.refuse_rest(kKeys);

  encodings::validate(spec);
  LayerGroup group;
  group.softmax_scale = 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
  const auto given = [&](std::string_view key) {
    return top.has(key) ? std::string(key) : "default of a plain spec";
  };
  group.sources = {{"head_dim", "head_dim"},
                   {"rotary_dim", given("rotary_dim")},
                   {"base", given("base")},
                   {"scaling", top.has("scaling") ? "scaling.type" : "no key: unscaled"},
                   {"softmax_scale", "head_dim^-1/2"}};
  if (spec.layout) group.sources.push_back({"layout", "layout"});
  config.head_dim = spec.head_dim;
  group.rope = std::move(spec);
  config.groups.push_back(std::move(group));
  return config;
}

}  // namespace phasor::config
