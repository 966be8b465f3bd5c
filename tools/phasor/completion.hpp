// Completion scripts of shells, from the description of verbs and flags.
#pragma once

#include <string>

#include "command_line.hpp"

namespace phasor::tools {

// Each completes verbs, flags of the verb, choices of a flag (also within a list "a,b"), folders and
// files; numbers and free text are left to the user.
[[nodiscard]] std::string bash_completion(const CommandLine& line);
[[nodiscard]] std::string zsh_completion(const CommandLine& line);
[[nodiscard]] std::string fish_completion(const CommandLine& line);

}  // namespace phasor::tools
