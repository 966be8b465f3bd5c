#include "phasor/core/rotary.hpp"

#include <cmath>

namespace phasor::core {

std::string_view name_of(PairLayout layout) noexcept {
  switch (layout) {
    case PairLayout::interleaved:
      return "interleaved";
    case PairLayout::half:
      return "half";
    case PairLayout::interleaved_to_half:
      return "interleaved_to_half";
  }
  return "unknown";
}

std::optional<PairLayout> pair_layout_of(std::string_view name) noexcept {
  for (const PairLayout layout :
       {PairLayout::interleaved, PairLayout::half, PairLayout::interleaved_to_half}) {
    if (name == name_of(layout)) return layout;
  }
  return std::nullopt;
}

void validate(const Rotary& rotary) {
  const std::int64_t rotary_dim = rotary.rotary_dim();
  if (rotary.offset < 0 || rotary.head_dim < rotary_dim ||
      rotary.offset > rotary.head_dim - rotary_dim) {
    throw Error(ErrorCode::shape_mismatch,
                message("rotate: rotary_dim ", rotary_dim, " at offset ", rotary.offset,
                        " must lie inside head_dim, got head_dim ", rotary.head_dim));
  }
  if (rotary.blocks != 1 &&
      (rotary.blocks < 1 || rotary.frequencies.pairs() % rotary.blocks != 0)) {
    throw Error(ErrorCode::invalid_argument,
                message("rotate: blocks must divide the ", rotary.frequencies.pairs(),
                        " pairs, got ", rotary.blocks));
  }
  if (rotary.growth) {
    if (static_cast<std::int64_t>(rotary.growth->rates.size()) != rotary.frequencies.pairs()) {
      throw Error(
          ErrorCode::shape_mismatch,
          message("rotate: growth must have one rate per pair, got ", rotary.growth->rates.size(),
                  " rates for ", rotary.frequencies.pairs(), " pairs"));
    }
    bool finite = std::isfinite(rotary.growth->centre);
    for (const double rate : rotary.growth->rates) finite = finite && std::isfinite(rate);
    if (!finite) {
      throw Error(ErrorCode::invalid_argument,
                  "rotate: growth must be finite, got a NaN or infinity");
    }
  }
}

}  // namespace phasor::core
