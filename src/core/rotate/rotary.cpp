#include "phasor/core/rotate.hpp"

#include <cmath>

#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/window.hpp"

namespace phasor::core {

namespace {
constexpr EnumNames<PairLayout::interleaved_to_half> kPairLayouts("interleaved", "half",
                                                                  "interleaved_to_half");
}  // namespace

std::string_view name_of(PairLayout layout) noexcept { return kPairLayouts[layout]; }

std::optional<PairLayout> pair_layout_of(std::string_view name) noexcept {
  return kPairLayouts.find(name);
}

Window window_of(const Rotary& rotary) noexcept {
  return {rotary.layout, rotary.head_dim, rotary.offset, rotary.blocks, rotary.frequencies.pairs()};
}

void check_window(const Window& window) {
  const std::int64_t rotary_dim = window.rotary_dim();
  if (window.offset < 0 || window.head_dim < rotary_dim ||
      window.offset > window.head_dim - rotary_dim) {
    refuse(ErrorCode::shape_mismatch,
           message("rotate: rotary_dim ", rotary_dim, " at offset ", window.offset,
                   " does not fit head_dim ", window.head_dim));
  }
  if (window.blocks != 1 && (window.blocks < 1 || window.pairs % window.blocks != 0)) {
    refuse(message("rotate: blocks must divide the ", window.pairs, " pairs, got ", window.blocks));
  }
}

void validate(const Rotary& rotary) {
  check_window(window_of(rotary));
  if (rotary.growth) {
    if (static_cast<std::int64_t>(rotary.growth->rates.size()) != rotary.frequencies.pairs()) {
      refuse(ErrorCode::shape_mismatch, message("rotate: growth must have one rate per pair, got ",
                                                rotary.growth->rates.size(), " rates for ",
                                                rotary.frequencies.pairs(), " pairs"));
    }
    bool finite = std::isfinite(rotary.growth->centre);
    for (const double rate : rotary.growth->rates) finite = finite && std::isfinite(rate);
    if (!finite) {
      refuse("rotate: growth rates and centre must be finite");
    }
  }
}

}  // namespace phasor::core
