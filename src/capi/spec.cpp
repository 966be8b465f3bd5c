#include "capi/spec.hpp"

#include <algorithm>
#include <array>
#include <variant>
#include <vector>

#include "capi/edge.hpp"
#include "phasor/encodings/internal/fields.hpp"

namespace phasor::capi {
namespace {

using encodings::FieldValue;

template <class T>
std::vector<T> copied(const T* values, std::size_t count, std::string_view where,
                      std::string_view what) {
  need_array(values, count, where, what);
  return count == 0 ? std::vector<T>{} : std::vector<T>(values, values + count);
}

// Of one number per pair. Empty: none, which is not meant if there is an array.
std::vector<double> copied_list(const double* values, std::size_t count, std::string_view where,
                                std::string_view what) {
  if (values != nullptr && count == 0)
    refuse(message(where, ": ", what, " must have an entry for each pair, got 0 entries"));
  return copied(values, count, where, what);
}

// The members of phasor_rope_spec that scalings read, under the names of their fields.
struct ScalingMember {
  std::string_view name;
  std::variant<double phasor_rope_spec::*, std::int64_t phasor_rope_spec::*,
               std::int32_t phasor_rope_spec::*, const double * phasor_rope_spec::*>
      member;
};
constexpr std::array kScalingMembers = {
    ScalingMember{"factor", &phasor_rope_spec::factor},
    ScalingMember{"original_length", &phasor_rope_spec::original_length},
    ScalingMember{"alpha", &phasor_rope_spec::alpha},
    ScalingMember{"mixed_b", &phasor_rope_spec::mixed_b},
    ScalingMember{"beta_0", &phasor_rope_spec::beta_0},
    ScalingMember{"beta_1", &phasor_rope_spec::beta_1},
    ScalingMember{"gamma_0", &phasor_rope_spec::gamma_0},
    ScalingMember{"gamma_1", &phasor_rope_spec::gamma_1},
    ScalingMember{"ntk_factor", &phasor_rope_spec::ntk_factor},
    ScalingMember{"extrapolation_factor", &phasor_rope_spec::extrapolation_factor},
    ScalingMember{"beta_fast", &phasor_rope_spec::beta_fast},
    ScalingMember{"beta_slow", &phasor_rope_spec::beta_slow},
    ScalingMember{"truncate", &phasor_rope_spec::yarn_bounds},
    ScalingMember{"mscale", &phasor_rope_spec::mscale},
    ScalingMember{"mscale_all_dim", &phasor_rope_spec::mscale_all_dim},
    ScalingMember{"attention_factor", &phasor_rope_spec::attention_factor},
    ScalingMember{"low_freq_factor", &phasor_rope_spec::low_freq_factor},
    ScalingMember{"high_freq_factor", &phasor_rope_spec::high_freq_factor},
    ScalingMember{"proportion", &phasor_rope_spec::proportion},
    ScalingMember{"short_factor", &phasor_rope_spec::short_factor},
    ScalingMember{"long_factor", &phasor_rope_spec::long_factor},
    ScalingMember{"short_mscale", &phasor_rope_spec::short_mscale},
    ScalingMember{"long_mscale", &phasor_rope_spec::long_mscale},
};
static_assert(PHASOR_SCALING_TELECHAT3_YARN + 1 == std::variant_size_v<encodings::RopeScaling>,
              "a new scaling needs its value in phasor_scaling, at the end");

[[nodiscard]] const ScalingMember& member_of(
    const encodings::Field<encodings::RopeScaling>& field) {
  const auto* const found =
      std::find_if(kScalingMembers.begin(), kScalingMembers.end(),
                   [&](const ScalingMember& member) { return member.name == field.name; });
  if (found == kScalingMembers.end())
    refuse(ErrorCode::internal, message("phasor_rope_spec has no member for ", field.name));
  return *found;
}

// A member of C as a field's value. 0 means "none" for a field that is not given by default.
class ValueOfMember {
 public:
  ValueOfMember(const phasor_rope_spec& spec, std::string_view name, FieldValue standard,
                std::string_view where)
      : spec_(spec), name_(name), standard_(std::move(standard)), where_(where) {}

