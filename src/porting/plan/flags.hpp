// How engines are started with a method of a plan.
#pragma once

#include "phasor/porting/config_reports.hpp"

namespace phasor::porting {

// Fills the method's flags; the snippets must have been written.
void write_flags(const ReadableConfig& config, std::int64_t to, PlanMethod& method);

}  // namespace phasor::porting
