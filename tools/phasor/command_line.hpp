// The command line as plain data: verbs, each with its flags and its action. Verbs describe
// themselves with these types; only command_line.cpp includes the parser, whose headers cost ten
// seconds of compile time per file.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace phasor::tools {

namespace exit_code {
inline constexpr int done = 0;
inline constexpr int difference = 1;  // the check found a difference
inline constexpr int wrong = 2;       // the request or the input is wrong
}  // namespace exit_code

// Where a flag's value goes; the type says how it is read. A bool is a switch without a value, an
// optional stays empty without its flag, a list takes the flag several times or with a delimiter.
// Whole numbers may end in k, M or G (whole_numbers.hpp).
using Target = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                            std::optional<std::int64_t>*, std::optional<std::uint64_t>*,
                            std::optional<double>*, std::optional<std::string>*,
                            std::vector<std::int64_t>*, std::vector<std::string>*>;

// Whole numbers that a flag takes.
struct Bounds {
  std::int64_t least = 0;
  std::optional<std::int64_t> most;  // none: any from `least` on
};

// A flag, or a positional argument. Each function sets the field above it and returns the flag, so
// that calls can be chained.
struct Flag {
  std::string names;  // "--json", "-o,--output"; "model", without dashes, is an argument
  Target target;
  std::string help;

  std::string value_name;  // replaces the type's name in help: MODEL; empty: FILE, INT, ...
  Flag& value(std::string_view name);

  bool is_required = false;
  Flag& required();

  bool shows_default = false;  // help shows the target's value before parsing
  Flag& show_default();

  std::vector<std::string> choices;  // empty: any text
  Flag& one_of(std::initializer_list<std::string_view> names_of_choices);

  // What a shell offers for the value. Choices come first; numbers are never completed.
  enum class Completes : std::uint8_t { files, folders, nothing };
  Completes completes = Completes::files;
  Flag& folder();     // the value is a folder
  Flag& free_text();  // the value is text that no shell can complete

  // The value of the flag when it is given without one: "--json" instead of "--json FILE".
  std::optional<std::string> bare_value;
  Flag& bare(std::string_view value_without_one);

  // Applied to each text that was given, before the action: org/name becomes a path. What it throws is
  // reported as the action's.
  std::function<std::string(const std::string&)> reader;
  Flag& read_by(std::function<std::string(const std::string&)> function);

  std::optional<Bounds> bounds;
  Flag& at_least(std::int64_t least);
  Flag& within(std::int64_t least, std::int64_t most);

  char delimiter = '\0';  // between the elements of a list: "a,b"; '\0': none
  Flag& separated_by(char character);

  // Flags of the same verb, by one of their names, before or after this one.
  std::vector<std::string> excluded;  // neither may be given with the other
  Flag& excludes(std::string_view name);
  std::vector<std::string> needed;  // this one is refused without them
  Flag& needs(std::string_view name);

  [[nodiscard]] bool is_argument() const noexcept { return !names.starts_with('-'); }
  [[nodiscard]] bool takes_value() const noexcept { return !std::holds_alternative<bool*>(target); }
  [[nodiscard]] bool is_list() const noexcept;
  // "-o,--output" -> "-o", "--output"
  [[nodiscard]] std::vector<std::string_view> split_names() const;
  // How a page shows the value: MODEL, {half,interleaved}, INT >= 1, FILE.
  [[nodiscard]] std::string value_text() const;
};

struct Verb {
  std::string name;
  std::string summary;  // one line, for the list of verbs
  std::vector<Flag> flags;
  std::string footer;          // what follows the flags in the verb's help: shapes, an example
  bool runs_on_ranks = false;  // on several ranks of MPI together; others refuse
  // Runs after the whole command line has been parsed. Returns the exit code; an exception becomes
  // one line on stderr and exit_code::wrong. It owns what the targets point to.
  std::function<int()> action;

  // The reference holds until the next flag.
  Flag& flag(std::string_view names, Target target, std::string_view help);
  Flag& argument(std::string_view name, Target target, std::string_view help);
};

// What holds for every verb, for the man page: terms, each with its meaning.
struct ManSection {
  std::string title;
  std::vector<std::pair<std::string, std::string>> entries;
};

struct CommandLine {
  std::string name;  // of the program
  std::string summary;
  std::string version;  // what --version prints
  std::string footer;
  std::vector<ManSection> sections;
  std::vector<Verb> verbs;
  // Gets the verb and the text of an error instead of stderr; allocates nothing. Null: stderr.
  void (*on_error)(std::string_view verb, std::string_view text) = nullptr;

  // The reference holds until the next verb.
  Verb& verb(std::string_view name, std::string_view summary);
  [[nodiscard]] std::vector<std::string_view> verb_names() const;
  // throws   Error(invalid_argument) with the verb that was perhaps meant
  [[nodiscard]] const Verb& verb_named(std::string_view name) const;
};

// What --help prints, of the program or of one of its verbs.
[[nodiscard]] std::string help_text(const CommandLine& line);
[[nodiscard]] std::string help_text(const CommandLine& line, const Verb& verb);

// One line on stderr, "phasor VERB: out of memory", which itself needs no memory. Returns
// exit_code::wrong.
int out_of_memory(const char* program, const char* verb = "") noexcept;

// Parses the arguments, fills the targets and runs the verb's action, or prints help (--help, -h, no
// argument at all) or the version (--version, -V). An error is one line on stderr: "phasor VERB: ...".
//
// throws   std::bad_alloc outside of the verb's action;
//          Error(internal) for a description that contradicts itself: a name given twice, an
//          exclusion of a flag that does not exist
[[nodiscard]] int run(const CommandLine& line, int argc, const char* const* argv);

}  // namespace phasor::tools
