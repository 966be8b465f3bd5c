// phasor VERB ...: exit 0 = done, 1 = the check found a difference, 2 = the request or the input is
// wrong.
#include <fmt/format.h>

#include <cstdio>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "commands.hpp"
#include "phasor/core/error.hpp"

namespace {

using phasor::tools::Action;
namespace exit_code = phasor::tools::exit_code;

std::string verb_list(const CLI::App& app) {
  std::string list;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    list += (list.empty() ? "" : ", ") + verb->get_name();
  }
  return list;
}

bool has_verb(const CLI::App& app, const std::string& name) {
  return !app.get_subcommands([&](const CLI::App* verb) { return verb->get_name() == name; })
              .empty();
}

// The first line alone must tell it, so line breaks inside a message become spaces.
int refuse(std::string_view verb, std::string_view text) {
  // Library messages open with the function's name; said twice it would only be noise.
  const std::string repeated = std::string(verb) + ": ";
  if (!verb.empty() && text.substr(0, repeated.size()) == repeated) {
    text.remove_prefix(repeated.size());
  }
  std::string line(text);
  for (char& character : line) {
    if (character == '\n' || character == '\r') character = ' ';
  }
  fmt::print(stderr, "phasor{}{}: {}\n", verb.empty() ? "" : " ", verb, line);
  return exit_code::wrong;
}

int run(const std::string& verb, const Action& action) {
  int code = exit_code::wrong;
  try {
    code = action();
  } catch (const std::bad_alloc&) {
    return refuse(verb, "the work must fit in memory, got a request for more than there is");
  } catch (const std::exception& error) {
    return refuse(verb, error.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return refuse(verb, "stdout must take the answer, got a write error");
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace phasor::tools;
  CLI::App app{"phasor: position in transformers, rotary position embedding first.", "phasor"};
  app.set_version_flag("--version", "phasor " PHASOR_VERSION);
  app.footer(
      "`phasor VERB --help` explains each verb with its shapes and an example.\n"
      "Exit codes: 0 done, 1 the check found a difference, 2 the request or the input is wrong.");
  Action action;
  add_demo(app, action);
  add_freqs(app, action);
  add_table(app, action);
  add_rotate(app, action);
  add_attend(app, action);
  add_explain(app, action);
  add_audit(app, action);
  add_diagnose(app, action);
  add_diff(app, action);
  add_plan(app, action);
  add_convert(app, action);
  add_fill(app, action);
  add_logits(app, action);
  add_eval(app, action);
  add_run(app, action);
  add_conform(app, action);
  add_bench(app, action);

  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty()) {
    return refuse("", "a verb must be given, one of " + verb_list(app) + "; see phasor --help");
  }
  if (first.front() != '-' && !has_verb(app, first)) {
    return refuse("", "the verb must be one of " + verb_list(app) + ", got '" + first + "'");
  }
  const std::string verb = has_verb(app, first) ? first : "";
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);  // --help, --version
  } catch (const CLI::ParseError& error) {
    return refuse(verb, std::string(error.what()) + "; see phasor " + verb +
                            (verb.empty() ? "--help" : " --help"));
  }
  return run(verb, action);
}
