#include "command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

#include "phasor/core/error.hpp"

namespace phasor::tools {

Flag& Flag::value(std::string_view name) {
  value_name = name;
  return *this;
}

Flag& Flag::required() {
  is_required = true;
  return *this;
}

Flag& Flag::show_default() {
  shows_default = true;
  return *this;
}

Flag& Flag::one_of(std::initializer_list<std::string_view> names_of_choices) {
  choices.assign(names_of_choices.begin(), names_of_choices.end());
  return *this;
}

Flag& Flag::at_least(std::int64_t least) {
  bounds = Bounds{.least = least, .most = std::nullopt};
  return *this;
}

Flag& Flag::within(std::int64_t least, std::int64_t most) {
  bounds = Bounds{.least = least, .most = most};
  return *this;
}

Flag& Flag::separated_by(char character) {
  delimiter = character;
  return *this;
}

Flag& Flag::excludes(std::string_view name) {
  excluded.emplace_back(name);
  return *this;
}

Flag& Flag::needs(std::string_view name) {
  needed.emplace_back(name);
  return *this;
}

Flag& Verb::flag(std::string_view flag_names, Target target, std::string_view help) {
  Flag& added = flags.emplace_back();
  added.names = flag_names;
  added.target = target;
  added.help = help;
  return added;
}

Flag& Verb::argument(std::string_view argument_name, Target target, std::string_view help) {
  return flag(argument_name, target, help);
}

Verb& CommandLine::verb(std::string_view verb_name, std::string_view verb_summary) {
  Verb& added = verbs.emplace_back();
  added.name = verb_name;
  added.summary = verb_summary;
  return added;
}

namespace {

// CLI11's own checks of a lower bound name the largest double in their message.
CLI::Validator at_least(std::int64_t least) {
  const auto check = [least](const std::string& text) -> std::string {
    std::int64_t value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= least) return {};
    return message("must be an integer of at least ", least, ", got ", text);
  };
  return {check, "INT >= " + std::to_string(least)};
}

CLI::Option* add_flag(CLI::App& app, const Flag& flag) {
  const auto add = [&]<class Value>(Value* place) {
    if constexpr (std::is_same_v<Value, bool>) {
      return app.add_flag(flag.names, *place, flag.help);
    } else {
      return app.add_option(flag.names, *place, flag.help);
    }
  };
  CLI::Option* const option = std::visit(add, flag.target);
  if (!flag.value_name.empty()) option->type_name(flag.value_name);
  if (flag.delimiter != '\0') option->delimiter(flag.delimiter);
  if (!flag.choices.empty()) option->check(CLI::IsMember(flag.choices));
  if (flag.bounds) {
    option->check(flag.bounds->most ? CLI::Range(flag.bounds->least, *flag.bounds->most)
                                    : at_least(flag.bounds->least));
  }
  if (flag.is_required) option->required();
  if (flag.shows_default) option->capture_default_str();
  return option;
}

void add_verb(CLI::App& app, const Verb& verb, const Verb*& asked_for) {
  CLI::App* const parser = app.add_subcommand(verb.name, verb.summary);
  for (const Flag& flag : verb.flags) add_flag(*parser, flag);
  // Only now: a flag may name a later one.
  for (const Flag& flag : verb.flags) {
    const auto option_of = [&](const std::string& names) {
      return parser->get_option(names.substr(0, names.find(',')));
    };
    for (const std::string& other : flag.excluded) {
      option_of(flag.names)->excludes(option_of(other));
    }
    for (const std::string& other : flag.needed) option_of(flag.names)->needs(option_of(other));
  }
  parser->footer(verb.footer);
  parser->callback([&asked_for, &verb] { asked_for = &verb; });
}

std::string verb_list(const CommandLine& line) {
  std::string list;
  for (const Verb& verb : line.verbs) list += (list.empty() ? "" : ", ") + verb.name;
  return list;
}

bool has_verb(const CommandLine& line, std::string_view name) {
  for (const Verb& verb : line.verbs) {
    if (verb.name == name) return true;
  }
  return false;
}

// The first line alone must tell it, so line breaks inside a message become spaces.
int refuse(const CommandLine& line, std::string_view verb, std::string_view text) {
  // Library messages open with the function's name; said twice it would only be noise.
  const std::string repeated = std::string(verb) + ": ";
  if (!verb.empty() && text.substr(0, repeated.size()) == repeated) {
    text.remove_prefix(repeated.size());
  }
  std::string one_line(text);
  for (char& character : one_line) {
    if (character == '\n' || character == '\r') character = ' ';
  }
  fmt::print(stderr, "{}{}{}: {}\n", line.name, verb.empty() ? "" : " ", verb, one_line);
  return exit_code::wrong;
}

int run_action(const CommandLine& line, const std::string& verb,
               const std::function<int()>& action) {
  int code = exit_code::wrong;
  try {
    code = action();
  } catch (const std::bad_alloc&) {
    return refuse(line, verb, "the work must fit in memory, got a request for more than there is");
  } catch (const std::exception& error) {
    return refuse(line, verb, error.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return refuse(line, verb, "stdout must take the answer, got a write error");
  }
  return code;
}

}  // namespace

int run(const CommandLine& line, int argc, const char* const* argv) {
  CLI::App app{line.summary, line.name};
  const Verb* asked_for = nullptr;
  try {
    if (!line.version.empty()) app.set_version_flag("--version", line.version);
    app.footer(line.footer);
    for (const Verb& verb : line.verbs) add_verb(app, verb, asked_for);
  } catch (const CLI::Error& error) {
    throw Error(ErrorCode::internal, message("command line: ", error.what()));
  }

  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty()) {
    return refuse(
        line, "",
        message("a verb must be given, one of ", verb_list(line), "; see ", line.name, " --help"));
  }
  if (first.front() != '-' && !has_verb(line, first)) {
    return refuse(line, "",
                  message("the verb must be one of ", verb_list(line), ", got '", first, "'"));
  }
  const std::string verb = has_verb(line, first) ? first : "";
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);  // --help, --version
  } catch (const CLI::ParseError& error) {
    return refuse(
        line, verb,
        message(error.what(), "; see ", line.name, " ", verb, verb.empty() ? "" : " ", "--help"));
  }
  if (asked_for == nullptr) {  // `phasor --`
    return refuse(
        line, "",
        message("a verb must be given, one of ", verb_list(line), "; see ", line.name, " --help"));
  }
  return run_action(line, verb, asked_for->action);
}

}  // namespace phasor::tools
