// What a call refuses with.
#pragma once

#include <string>

#include "phasor/core/error.hpp"

namespace phasor::encodings::testing {

struct Refusal {
  ErrorCode code = ErrorCode::internal;
  std::string text = "nothing was refused";
};

template <class Call>
[[nodiscard]] Refusal refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

}  // namespace phasor::encodings::testing
