// What `phasor diagnose` prints about a rotation, as text; the explorer page shows the same.
#pragma once

#include <string>

#include "phasor/porting/diagnose.hpp"

namespace phasor::tools {

// `check` is null without a config.
[[nodiscard]] std::string diagnose_page(const porting::Diagnosis& found,
                                        const porting::ConfigCheck* check);

}  // namespace phasor::tools
