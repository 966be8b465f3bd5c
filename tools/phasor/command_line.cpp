#include "command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <concepts>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <set>
#include <utility>

#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/core/internal/visible_text.hpp"
#include "streams.hpp"

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

template <class Target>
struct ValueOf {
  using type = Target;
};
template <class Element>
struct ValueOf<std::optional<Element>> {
  using type = Element;
};
template <class Element>
struct ValueOf<std::vector<Element>> {
  using type = Element;
};

// The whole text as one number, in decimal; a leading + is allowed.
template <class Number>
std::errc read_number(std::string_view text, Number& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return end == text.data() + text.size() ? status : std::errc::invalid_argument;
}

// CLI11 reads 010 as eight and lets numbers that do not fit the type overflow.
template <std::integral Whole>
CLI::Validator whole_number(const std::optional<Bounds>& bounds) {
  using Limits = std::numeric_limits<Whole>;
  const Whole least = bounds ? static_cast<Whole>(bounds->least) : Limits::min();
  const Whole most = bounds && bounds->most ? static_cast<Whole>(*bounds->most) : Limits::max();
  const auto check = [=](std::string& text) -> std::string {
    Whole value = 0;
    const std::errc status = read_number(text, value);
    if (status == std::errc{} && value >= least && value <= most) {
      text = std::to_string(value);
      return {};
    }
    const bool overflows = status == std::errc::result_out_of_range;
    const bool above = !text.starts_with('-') && (overflows || value > most);
    if (above || (overflows && !bounds) || (bounds && bounds->most))
      return message("must be an integer from ", least, " to ", most, ", got ", text);
    if (bounds || least == 0)
      return message("must be an integer of at least ", least, ", got ", text);
    return message("must be an integer, got ", text);
  };
  if (!bounds) return {check, ""};
  return {check, bounds->most ? fmt::format("INT in [{} - {}]", least, most)
                              : fmt::format("INT >= {}", least)};
}

CLI::Validator real_number() {
  const auto check = [](const std::string& text) -> std::string {
    double value = 0.0;
    const std::errc status = read_number(text, value);
    if (status == std::errc{}) return {};
    return message("must be a number",
                   status == std::errc::invalid_argument ? "" : " within +-1e308", ", got ", text);
  };
  return {check, ""};
}

CLI::Validator member_of(const std::vector<std::string>& choices) {
  const auto check = [choices](const std::string& text) -> std::string {
    const std::vector<std::string_view> known(choices.begin(), choices.end());
    if (std::find(known.begin(), known.end(), text) != known.end()) return {};
    return message("must be ", core::list_text(known), ", got ", text,
                   core::did_you_mean(text, known));
  };
  return {check, fmt::format("{{{}}}", fmt::join(choices, ","))};
}

CLI::Option* add_flag(CLI::App& app, const Flag& flag) {
  const auto add = [&]<class Value>(Value* place) {
    using Type = typename ValueOf<Value>::type;
    if constexpr (std::same_as<Type, bool>) {
      return app.add_flag(flag.names, *place, flag.help);
    } else {
      CLI::Option* const option = app.add_option(flag.names, *place, flag.help);
      if constexpr (std::integral<Type>) option->transform(whole_number<Type>(flag.bounds));
      if constexpr (std::same_as<Type, double>) option->check(real_number());
      return option;
    }
  };
  CLI::Option* const option = std::visit(add, flag.target);
  if (!flag.value_name.empty()) option->type_name(flag.value_name);
  if (flag.delimiter != '\0') option->delimiter(flag.delimiter);
  if (!flag.choices.empty()) option->check(member_of(flag.choices));
  if (flag.is_required) option->required();
  if (flag.shows_default) option->capture_default_str();
  return option;
}

