#include "capi/spec.hpp"

#include <limits>
#include <vector>

#include "capi/edge.hpp"

namespace phasor::capi {
namespace {

// 0 stands for "none" where 0 itself would make no sense.
std::optional<double> given_or_none(double value) {
  return value == 0.0 ? std::nullopt : std::optional<double>(value);
}

template <class T>
std::vector<T> copied(const T* values, std::size_t count, std::string_view where,
                      std::string_view what) {
  need_array(values, count, where, what);
  return count == 0 ? std::vector<T>{} : std::vector<T>(values, values + count);
}

encodings::RopeScaling to_scaling(const phasor_rope_spec& spec, std::string_view where) {
  using namespace encodings;
  switch (spec.scaling) {
    case PHASOR_SCALING_DEFAULT:
      return DefaultScaling{};
    case PHASOR_SCALING_LINEAR:
      return LinearScaling{spec.factor};
    case PHASOR_SCALING_NTK:
      return NtkScaling{spec.factor, given_or_none(spec.mixed_b)};
    case PHASOR_SCALING_DYNAMIC:
      return DynamicScaling{spec.factor, given_or_none(spec.alpha), spec.original_length};
    case PHASOR_SCALING_NTK_BY_PARTS:
      return NtkByPartsScaling{.factor = spec.factor,
                               .original_length = spec.original_length,
                               .beta_0 = spec.beta_0,
                               .beta_1 = spec.beta_1,
                               .gamma_0 = spec.gamma_0,
                               .gamma_1 = spec.gamma_1,
                               .ntk_factor = spec.ntk_factor,
                               .extrapolation_factor = spec.extrapolation_factor};
    case PHASOR_SCALING_YARN: {
      YarnScaling yarn;
      yarn.factor = spec.factor;
      yarn.original_length = spec.original_length;
      yarn.beta_fast = spec.beta_fast;
      yarn.beta_slow = spec.beta_slow;
      enum class Bounds { truncated, fractional };
      yarn.truncate =
          choice(spec.yarn_bounds, Bounds::fractional, where, "yarn_bounds") == Bounds::truncated;
      yarn.attention_factor = given_or_none(spec.attention_factor);
      yarn.mscale = spec.mscale;
      yarn.mscale_all_dim = spec.mscale_all_dim;
      return yarn;
    }
    case PHASOR_SCALING_LONGROPE: {
      LongRopeScaling longrope;
      longrope.short_factor = copied(spec.short_factor, spec.factor_count, where, "short_factor");
      longrope.long_factor = copied(spec.long_factor, spec.factor_count, where, "long_factor");
      longrope.original_length = spec.original_length;
      longrope.factor = spec.factor;
      longrope.attention_factor = given_or_none(spec.attention_factor);
      longrope.short_mscale = given_or_none(spec.short_mscale);
      longrope.long_mscale = given_or_none(spec.long_mscale);
      return longrope;
    }
    case PHASOR_SCALING_LLAMA3:
      return Llama3Scaling{spec.factor, spec.low_freq_factor, spec.high_freq_factor,
                           spec.original_length};
    case PHASOR_SCALING_PROPORTIONAL:
      return ProportionalScaling{spec.proportion, spec.factor};
    default:
      break;
  }
  throw Error(ErrorCode::invalid_argument,
              message(where, ": scaling must be from 0 to ", int{PHASOR_SCALING_PROPORTIONAL},
                      ", got ", spec.scaling));
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
  throw Error(ErrorCode::invalid_argument,
              message(where, ": axes must be from 0 to ", int{PHASOR_AXIAL_PER_HALF_HEAD}, ", got ",
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
  throw Error(ErrorCode::invalid_argument,
              message(where, ": xpos must be from 0 to ", int{PHASOR_XPOS_MIDDLE_CEIL}, ", got ",
                      spec.xpos));
}

}  // namespace

phasor_rope_spec default_spec() noexcept {
  phasor_rope_spec spec{};
  spec.struct_size = sizeof(spec);
  spec.layout = PHASOR_LAYOUT_UNSET;
  spec.base = encodings::RopeSpec{}.base;
  spec.factor = 1.0;
  const encodings::NtkByPartsScaling parts;
  spec.beta_0 = parts.beta_0;
  spec.beta_1 = parts.beta_1;
  spec.gamma_0 = parts.gamma_0;
  spec.gamma_1 = parts.gamma_1;
  spec.ntk_factor = parts.ntk_factor;
  spec.extrapolation_factor = parts.extrapolation_factor;
  const encodings::YarnScaling yarn;
  spec.beta_fast = yarn.beta_fast;
  spec.beta_slow = yarn.beta_slow;
  const encodings::Llama3Scaling llama3;
  spec.low_freq_factor = llama3.low_freq_factor;
  spec.high_freq_factor = llama3.high_freq_factor;
  spec.proportion = encodings::ProportionalScaling{}.proportion;
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
  rope.rotary_dim = spec.rotary_dim;
  if (rope.rotary_dim == 0 &&
      __builtin_sub_overflow(spec.head_dim, spec.rotary_offset, &rope.rotary_dim)) {
    throw Error(
        ErrorCode::invalid_argument,
        message(where, ": rotary_offset must be within head_dim, got ", spec.rotary_offset));
  }
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
    throw Error(
        ErrorCode::invalid_argument,
        message(where, ": context must be positive, or 0 where none is given, got ", context));
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
                message(where, ": layer must rotate, got a layer without rotation (",
                        selector.empty() ? "all" : selector, ")"));
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
