// Specs that several tests start from.
#pragma once

#include <cstdint>
#include <utility>

#include "phasor/encodings/rope.hpp"

namespace phasor::encodings::testing {

[[nodiscard]] inline RopeSpec spec_of(std::int64_t head_dim, double base,
                                      RopeScaling scaling = DefaultScaling{}) {
  RopeSpec spec;
  spec.head_dim = head_dim;
  spec.rotary_dim = head_dim;
  spec.base = base;
  spec.layout = core::PairLayout::half;
  spec.scaling = std::move(scaling);
  return spec;
}

}  // namespace phasor::encodings::testing
