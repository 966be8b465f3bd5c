// Candidate causes of a wrong table: each predicts a whole table.
#pragma once

#include <cstdint>
#include <optional>

#include "phasor/porting/diagnose.hpp"

namespace phasor::porting {

struct CauseFindings {
  std::optional<Cause> cause, runner_up;
};

// Compares every known cause with the table on some of the rows and returns the one that is much
// closer to it than the exact values; of equally close causes, the simplest.
[[nodiscard]] CauseFindings find_cause(const encodings::RopeSpec& spec, const ForeignTable& table,
                                       const core::Frequencies& exact,
                                       std::optional<std::int64_t> context);

}  // namespace phasor::porting
