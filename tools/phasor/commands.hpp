// The verbs of the command line, one file each: flags, a call into the library, output.
#pragma once

#include "command_line.hpp"

namespace phasor::tools {

// The name, the text of the program's help and all verbs. `line` must stay where it is.
void add_every_verb(CommandLine& line);

void add_freqs(CommandLine& line);
void add_table(CommandLine& line);
void add_rotate(CommandLine& line);
void add_attend(CommandLine& line);
void add_explain(CommandLine& line);
void add_audit(CommandLine& line);
void add_diagnose(CommandLine& line);
void add_diff(CommandLine& line);
void add_plan(CommandLine& line);
void add_convert(CommandLine& line);
void add_fill(CommandLine& line);
void add_lab(CommandLine& line);
void add_logits(CommandLine& line);
void add_eval(CommandLine& line);
void add_run(CommandLine& line);
void add_tokenize(CommandLine& line);
void add_inspect(CommandLine& line);
void add_explore(CommandLine& line);
void add_conform(CommandLine& line);
void add_demo(CommandLine& line);
void add_bench(CommandLine& line);
// help, completion and man: last, since they list the others. `line` must stay where it is.
void add_about(CommandLine& line);

}  // namespace phasor::tools
