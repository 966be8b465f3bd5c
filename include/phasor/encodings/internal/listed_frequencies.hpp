// The frequencies of a spec as people list them.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "phasor/encodings/rope.hpp"

namespace phasor::encodings {

// resolve_frequencies(), in the order of the pairs; for images axial_frequencies().
//
// throws   as these
[[nodiscard]] inline core::Frequencies listed_frequencies(
    const RopeSpec& spec, std::optional<std::int64_t> context = std::nullopt) {
  return std::holds_alternative<AxialAxes>(spec.axes) ? axial_frequencies(spec, context)
                                                      : resolve_frequencies(spec, context);
}

}  // namespace phasor::encodings
