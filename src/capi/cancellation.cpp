#include "phasor/core/cancellation.hpp"

#include "capi/edge.hpp"
#include "phasor/phasor.h"

struct phasor_cancellation {
  phasor::core::Cancellation request;
};

namespace phasor::capi {
namespace {

thread_local const phasor_cancellation* watched = nullptr;

}  // namespace

const core::Cancellation* thread_cancellation() noexcept {
  return watched == nullptr ? nullptr : &watched->request;
}

}  // namespace phasor::capi

extern "C" {

phasor_status phasor_cancellation_create(phasor_cancellation** out) {
  return phasor::capi::guarded([&] {
    phasor::capi::need(out, "phasor_cancellation_create", "out");
    *out = new phasor_cancellation;
  });
}

void phasor_cancellation_request(phasor_cancellation* cancellation) {
  if (cancellation != nullptr) cancellation->request.request();
}

void phasor_cancellation_reset(phasor_cancellation* cancellation) {
  if (cancellation != nullptr) cancellation->request.reset();
}

void phasor_cancellation_destroy(phasor_cancellation* cancellation) {
  if (phasor::capi::watched == cancellation) phasor::capi::watched = nullptr;
  delete cancellation;
}

void phasor_set_cancellation(const phasor_cancellation* cancellation) {
  phasor::capi::watched = cancellation;
}

}  // extern "C"