  [[nodiscard]] FieldValue operator()(double phasor_rope_spec::*member) const {
    const bool none = spec_.*member == 0.0 && std::holds_alternative<std::monostate>(standard_);
    return none ? FieldValue() : FieldValue(spec_.*member);
  }
  [[nodiscard]] FieldValue operator()(std::int64_t phasor_rope_spec::*member) const {
    return spec_.*member;
  }
  // yarn_bounds: 0 is the field's default.
  [[nodiscard]] FieldValue operator()(std::int32_t phasor_rope_spec::*member) const {
    enum class Flag { standard, other };
    const Flag flag = choice(spec_.*member, Flag::other, where_, "yarn_bounds");
    return std::get<bool>(standard_) == (flag == Flag::standard);
  }
  [[nodiscard]] FieldValue operator()(const double* phasor_rope_spec::*member) const {
    return copied(spec_.*member, spec_.factor_count, where_, name_);
  }

 private:
  const phasor_rope_spec& spec_;
  std::string_view name_;
  FieldValue standard_;
  std::string_view where_;
};

encodings::RopeScaling to_scaling(const phasor_rope_spec& spec, std::string_view where) {
  const auto types = encodings::scaling_types();
  if (spec.scaling < 0 || static_cast<std::size_t>(spec.scaling) >= types.size()) {
    refuse(
        message(where, ": scaling must be from 0 to ", types.size() - 1, ", got ", spec.scaling));
  }
  const encodings::ScalingType& type = *types[static_cast<std::size_t>(spec.scaling)];
  encodings::RopeScaling scaling = type.make();
  for (const auto& field : type.fields) {
    const FieldValue value = std::visit(ValueOfMember(spec, field.name, field.get(scaling), where),
                                        member_of(field).member);
    if (!std::holds_alternative<std::monostate>(value)) field.set(scaling, value);
  }
  return scaling;
}

encodings::RopeAxes to_axes(const phasor_rope_spec& spec, std::string_view where) {
  using encodings::AxialAxes;
  using encodings::MropeAxes;
  const auto mrope = [&](MropeAxes::Order order) {
    return MropeAxes{copied(spec.sections, spec.section_count, where, "sections"), order};
  };
  switch (spec.axes) {
    case PHASOR_ONE_AXIS:
      return encodings::OneAxis{};
    case PHASOR_MROPE_CHUNKED:
      return mrope(MropeAxes::Order::chunked);
    case PHASOR_MROPE_INTERLEAVED:
      return mrope(MropeAxes::Order::interleaved);
    case PHASOR_MROPE_ALTERNATING:
      return mrope(MropeAxes::Order::alternating);
    case PHASOR_AXIAL_CONCATENATED:
      return AxialAxes{AxialAxes::Kind::concatenated};
    case PHASOR_AXIAL_ALTERNATING:
      return AxialAxes{AxialAxes::Kind::alternating};
    case PHASOR_AXIAL_PER_HALF_HEAD:
      return AxialAxes{AxialAxes::Kind::per_half_head};
    default:
      break;
  }
  refuse(message(where, ": axes must be from 0 to ", int{PHASOR_AXIAL_PER_HALF_HEAD}, ", got ",
                 spec.axes));
}

std::optional<encodings::Xpos> to_xpos(const phasor_rope_spec& spec, std::string_view where) {
  using encodings::Xpos;
  Xpos xpos{spec.xpos_scale_base, spec.xpos_gamma, Xpos::Centre::fixed, spec.xpos_centre};
  switch (spec.xpos) {
    case PHASOR_XPOS_NONE:
      return std::nullopt;
    case PHASOR_XPOS_FIXED:
      return xpos;
    case PHASOR_XPOS_MIDDLE_FLOOR:
      xpos.policy = Xpos::Centre::middle_floor;
      return xpos;
    case PHASOR_XPOS_MIDDLE_CEIL:
      xpos.policy = Xpos::Centre::middle_ceil;
      return xpos;
    default:
      break;
  }
  refuse(message(where, ": xpos must be from 0 to ", int{PHASOR_XPOS_MIDDLE_CEIL}, ", got ",
                 spec.xpos));
}

}  // namespace

phasor_rope_spec default_spec() {
  phasor_rope_spec spec{};
  spec.struct_size = sizeof(spec);
  spec.layout = PHASOR_LAYOUT_UNSET;
  spec.base = encodings::RopeSpec{}.base;
  spec.amplitude = encodings::RopeSpec{}.amplitude;
  for (const encodings::ScalingType* type : encodings::scaling_types()) {
    const encodings::RopeScaling scaling = type->make();
    for (const auto& field : type->fields) {
      const FieldValue value = field.get(scaling);
      const auto* const number = std::get_if<double>(&value);
      if (number != nullptr)
        spec.*std::get<double phasor_rope_spec::*>(member_of(field).member) = *number;
    }
  }
  const encodings::Xpos xpos;
  spec.xpos_scale_base = xpos.scale_base;
  spec.xpos_gamma = xpos.gamma;
  return spec;
}

encodings::RopeSpec to_rope_spec(const phasor_rope_spec* given, std::string_view where) {
  const phasor_rope_spec spec = take_struct(given, default_spec(), where, "spec");
  encodings::RopeSpec rope;
  rope.head_dim = spec.head_dim;
  rope.rotary_offset = spec.rotary_offset;
  rope.frequencies = copied_list(spec.frequencies, spec.frequency_count, where, "frequencies");
  rope.frequency_factors =
      copied_list(spec.frequency_factors, spec.frequency_factor_count, where, "frequency_factors");
  rope.amplitude = spec.amplitude;
  if (rope.head_dim == 0) rope.head_dim = encodings::width_of_list(rope);
  rope.rotary_dim = spec.rotary_dim == 0 ? encodings::rest_of_head(rope) : spec.rotary_dim;
  rope.base = spec.base;
  rope.layout = to_layout(spec.layout, where);
  rope.scaling = to_scaling(spec, where);
  rope.axes = to_axes(spec, where);
  rope.xpos = to_xpos(spec, where);
  return rope;
}

std::optional<core::PairLayout> to_layout(phasor_pair_layout layout, std::string_view where) {
  if (layout == PHASOR_LAYOUT_UNSET) return std::nullopt;
  static_assert(static_cast<int>(core::PairLayout::interleaved) == PHASOR_INTERLEAVED);
  static_assert(static_cast<int>(core::PairLayout::half) == PHASOR_HALF);
  static_assert(static_cast<int>(core::PairLayout::interleaved_to_half) ==
                PHASOR_INTERLEAVED_TO_HALF);
  return choice(layout, core::PairLayout::interleaved_to_half, where, "layout");
}

std::optional<std::int64_t> to_context(std::int64_t context, std::string_view where) {
  if (context < 0) {
    refuse(message(where, ": context must be positive, or 0 for none, got ", context));
  }
  return context == 0 ? std::nullopt : std::optional<std::int64_t>(context);
}

encodings::RopeSpec layer_spec(const config::ModelConfig& config, const char* layer,
                               std::string_view where) {
  const std::string_view selector = layer == nullptr ? "" : layer;
  Result<config::LayerGroup> selected = config::select_layer(config, selector);
  if (!selected) throw Error(selected.error());
  config::LayerGroup group = std::move(selected).value();
  if (!group.rope) {
    throw Error(ErrorCode::unsupported,
                message(where, ": layer ", selector.empty() ? "(all)" : selector,
                        " has no rotary encoding"));
  }
  return *std::move(group.rope);
}

core::Rotary layer_rotary(const config::ModelConfig& config, const char* layer,
                          phasor_pair_layout layout, std::int64_t context, std::string_view where) {
  encodings::RopeSpec spec = layer_spec(config, layer, where);
  if (const auto chosen = to_layout(layout, where)) spec.layout = chosen;
  return encodings::resolve(spec, to_context(context, where));
}

}  // namespace phasor::capi
