#include "phasor/porting/explain.hpp"
#include "porting/json_values.hpp"
#include "porting/plan/scaling_keys.hpp"

namespace phasor::porting {
namespace {

[[nodiscard]] Json xpos_json(const encodings::Xpos& xpos) {
  using Centre = encodings::Xpos::Centre;
  Json to = {{"scale_base", xpos.scale_base}, {"gamma", xpos.gamma}};
  if (xpos.policy == Centre::fixed) {
    to["centre"] = xpos.centre;
  } else {
    to["centre"] = xpos.policy == Centre::middle_floor ? "middle_floor" : "middle_ceil";
  }
  return to;
}

}  // namespace

std::string plain_spec_json(const encodings::RopeSpec& spec) {
  Json to = {{"head_dim", spec.head_dim}, {"base", spec.base}};
  if (spec.layout) to["layout"] = core::name_of(*spec.layout);
  if (spec.rotary_dim != spec.head_dim - spec.rotary_offset) to["rotary_dim"] = spec.rotary_dim;
  if (spec.rotary_offset != 0) to["rotary_offset"] = spec.rotary_offset;
  if (!std::holds_alternative<encodings::DefaultScaling>(spec.scaling)) {
    Json scaling = {{"type", encodings::name_of(spec.scaling)}};
    write_scaling_keys(spec.scaling, DefaultKeys::leave_out, scaling);
    // The one scaling that reads its length from beside the dictionary.
    const auto* const dynamic = std::get_if<encodings::DynamicScaling>(&spec.scaling);
    if (dynamic != nullptr && !dynamic->alpha)
      to["max_position_embeddings"] = dynamic->original_length;
    to["scaling"] = std::move(scaling);
  }
  if (const auto* mrope = std::get_if<encodings::MropeAxes>(&spec.axes))
    to["mrope"] = {{"sections", mrope->sections}, {"order", encodings::name_of(mrope->order)}};
  if (const auto* axial = std::get_if<encodings::AxialAxes>(&spec.axes))
    to["axial"] = encodings::name_of(axial->kind);
  if (spec.xpos) to["xpos"] = xpos_json(*spec.xpos);
  return to.dump();
}

}  // namespace phasor::porting
