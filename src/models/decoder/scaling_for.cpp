#include "models/decoder/scaling_for.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include "phasor/encodings/rope.hpp"
#include "phasor/models/internal/perplexity.hpp"

namespace phasor::models {
namespace {

[[nodiscard]] encodings::RopeScaling pinned_longrope(encodings::LongRopeScaling scaling,
                                                     std::int64_t context) {
  // The amplitude also depends on the original length, which is changed below.
  encodings::RopeSpec spec;
  spec.rotary_dim = 2 * static_cast<std::int64_t>(scaling.long_factor.size());
  spec.head_dim = spec.rotary_dim;
  spec.scaling = scaling;
  const double amplitude = encodings::resolve_frequencies(spec, context).amplitude();
  if (context > scaling.original_length) {
    scaling.short_factor = scaling.long_factor;
  } else {
    scaling.long_factor = scaling.short_factor;
  }
  scaling.short_mscale = scaling.long_mscale = std::nullopt;
  scaling.attention_factor = amplitude;
  // So that no sequence up to `context` selects the other list.
  scaling.original_length = std::max(scaling.original_length, context);
  return scaling;
}

}  // namespace

encodings::RopeScaling pinned(const encodings::RopeScaling& scaling, std::int64_t context) {
  if (!encodings::depends_on_context(scaling)) return scaling;
  if (const auto* longrope = std::get_if<encodings::LongRopeScaling>(&scaling))
    return pinned_longrope(*longrope, context);
  // base' = base alpha^(dim / (dim - 2)), alpha = factor L / max - (factor - 1), L = max(context, max)
  encodings::DynamicScaling dynamic = std::get<encodings::DynamicScaling>(scaling);
  const auto trained = static_cast<double>(dynamic.original_length);
  const double length = std::max(static_cast<double>(context), trained);
  dynamic.alpha = dynamic.factor * length / trained - (dynamic.factor - 1.0);
  dynamic.original_length = 0;
  return dynamic;
}

Result<std::optional<encodings::RopeScaling>> scaling_for(
    std::string_view name, std::int64_t trained, std::int64_t context,
    const std::optional<encodings::LongRopeScaling>& longrope) {
  using Answer = std::optional<encodings::RopeScaling>;
  if (name == "none") return Answer(std::nullopt);
  const bool needs_length =
      name == "linear" || name == "ntk" || name == "dynamic" || name == "yarn";
  if (!needs_length && name != "longrope") {
    return Error(ErrorCode::invalid_argument,
                 message("scaling: unknown name \"", name,
                         "\"; expected none, linear, ntk, dynamic, yarn or longrope"));
  }
  if (context < 1) {
    return Error(ErrorCode::invalid_argument,
                 message("scaling: the context must be at least 1, got ", context));
  }
  if (name == "longrope") {
    if (!longrope) {
      return Error(ErrorCode::invalid_argument,
                   "scaling: longrope needs its lists of factors, and the config has none");
    }
    return Answer(*longrope);
  }
  if (trained < 1) {
    return Error(
        ErrorCode::invalid_argument,
        message("scaling: ", name, " needs the trained length, which is missing in the config"));
  }
  const double factor = std::max(1.0, static_cast<double>(context) / static_cast<double>(trained));
  if (name == "linear") return Answer(encodings::LinearScaling{factor});
  // "NTK-aware": base' = base factor^(dim / (dim - 2)), which is dynamic scaling with a fixed alpha.
  if (name == "ntk") return Answer(encodings::DynamicScaling{1.0, factor, 0});
  if (name == "yarn") {
    encodings::YarnScaling yarn;
    yarn.factor = factor;
    yarn.original_length = trained;
    return Answer(yarn);
  }
  return Answer(encodings::DynamicScaling{factor, std::nullopt, trained});
}

}  // namespace phasor::models
