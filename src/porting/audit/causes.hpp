// What might have made a table wrong: each cause predicts a whole table.
#pragma once

#include <cstdint>
#include <optional>

#include "phasor/porting/audit.hpp"

namespace phasor::porting {

struct CauseFindings {
  std::optional<Cause> cause, runner_up;
};

// Tries every cause that is known on some of the rows, and names the one that comes much nearer to
// the table than the exact values do; of two that come equally near, the simpler.
[[nodiscard]] CauseFindings find_cause(const encodings::RopeSpec& spec, const ForeignTable& table,
                                       const core::Frequencies& exact,
                                       std::optional<std::int64_t> context);

}  // namespace phasor::porting
