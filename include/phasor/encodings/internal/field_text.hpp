// The fields of a RoPE spec in words: for docs/rope_spec.md and Python's help().
#pragma once

#include <string>

#include "phasor/encodings/internal/fields.hpp"

namespace phasor::encodings {

// "integer, > 0", or the choices: "`half`, `interleaved`".
template <class Owner>  // RopeSpec, Xpos, RopeScaling
[[nodiscard]] std::string type_text(const Field<Owner>& field);

// What applies if a spec does not give the field: "required", the default of `standard`, "not used",
// or the other key that it comes from.
template <class Owner>
[[nodiscard]] std::string missing_text(const Field<Owner>& field, const Owner& standard);

}  // namespace phasor::encodings
