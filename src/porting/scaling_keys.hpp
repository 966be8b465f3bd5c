// A scaling written back under the names that configs use.
#pragma once

#include <cstdint>

#include "phasor/encodings/rope_scaling.hpp"
#include "phasor/io/json.hpp"

namespace phasor::porting {

enum class DefaultKeys : std::uint8_t {
  leave_out,  // what a config has to say and no more
  write,      // every parameter that the formula reads
};

// Adds the keys of the scaling to an object; the type's own name is left to the caller.
void write_scaling_keys(const encodings::RopeScaling& scaling, DefaultKeys defaults, io::Json& to);

}  // namespace phasor::porting
