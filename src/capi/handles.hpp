// What stands behind the opaque handles that several files of the C API read.
#pragma once

#include <memory>
#include <utility>

#include "phasor/core/rotary.hpp"
#include "phasor/core/table.hpp"
#include "phasor/phasor.h"

struct phasor_rope {
  phasor::core::Rotary rotary;
};
struct phasor_table {
  phasor::core::CosSinTable table;
};

namespace phasor::capi {

// Gives the caller a handle of its own. precondition  out != nullptr
template <class Handle, class Value>
void hand_over(Value value, Handle** out) {
  *out = std::make_unique<Handle>(Handle{std::move(value)}).release();
}

}  // namespace phasor::capi
