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
#include <system_error>
#include <utility>

#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/core/internal/visible_text.hpp"
#include "streams.hpp"
#include "value_of.hpp"
#include "whole_numbers.hpp"

namespace phasor::tools {
namespace {

// CLI11 reads 010 as eight and lets numbers that do not fit the type overflow.
template <std::integral Whole>
CLI::Validator whole_number(const std::optional<Bounds>& bounds) {
  using Limits = std::numeric_limits<Whole>;
  const Whole least = bounds ? static_cast<Whole>(bounds->least) : Limits::min();
  const Whole most = bounds && bounds->most ? static_cast<Whole>(*bounds->most) : Limits::max();
  const auto check = [=](std::string& text) -> std::string {
    Whole value = 0;
    const std::errc status = read_whole(text, value);
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
  return {check, ""};
}

CLI::Validator real_number() {
  const auto check = [](const std::string& text) -> std::string {
    std::string_view digits = text;
    if (digits.starts_with('+')) digits.remove_prefix(1);
    double value = 0.0;
    const auto [end, read] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const std::errc status =
        end == digits.data() + digits.size() ? read : std::errc::invalid_argument;
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
  return {check, ""};
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
  if (flag.takes_value()) option->type_name(flag.value_text());
  if (flag.delimiter != '\0') option->delimiter(flag.delimiter);
  if (!flag.choices.empty()) option->check(member_of(flag.choices));
  if (flag.is_required) option->required();
  if (flag.shows_default) option->capture_default_str();
  return option;
}

void add_flags(CLI::App& parser, const Verb& verb) {
  std::vector<std::pair<std::string_view, CLI::Option*>> options;  // by each name
  for (const Flag& flag : verb.flags) {
    CLI::Option* const option = add_flag(parser, flag);
    for (const std::string_view name : flag.split_names()) options.emplace_back(name, option);
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
    CLI::Option* const option = option_of(flag.split_names().front());
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
std::string help_of(const CLI::App& app) {
  std::string text = app.help();
  if (app.help() != text) throw std::bad_alloc();
  return text;
}

int print_help(const std::string& text) {
  print_out("{}", text);
  return exit_code::done;
}

// Prints one line, since programs and people read the first one; line breaks become \n.
int fail(const CommandLine& line, std::string_view verb, std::string_view text) {
  // Library messages begin with the function's name, often the verb's.
  const std::string repeated = std::string(verb) + ": ";
  if (!verb.empty() && text.starts_with(repeated)) text.remove_prefix(repeated.size());
  if (line.on_error != nullptr) {
    line.on_error(verb, text);
    return exit_code::wrong;
  }
  print_err("{}{}{}: {}\n", line.name, verb.empty() ? "" : " ", verb, core::visible_text(text));
  return exit_code::wrong;
}

int no_memory(const CommandLine& line, const std::string& verb) {
  if (line.on_error == nullptr) return out_of_memory(line.name.c_str(), verb.c_str());
  line.on_error(verb, "out of memory");
  return exit_code::wrong;
}

void apply_readers(const Verb& verb) {
  for (const Flag& flag : verb.flags) {
    if (!flag.reader) continue;
    if (auto* const* text = std::get_if<std::string*>(&flag.target)) {
      if (!(*text)->empty()) **text = flag.reader(**text);
    } else if (auto* const* maybe = std::get_if<std::optional<std::string>*>(&flag.target)) {
      if (**maybe) **maybe = flag.reader(***maybe);
    } else if (auto* const* list = std::get_if<std::vector<std::string>*>(&flag.target)) {
      for (std::string& one : **list) one = flag.reader(one);
    }
  }
}

int run_action(const CommandLine& line, const Verb& of) {
  const std::string& verb = of.name;
  int code = exit_code::wrong;
  release_streams();
  try {
    apply_readers(of);
    code = of.action();
  } catch (const std::bad_alloc&) {
    return no_memory(line, verb);
  } catch (const std::system_error& error) {
    // std::filesystem::canonical() reports a lack of memory as an error of the path.
    if (error.code() == std::errc::not_enough_memory) return no_memory(line, verb);
    return fail(line, verb, error.what());
  } catch (const std::exception& error) {
    return fail(line, verb, error.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return fail(line, verb, message("cannot write to stdout: ", std::strerror(errno)));
  }
  return code;
}

const Flag* flag_named(const Verb& verb, std::string_view name) {
  for (const Flag& flag : verb.flags) {
    if (flag.is_argument()) continue;
    const std::vector<std::string_view> names = flag.split_names();
    if (std::find(names.begin(), names.end(), name) != names.end()) return &flag;
  }
  return nullptr;
}

// The words after the verb, before values are read.
class Words {
 public:
  Words(const Verb& verb, std::vector<std::string_view> words)
      : verb_(verb), words_(std::move(words)) {}

  // Checks the flags' names: a misspelt flag is reported as such and not as a required one that is
  // missing. Gives each flag that is given without its value the one of Flag::bare.
  //
  // returns  the words for the parser; what is wrong in `problem`, empty: nothing
  std::vector<std::string> read(std::string& problem) const {
    std::vector<std::string> read;
    std::set<const Flag*> seen;
    std::size_t arguments = 0;
    for (std::size_t at = 0; at < words_.size(); ++at) {
      const std::string_view word = words_[at];
      read.emplace_back(word);
      if (word == "--") {
        read.insert(read.end(), words_.begin() + static_cast<std::ptrdiff_t>(at) + 1, words_.end());
        return read;
      }
      const std::string_view name = name_in(word);
      if (name == "-h" || name == "--help") return {"--help"};
      const Flag* const found = name.empty() ? nullptr : flag_named(verb_, name);
      if (found == nullptr) {
        if (!name.empty() && !is_negative_number(word)) {
          problem = message("unknown flag ", name, core::did_you_mean(name, known_names()));
          return read;
        }
        ++arguments;
        continue;
      }
      if (!found->takes_value()) continue;
      if (!seen.insert(found).second && !found->is_list()) {
        problem = message(name, " is given twice");
        return read;
      }
      if (word.size() > name.size()) continue;  // --name=value
      if (found->bare_value && is_bare(at, arguments)) {
        read.push_back(*found->bare_value);
      } else if (++at == words_.size()) {
        problem = message(name, " needs a value");
        return read;
      } else {
        read.emplace_back(words_[at]);
      }
    }
    return read;
  }

 private:
  // "--name" of "--name=value", "-o"; empty for an argument, -ofile, -12.
  static std::string_view name_in(std::string_view word) {
    if (word.starts_with("--")) return word.substr(0, word.find('='));
    return word.size() == 2 && word[0] == '-' ? word : std::string_view();
  }
  static bool is_negative_number(std::string_view word) {
    return word.size() == 2 && word[0] == '-' && word[1] >= '0' && word[1] <= '9';
  }

  [[nodiscard]] std::vector<std::string_view> known_names() const {
    std::vector<std::string_view> known = {"-h", "--help"};
    for (const Flag& flag : verb_.flags) {
      if (flag.is_argument()) continue;
      for (const std::string_view name : flag.split_names()) known.push_back(name);
    }
    return known;
  }

  // Whether the flag at `at`, whose value may be missing, has none: a flag follows, or a word that a
  // required argument needs. `arguments` stand before it.
  [[nodiscard]] bool is_bare(std::size_t at, std::size_t arguments) const {
    if (at + 1 == words_.size() || (words_[at + 1] != "-" && words_[at + 1].starts_with('-')))
      return true;
    for (std::size_t next = at + 2; next < words_.size(); ++next) {
      const Flag* const flag = flag_named(verb_, name_in(words_[next]));
      if (flag == nullptr) {
        ++arguments;
      } else if (flag->takes_value() && words_[next].size() == name_in(words_[next]).size()) {
        ++next;
      }
    }
    const auto required =
        std::count_if(verb_.flags.begin(), verb_.flags.end(),
                      [](const Flag& flag) { return flag.is_argument() && flag.is_required; });
    return arguments < static_cast<std::size_t>(required);
  }

  const Verb& verb_;
  std::vector<std::string_view> words_;
};

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

std::string help_text(const CommandLine& line, const Verb& verb) {
  return help_of(*parser_of(line, verb));
}

std::string help_text(const CommandLine& line) {
  CLI::App app{line.summary, line.name};
  if (!line.version.empty()) app.set_version_flag("-V,--version", line.version);
  app.footer(line.footer);
  for (const Verb& verb : line.verbs) app.add_subcommand(verb.name, verb.summary);
  return help_of(app);
}

int run(const CommandLine& line, int argc, const char* const* argv) {
  const std::string see_help = message("; see ", line.name, " --help");
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (argc <= 1 || first == "-h" || first == "--help") return print_help(help_text(line));
  if ((first == "-V" || first == "--version") && !line.version.empty()) {
    print_out("{}\n", line.version);
    return exit_code::done;
  }
  if (first.empty() || first == "--") {
    return fail(line, "",
                message("no verb given: must be ", core::list_text(line.verb_names()), see_help));
  }
  if (first.starts_with('-')) {
    constexpr std::string_view kFlags[] = {"--help", "--version"};
    const std::string hint = core::did_you_mean(first, kFlags);
    return fail(line, "",
                message("unexpected argument \"", first, "\"", hint.empty() ? see_help : hint));
  }
  const Verb* verb = nullptr;
  try {
    verb = &line.verb_named(first);
  } catch (const Error& error) {
    return fail(line, "", error.what());
  }
  const std::string see_verb = message("; see ", line.name, " ", first, " --help");
  std::string problem;
  const std::vector<std::string> words = Words(*verb, {argv + 2, argv + argc}).read(problem);
  if (!problem.empty()) {
    return fail(line, first, problem.ends_with('?') ? problem : problem + see_verb);
  }
  const std::unique_ptr<CLI::App> parser = parser_of(line, *verb);
  std::vector<const char*> arguments = {verb->name.c_str()};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  try {
    parser->parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::Success&) {  // --help
    return print_help(help_of(*parser));
  } catch (const CLI::ParseError& error) {
    const std::string text = text_of(error, *parser);
    return fail(line, first, text.ends_with('?') ? text : text + see_verb);
  }
  return run_action(line, *verb);
}

}  // namespace phasor::tools
