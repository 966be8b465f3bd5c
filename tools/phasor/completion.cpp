#include "completion.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace phasor::tools {
namespace {

// What a shell offers for one value.
enum class Offer : std::uint8_t { choices, list_of_choices, files, folders, nothing };

Offer offer_of(const Flag& flag) {
  if (!flag.choices.empty())
    return flag.delimiter != '\0' ? Offer::list_of_choices : Offer::choices;
  const bool is_text = std::holds_alternative<std::string*>(flag.target) ||
                       std::holds_alternative<std::optional<std::string>*>(flag.target) ||
                       std::holds_alternative<std::vector<std::string>*>(flag.target);
  if (!is_text || flag.completes == Flag::Completes::nothing) return Offer::nothing;
  return flag.completes == Flag::Completes::folders ? Offer::folders : Offer::files;
}

std::string replaced(std::string_view text, std::string_view characters, std::string_view before) {
  std::string result;
  for (const char character : text) {
    if (characters.find(character) != std::string_view::npos) result += before;
    result += character;
  }
  return result;
}

// 'text' for a shell; a quote inside ends the string, adds \' and begins another.
std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const char character : text) {
    if (character == '\'') {
      result += R"('\'')";
    } else {
      result += character;
    }
  }
  return result + "'";
}

std::vector<const Flag*> arguments_of(const Verb& verb) {
  std::vector<const Flag*> arguments;
  for (const Flag& flag : verb.flags) {
    if (flag.is_argument()) arguments.push_back(&flag);
  }
  return arguments;
}

// The command of bash that offers a value.
std::string bash_offer(const Flag& flag) {
  switch (offer_of(flag)) {
    case Offer::choices:
      return fmt::format("_phasor_words {}",
                         quoted(fmt::format("{}", fmt::join(flag.choices, " "))));
    case Offer::list_of_choices:
      return fmt::format("_phasor_list {} {}", quoted(std::string(1, flag.delimiter)),
                         quoted(fmt::format("{}", fmt::join(flag.choices, " "))));
    case Offer::folders:
      return "_phasor_paths -d";
    case Offer::files:
      return "_phasor_paths -f";
    case Offer::nothing:
      break;
  }
  return ":";
}

constexpr std::string_view kBashHead = R"(_phasor_words() {
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}
# Choices of a list: what stands before the last delimiter is kept.
_phasor_list() {
  local before=""
  [[ $cur == *"$1"* ]] && before="${cur%"$1"*}$1"
  mapfile -t COMPREPLY < <(compgen -P "$before" -W "$2" -- "${cur##*"$1"}")
  compopt -o nospace 2> /dev/null
}
_phasor_paths() {
  compopt -o filenames 2> /dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
}
_phasor() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"
  COMPREPLY=()
  # --flag=value comes as three words.
  if [[ $cur == "=" ]]; then
    cur=""
  elif [[ $prev == "=" ]]; then
    prev="${COMP_WORDS[COMP_CWORD-2]}"
  fi
)";

// One line of _arguments: '(-o --output)'{-o,--output=}'[help]:value:_files'
std::string zsh_flag(const Flag& flag) {
  const std::string help = fmt::format("[{}]", replaced(flag.help, R"(\[])", "\\"));
  std::string value;
  if (flag.takes_value()) {
    std::string name = flag.value_name.empty() ? "value" : flag.value_name;
    name = replaced(name, R"(\:)", "\\");
    std::string offer;
    switch (offer_of(flag)) {
      case Offer::choices:
        offer = fmt::format("({})", fmt::join(flag.choices, " "));
        break;
      case Offer::list_of_choices:
        offer =
            fmt::format("_values -s {} choice {}", flag.delimiter, fmt::join(flag.choices, " "));
        break;
      case Offer::folders:
        offer = "_files -/";
        break;
      case Offer::files:
        offer = "_files";
        break;
      case Offer::nothing:
        offer = " ";
        break;
    }
    value = fmt::format("{}:{}:{}", flag.bare_value ? ":" : "", name, offer);
  }
  if (flag.is_argument())
    return quoted(fmt::format("{}{}", flag.is_list() ? "*" : flag.is_required ? "" : ":", value));
  const std::vector<std::string_view> names = flag.split_names();
  std::string forms;
  for (const std::string_view name : names) {
    if (!forms.empty()) forms += ',';
    forms += name;
    if (flag.takes_value()) forms += name.starts_with("--") ? "=" : "+";
  }
  if (flag.is_list()) return fmt::format("'*'{}{}", forms, quoted(help + value));
  if (names.size() == 1) return forms + quoted(help + value);
  return fmt::format("'({})'{{{}}}{}", fmt::join(names, " "), forms, quoted(help + value));
}

