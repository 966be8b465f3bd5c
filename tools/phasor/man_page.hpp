// Man pages, from the description of verbs and flags.
#pragma once

#include <string>

#include "command_line.hpp"

namespace phasor::tools {

// phasor(1): the verbs, and what holds for all of them.
[[nodiscard]] std::string man_page(const CommandLine& line);
// phasor-VERB(1): flags, and the sections of the verb's footer.
[[nodiscard]] std::string man_page(const CommandLine& line, const Verb& verb);

}  // namespace phasor::tools
