// The opaque handles that several files of the C API use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "phasor/config/encoding.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/phasor.h"

struct phasor_rope {
  phasor::core::Rotary rotary;
};
struct phasor_table {
  phasor::core::CosSinTable table;
};
struct phasor_encoding {
  phasor::config::LoadedEncoding loaded;
};
struct phasor_text {
  std::string text;
};
struct phasor_ids {
  std::vector<std::int64_t> ids;
};

namespace phasor::capi {

// Stores a new handle in *out; an exception leaves *out untouched.
//
// precondition  out != nullptr
template <class Handle, class Value>
void hand_over(Value value, Handle** out) {
  *out = std::make_unique<Handle>(Handle{std::move(value)}).release();
}

}  // namespace phasor::capi
