// phasor diagnose --weights: infers the pair layout of a checkpoint's q and k weights.
#pragma once

#include <cstdint>
#include <string>

namespace phasor::tools {

enum class WeightsPage : std::uint8_t { text, json };

// Prints the answer for a folder or a GGUF file and returns the exit code.
//
// throws   Error: the checkpoint cannot be read
[[nodiscard]] int run_diagnose_weights(const std::string& path, WeightsPage page);

}  // namespace phasor::tools
