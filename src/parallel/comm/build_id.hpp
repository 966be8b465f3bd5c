// Which build of Phasor this process runs.
#pragma once

#include <string>

namespace phasor::parallel {

// The linker's build id of the program or library that holds this code, in hexadecimal: two builds differ in
// it whenever their code does. Empty if it was linked without one.
[[nodiscard]] std::string build_id();

}  // namespace phasor::parallel
