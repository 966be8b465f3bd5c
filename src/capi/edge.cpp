#include "capi/edge.hpp"

#include <string>

#include "phasor/core/internal/per_thread.hpp"

namespace phasor::capi {
namespace {

struct LastError {
  std::string text;
};
thread_local const char* last_error = "";  // static text, or that of LastError

}  // namespace

const char* last_error_text() noexcept { return last_error; }

phasor_status fail(phasor_status status, const char* text) noexcept {
  last_error = "phasor: out of memory for the text of this error";
  auto* const own = core::per_thread<LastError>();
  if (own == nullptr) return status;
  try {
    own->text = text;
    last_error = own->text.c_str();
  } catch (...) {  // the text above
  }
  return status;
}

phasor_status out_of_memory() noexcept {
  last_error = "phasor: out of memory";
  return PHASOR_INTERNAL;
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
