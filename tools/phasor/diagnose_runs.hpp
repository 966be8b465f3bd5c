// phasor diagnose --runs: two engines' dumps, compared layer by layer.
#pragma once

#include <cstdint>
#include <string>

#include "spec.hpp"

namespace phasor::tools {

enum class RunsPage : std::uint8_t { text, json };

// `a` and `b` are files of arrays or folders of them. Returns the exit code: 1 when they part.
//
// throws   Error: a file that cannot be read, no name in both
[[nodiscard]] int run_diagnose_runs(const std::string& a, const std::string& b,
                                    const SpecOptions& spec, RunsPage page);

}  // namespace phasor::tools
