// The description of verbs and flags: how it is written, and what pages show of it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <concepts>
#include <utility>

#include "command_line.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "value_of.hpp"

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

Flag& Flag::folder() {
  completes = Completes::folders;
  return *this;
}

Flag& Flag::free_text() {
  completes = Completes::nothing;
  return *this;
}

Flag& Flag::bare(std::string_view value_without_one) {
  bare_value = value_without_one;
  return *this;
}

Flag& Flag::read_by(std::function<std::string(const std::string&)> function) {
  reader = std::move(function);
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

bool Flag::is_list() const noexcept {
  return std::holds_alternative<std::vector<std::int64_t>*>(target) ||
         std::holds_alternative<std::vector<std::string>*>(target);
}

std::vector<std::string_view> Flag::split_names() const {
  std::vector<std::string_view> split;
  for (std::string_view rest = names; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    split.push_back(rest.substr(0, comma));
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  return split;
}

std::string Flag::value_text() const {
  if (!takes_value()) return {};
  if (!value_name.empty()) return value_name;
  if (!choices.empty()) return fmt::format("{{{}}}", fmt::join(choices, ","));
  if (bounds && bounds->most) return fmt::format("INT in [{} - {}]", bounds->least, *bounds->most);
  if (bounds) return fmt::format("INT >= {}", bounds->least);
  const char* const text = completes == Completes::files     ? "FILE"
                           : completes == Completes::folders ? "DIR"
                                                             : "TEXT";
  const auto name = [text]<class Value>(const Value*) {
    using Type = typename ValueOf<Value>::type;
    return std::integral<Type> ? "INT" : std::same_as<Type, double> ? "FLOAT" : text;
  };
  return std::visit(name, target);
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

std::vector<std::string_view> CommandLine::verb_names() const {
  std::vector<std::string_view> names;
  for (const Verb& one : verbs) names.push_back(one.name);
  return names;
}

const Verb& CommandLine::verb_named(std::string_view verb_name) const {
  const auto found = std::find_if(verbs.begin(), verbs.end(),
                                  [&](const Verb& one) { return one.name == verb_name; });
  if (found != verbs.end()) return *found;
  const std::string hint = core::did_you_mean(verb_name, verb_names());
  refuse(message("unknown verb \"", verb_name, "\"",
                 hint.empty() ? message("; see ", name, " --help") : hint));
}

}  // namespace phasor::tools
