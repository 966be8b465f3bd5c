// Writes a scaling as config keys.
#pragma once

#include <cstdint>

#include "phasor/porting/config_reports.hpp"

namespace phasor::porting {

// Fills method.rope_parameters and method.rope_scaling for the group of layers `group`, and checks
// each: merged into the config and parsed again it must give method's frequencies and amplitude and
// not change the other layers.
void write_snippets(const ReadableConfig& config, std::size_t group, std::int64_t trained,
                    std::int64_t to, PlanMethod& method);

}  // namespace phasor::porting
