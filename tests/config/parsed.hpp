// A config of a test, read.
#pragma once

#include <string>

#include "phasor/config/config.hpp"

namespace phasor::config::testing {

inline ModelConfig parsed(const std::string& text) {
  return parse_config(text, "test").value_or_throw();
}

}  // namespace phasor::config::testing
