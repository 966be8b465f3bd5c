// The command as it was given, to be shown again.
#pragma once

#include <string>

namespace phasor::tools {

// `argv` must live as long as the process.
void remember_command(int argc, const char* const* argv) noexcept;
// Its words, quoted for a shell; empty if it was not remembered.
[[nodiscard]] std::string given_command();

}  // namespace phasor::tools
