// phasor diagnose --weights: in which order the q and k weights of a checkpoint are.
#pragma once

#include <cstdint>
#include <string>

namespace phasor::tools {

enum class WeightsPage : std::uint8_t { text, json };

// Prints the answer for a folder or a GGUF file and returns the exit code.
//
// throws   Error: the path is no checkpoint that can be read
[[nodiscard]] int run_diagnose_weights(const std::string& path, WeightsPage page);

}  // namespace phasor::tools