// "-o,--output" -> "-o", "--output"
std::vector<std::string_view> names_of(const Flag& flag) {
  std::vector<std::string_view> names;
  for (std::string_view rest = flag.names; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    names.push_back(rest.substr(0, comma));
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  return names;
}

void add_flags(CLI::App& parser, const Verb& verb) {
  std::vector<std::pair<std::string_view, CLI::Option*>> options;  // by each name
  for (const Flag& flag : verb.flags) {
    CLI::Option* const option = add_flag(parser, flag);
    for (const std::string_view name : names_of(flag)) options.emplace_back(name, option);
  }
  // CLI::App::get_option() ends the program when memory runs out.
  const auto option_of = [&](std::string_view name) {
    const auto found = std::find_if(options.begin(), options.end(),
                                    [&](const auto& option) { return option.first == name; });
    if (found == options.end())
      refuse(ErrorCode::internal, message("command line: no flag is named ", name));
    return found->second;
  };
  for (const Flag& flag : verb.flags) {
    CLI::Option* const option = option_of(names_of(flag).front());
    for (const std::string& other : flag.excluded) option->excludes(option_of(other));
    for (const std::string& other : flag.needed) option->needs(option_of(other));
  }
}

// The parser of a verb alone: one with every verb asks each of them whether an argument is its name,
// in functions that end the program when memory runs out.
std::unique_ptr<CLI::App> parser_of(const CommandLine& line, const Verb& verb) {
  auto parser = std::make_unique<CLI::App>(verb.summary, line.name + " " + verb.name);
  try {
    add_flags(*parser, verb);
  } catch (const CLI::Error& error) {
    refuse(ErrorCode::internal, message("command line: ", error.what()));
  }
  parser->footer(verb.footer);
  return parser;
}

// CLI11 writes to streams, which leave out without a word what they have no memory for. Two texts
// that agree are complete.
int print_help(const CLI::App& app) {
  const std::string text = app.help();
  if (app.help() != text) throw std::bad_alloc();
  print_out("{}", text);
  return exit_code::done;
}

int print_help(const CommandLine& line) {
  CLI::App app{line.summary, line.name};
  if (!line.version.empty()) app.set_version_flag("--version", line.version);
  app.footer(line.footer);
  for (const Verb& verb : line.verbs) app.add_subcommand(verb.name, verb.summary);
  return print_help(app);
}

// Prints one line, since programs and people read the first one; line breaks become \n.
int fail(const CommandLine& line, std::string_view verb, std::string_view text) {
  // Library messages begin with the function's name, often the verb's.
  const std::string repeated = std::string(verb) + ": ";
  if (!verb.empty() && text.starts_with(repeated)) text.remove_prefix(repeated.size());
  print_err("{}{}{}: {}\n", line.name, verb.empty() ? "" : " ", verb, core::visible_text(text));
  return exit_code::wrong;
}

int run_action(const CommandLine& line, const std::string& verb,
               const std::function<int()>& action) {
  int code = exit_code::wrong;
  release_streams();
  try {
    code = action();
  } catch (const std::bad_alloc&) {
    return out_of_memory(line.name.c_str(), verb.c_str());
  } catch (const std::exception& error) {
    return fail(line, verb, error.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return fail(line, verb, message("cannot write to stdout: ", std::strerror(errno)));
  }
  return code;
}

std::vector<std::string_view> verb_names(const CommandLine& line) {
  std::vector<std::string_view> names;
  for (const Verb& verb : line.verbs) names.push_back(verb.name);
  return names;
}

bool takes_value(const Flag& flag) { return !std::holds_alternative<bool*>(flag.target); }

bool is_list(const Flag& flag) {
  return std::holds_alternative<std::vector<std::int64_t>*>(flag.target) ||
         std::holds_alternative<std::vector<std::string>*>(flag.target);
}

// What is wrong with the flags' names, before values are read: a misspelt flag is reported as such
// and not as a required one that is missing. Empty: nothing.
std::string problem_of(const Verb& verb, const std::vector<std::string_view>& words) {
  std::vector<std::string_view> known = {"-h", "--help"};
  for (const Flag& flag : verb.flags) {
    if (flag.is_argument()) continue;
    for (const std::string_view name : names_of(flag)) known.push_back(name);
  }
  std::set<const Flag*> seen;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string_view word = words[at];
    if (word == "--") break;
    const bool is_long = word.starts_with("--");
    if (!is_long && (word.size() != 2 || word[0] != '-')) continue;  // an argument, -ofile, -12
    const std::string_view name = is_long ? word.substr(0, word.find('=')) : word;
    if (name == "-h" || name == "--help") return {};
    const Flag* found = nullptr;
    for (const Flag& flag : verb.flags) {
      const std::vector<std::string_view> names = names_of(flag);
      if (std::find(names.begin(), names.end(), name) != names.end()) found = &flag;
    }
    if (found == nullptr) {
      if (!is_long && word[1] >= '0' && word[1] <= '9') continue;  // a negative number
      return message("unknown flag ", name, core::did_you_mean(name, known));
    }
    if (!takes_value(*found)) continue;
    if (!seen.insert(found).second && !is_list(*found)) return message(name, " is given twice");
    if (word.size() > name.size()) continue;  // --name=value
    if (++at == words.size()) return message(name, " needs a value");
  }
  return {};
}

// CLI11's sentence where it is plain, our own where it is not.
std::string text_of(const CLI::ParseError& error, const CLI::App& app) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extras = app.remaining(true);
    if (!extras.empty()) return message("unexpected argument \"", extras.front(), "\"");
  }
  const auto reword = [&](std::string_view from, std::string_view to) {
    const std::size_t at = text.find(from);
    if (at != std::string::npos) text.replace(at, from.size(), to);
  };
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr)
    reword(" excludes ", " cannot be combined with ");
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) reword(": must ", " must ");
  return text;
}

}  // namespace

int out_of_memory(const char* program, const char* verb) noexcept {
  std::fprintf(stderr, "%s%s%s: out of memory\n", program, *verb == '\0' ? "" : " ", verb);
  return exit_code::wrong;
}

int run(const CommandLine& line, int argc, const char* const* argv) {
  const std::vector<std::string_view> verbs = verb_names(line);
  const std::string see_help = message("; see ", line.name, " --help");
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "-h" || first == "--help") return print_help(line);
  if (first == "--version" && !line.version.empty()) {
    print_out("{}\n", line.version);
    return exit_code::done;
  }
  if (first.empty() || first == "--") {
    return fail(line, "", message("no verb given: must be ", core::list_text(verbs), see_help));
  }
  if (first.starts_with('-')) {
    return fail(line, "", message("unexpected argument \"", first, "\"", see_help));
  }
  const auto named = std::find_if(line.verbs.begin(), line.verbs.end(),
                                  [&](const Verb& verb) { return verb.name == first; });
  if (named == line.verbs.end()) {
    const std::string hint = core::did_you_mean(first, verbs);
    return fail(line, "", message("unknown verb \"", first, "\"", hint.empty() ? see_help : hint));
  }
  const std::string see_verb = message("; see ", line.name, " ", first, " --help");
  const std::string problem = problem_of(*named, {argv + 2, argv + argc});
  if (!problem.empty()) {
    return fail(line, first, problem.ends_with('?') ? problem : problem + see_verb);
  }
  const std::unique_ptr<CLI::App> parser = parser_of(line, *named);
  try {
    parser->parse(argc - 1, argv + 1);
  } catch (const CLI::Success&) {  // --help
    return print_help(*parser);
  } catch (const CLI::ParseError& error) {
    const std::string text = text_of(error, *parser);
    return fail(line, first, text.ends_with('?') ? text : text + see_verb);
  }
  return run_action(line, named->name, named->action);
}

}  // namespace phasor::tools