std::string fish_flag(const Flag& flag) {
  std::string text;
  if (!flag.is_argument()) {
    for (const std::string_view name : flag.split_names()) {
      text += name.starts_with("--") ? fmt::format(" -l {}", name.substr(2))
                                     : fmt::format(" -s {}", name.substr(1));
    }
  }
  if (flag.takes_value()) {
    const char* const must = flag.is_argument() || flag.bare_value ? "" : " -r";
    switch (offer_of(flag)) {
      case Offer::choices:
        text += fmt::format("{} -f -a {}", must,
                            quoted(fmt::format("{}", fmt::join(flag.choices, " "))));
        break;
      case Offer::list_of_choices:
        text += fmt::format("{} -f -a {}", must,
                            quoted(fmt::format("(__fish_complete_list {} 'printf \"%s\\n\" {}')",
                                               flag.delimiter, fmt::join(flag.choices, " "))));
        break;
      case Offer::folders:
        text += fmt::format("{} -f -a '(__fish_complete_directories)'", must);
        break;
      case Offer::files:
        text += fmt::format("{} -F", must);
        break;
      case Offer::nothing:
        text += fmt::format("{} -f", must);
        break;
    }
  }
  return fmt::format("{} -d {}", text, quoted(flag.help));
}

}  // namespace

std::string bash_completion(const CommandLine& line) {
  std::string text = fmt::format("# bash completion of {0}; written by `{0} completion bash`\n{1}",
                                 line.name, kBashHead);
  text += fmt::format(
      "  if (( COMP_CWORD == 1 )); then\n"
      "    _phasor_words '{} -h --help -V --version'\n"
      "    return\n"
      "  fi\n"
      "  local flags=\"\"\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n",
      fmt::join(line.verb_names(), " "));
  for (const Verb& verb : line.verbs) {
    std::string names, cases;
    for (const Flag& flag : verb.flags) {
      if (flag.is_argument()) continue;
      const std::vector<std::string_view> split = flag.split_names();
      names += fmt::format("{} ", fmt::join(split, " "));
      if (!flag.takes_value()) continue;
      // A flag whose value may be missing may be followed by another one.
      const std::string_view unless = flag.bare_value ? "[[ $cur == -?* ]] || " : "";
      cases += unless.empty() ? fmt::format("        {}) {}; return ;;\n", fmt::join(split, "|"),
                                            bash_offer(flag))
                              : fmt::format("        {}) {}{{ {}; return; }} ;;\n",
                                            fmt::join(split, "|"), unless, bash_offer(flag));
    }
    text += fmt::format("    {})\n      flags='{}-h --help'\n", verb.name, names);
    if (!cases.empty()) text += fmt::format("      case \"$prev\" in\n{}      esac\n", cases);
    const std::vector<const Flag*> arguments = arguments_of(verb);
    if (!arguments.empty())
      text +=
          fmt::format("      [[ $cur == -* ]] || {{ {}; return; }}\n", bash_offer(*arguments[0]));
    text += "      ;;\n";
  }
  text += fmt::format(
      "  esac\n"
      "  _phasor_words \"$flags\"\n"
      "}}\n"
      "complete -F _phasor {}\n",
      line.name);
  return text;
}

std::string zsh_completion(const CommandLine& line) {
  std::string text = fmt::format(
      "#compdef {0}\n"
      "# zsh completion of {0}; written by `{0} completion zsh`\n"
      "_phasor() {{\n"
      "  local curcontext=\"$curcontext\" state line\n"
      "  typeset -A opt_args\n"
      "  _arguments -C \\\n"
      "    '(-h --help)'{{-h,--help}}'[print help]' \\\n"
      "    '(-V --version)'{{-V,--version}}'[print the version]' \\\n"
      "    '1:verb:->verb' \\\n"
      "    '*::argument:->argument'\n"
      "  case \"$state\" in\n"
      "    verb)\n"
      "      local -a verbs=(\n",
      line.name);
  for (const Verb& verb : line.verbs)
    text +=
        fmt::format("        {}\n",
                    quoted(fmt::format("{}:{}", verb.name, replaced(verb.summary, R"(\:)", "\\"))));
  text +=
      "      )\n"
      "      _describe -t verbs verb verbs\n"
      "      ;;\n"
      "    argument)\n"
      "      case \"$words[1]\" in\n";
  for (const Verb& verb : line.verbs) {
    text += fmt::format("        {})\n          _arguments -s \\\n", verb.name);
    for (const Flag& flag : verb.flags) text += fmt::format("            {} \\\n", zsh_flag(flag));
    text += "            '(-h --help)'{-h,--help}'[print help]'\n          ;;\n";
  }
  text += fmt::format(
      "      esac\n"
      "      ;;\n"
      "  esac\n"
      "}}\n"
      "if [ \"$funcstack[1]\" = _phasor ]; then\n"
      "  _phasor \"$@\"\n"
      "else\n"
      "  compdef _phasor {}\n"
      "fi\n",
      line.name);
  return text;
}

std::string fish_completion(const CommandLine& line) {
  const std::string start = fmt::format("complete -c {}", line.name);
  std::string text = fmt::format(
      "# fish completion of {0}; written by `{0} completion fish`\n"
      "{1} -f\n"
      "{1} -s h -l help -d 'print help'\n"
      "{1} -n __fish_use_subcommand -s V -l version -d 'print the version'\n",
      line.name, start);
  for (const Verb& verb : line.verbs)
    text += fmt::format("{} -n __fish_use_subcommand -a {} -d {}\n", start, verb.name,
                        quoted(verb.summary));
  for (const Verb& verb : line.verbs) {
    for (const Flag& flag : verb.flags) {
      text += fmt::format("{} -n '__fish_seen_subcommand_from {}'{}\n", start, verb.name,
                          fish_flag(flag));
    }
  }
  return text;
}

}  // namespace phasor::tools
