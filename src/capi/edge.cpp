#include "capi/edge.hpp"

#include <string>

namespace phasor::capi {
namespace {

thread_local std::string last_error;

}  // namespace

const char* last_error_text() noexcept { return last_error.c_str(); }

phasor_status fail(phasor_status status, const char* text) noexcept {
  try {
    last_error = text;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

phasor_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return PHASOR_INVALID_ARGUMENT;
    case ErrorCode::shape_mismatch:
      return PHASOR_SHAPE_MISMATCH;
    case ErrorCode::out_of_range:
      return PHASOR_OUT_OF_RANGE;
    case ErrorCode::unsupported:
      return PHASOR_UNSUPPORTED;
    case ErrorCode::io:
      return PHASOR_IO;
    case ErrorCode::cancelled:
      return PHASOR_CANCELLED;
    case ErrorCode::internal:
      break;
  }
  return PHASOR_INTERNAL;
}

}  // namespace phasor::capi

const char* phasor_last_error(void) { return phasor::capi::last_error_text(); }
