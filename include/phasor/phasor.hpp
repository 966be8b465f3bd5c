// All of Phasor's everyday names, in namespace phasor. Smaller parts: rope.hpp (rotation), attention.hpp (rotation and
// attention), models.hpp (everything).
#pragma once

#include "phasor/models.hpp"  // IWYU pragma: export
