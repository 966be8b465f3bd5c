// The numbers in which two readings of a rotation differ.
#pragma once

#include "phasor/io/internal/json.hpp"
#include "phasor/porting/config_reports.hpp"

namespace phasor::porting {

[[nodiscard]] EngineComparison compare_views(const EngineView& first, const EngineView& second,
                                             const RunState& state);
[[nodiscard]] io::Json comparison_json(const EngineComparison& compared);

}  // namespace phasor::porting
