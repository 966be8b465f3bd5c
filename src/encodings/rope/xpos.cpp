#include "encodings/rope/xpos.hpp"

#include <array>
#include <cmath>

#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {

std::span<const Field<Xpos>> xpos_fields() noexcept {
  static constexpr std::array kFields = {
      member_field<&Xpos::scale_base>("scale_base", FieldRange::positive,
                                      WhenMissing::state_default,
                                      "Positions over which the factor zeta_i applies once."),
      member_field<&Xpos::gamma>("gamma", FieldRange::positive, WhenMissing::state_default,
                                 "Smoothing: zeta_i = (2i/dim + gamma) / (1 + gamma)."),
      member_field<&Xpos::centre>(
          "centre", FieldRange::finite, WhenMissing::state_default,
          "The position where the factor is 1; or middle_floor or middle_ceil of the context."),
  };
  return kFields;
}

std::span<const std::string_view> names_of_xpos_centres() noexcept {
  static constexpr std::array<std::string_view, 3> kNames = {"fixed", "middle_floor",
                                                             "middle_ceil"};
  return kNames;
}

void check(const Xpos& xpos) { check_ranges<Xpos>("xpos", xpos_fields(), xpos); }

core::Growth growth_of(const Xpos& xpos, std::int64_t rotary_dim,
                       std::optional<std::int64_t> context) {
  core::Growth growth;
  const DoubleDouble gamma = xpos.gamma;
  for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
    const DoubleDouble share =
        DoubleDouble(static_cast<double>(2 * i)) / DoubleDouble(static_cast<double>(rotary_dim));
    const DoubleDouble zeta = (share + gamma) / (DoubleDouble(1.0) + gamma);
    growth.rates.push_back(static_cast<double>(natural_log(zeta) / DoubleDouble(xpos.scale_base)));
  }
  growth.centre = xpos.centre;
  if (xpos.policy != Xpos::Centre::fixed) {
    if (!context) {
      refuse(message("rope: xpos with centre ",
                     names_of_xpos_centres()[static_cast<std::size_t>(xpos.policy)],
                     " needs a context length"));
    }
    const std::int64_t middle = (*context + (xpos.policy == Xpos::Centre::middle_ceil ? 1 : 0)) / 2;
    growth.centre = static_cast<double>(middle);
  }
  return growth;
}

}  // namespace phasor::encodings
