// The verbs of the command line: each in its own file, which parses, calls the library and prints.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace phasor::tools {

// What the verb that was asked for does, run once the whole command line has parsed. Returns the
// exit code; an Error thrown becomes one line on stderr and exit_code::wrong.
using Action = std::function<int()>;

namespace exit_code {
inline constexpr int done = 0;
inline constexpr int difference = 1;  // the check that was asked for found one
inline constexpr int wrong = 2;       // the request or the input
}  // namespace exit_code

void add_freqs(CLI::App& app, Action& action);
void add_table(CLI::App& app, Action& action);
void add_rotate(CLI::App& app, Action& action);
void add_attend(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_audit(CLI::App& app, Action& action);
void add_diagnose(CLI::App& app, Action& action);
void add_diff(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_fill(CLI::App& app, Action& action);
void add_logits(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_conform(CLI::App& app, Action& action);
void add_demo(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);

}  // namespace phasor::tools
