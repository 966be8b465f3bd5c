// The check of an option.
#pragma once

#include <string_view>

#include "phasor/core/error.hpp"

namespace phasor::models {

// throws   Error(invalid_argument): `what, got value`, unless `holds`
template <class Number>
void require_option(bool holds, std::string_view what, Number value) {
  if (!holds) refuse(message(what, ", got ", value));
}

}  // namespace phasor::models
