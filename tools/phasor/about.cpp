// phasor help, completion and man: the description of verbs and flags, in other forms.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "commands.hpp"
#include "completion.hpp"
#include "man_page.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "text_files.hpp"

namespace phasor::tools {
namespace {

// The verbs that exist so far are the choices.
void add_verb_argument(const CommandLine& line, Verb& verb, std::string& name,
                       std::string_view help) {
  Flag& flag = verb.argument("verb", &name, help).value("VERB");
  for (const std::string_view one : line.verb_names()) flag.choices.emplace_back(one);
}

int write_pages(const CommandLine& line, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    refuse(ErrorCode::io,
           message("cannot create the folder ", folder.string(), ": ", error.message()));
  }
  write_text(folder / (line.name + ".1"), man_page(line));
  for (const Verb& verb : line.verbs)
    write_text(folder / fmt::format("{}-{}.1", line.name, verb.name), man_page(line, verb));
  return exit_code::done;
}

}  // namespace

void add_about(CommandLine& line) {
  struct Flags {
    std::string verb, shell, folder;
  };
  auto flags = std::make_shared<Flags>();
  line.verb("help", "explain a verb: flags, shapes, an example");
  line.verb("completion", "print the completion script of a shell");
  line.verb("man", "print a man page");
  // The verbs stay where they are from here on.
  Verb& help = line.verbs[line.verbs.size() - 3];
  add_verb_argument(line, help, flags->verb, "the verb to explain; without it, all are listed");
  help.footer = R"(The same as phasor VERB --help.

Example  phasor help rotate)";
  help.action = [&line, flags] {
    print_out("{}", flags->verb.empty() ? help_text(line)
                                        : help_text(line, line.verb_named(flags->verb)));
    return exit_code::done;
  };

  Verb& completion = line.verbs[line.verbs.size() - 2];
  completion.argument("shell", &flags->shell, "the shell")
      .value("bash|zsh|fish")
      .one_of({"bash", "zsh", "fish"})
      .required();
  completion.footer =
      R"(Completes verbs, flags, choices of flags, files and folders. An installed phasor has its
scripts where shells look for them; this is for one that is not installed.

bash     source <(phasor completion bash)
zsh      phasor completion zsh > ~/.zfunc/_phasor, with ~/.zfunc in fpath before compinit
fish     phasor completion fish > ~/.config/fish/completions/phasor.fish

Example  source <(phasor completion bash))";
  completion.action = [&line, flags] {
    print_out("{}", flags->shell == "bash"  ? bash_completion(line)
                    : flags->shell == "zsh" ? zsh_completion(line)
                                            : fish_completion(line));
    return exit_code::done;
  };

  Verb& man = line.verbs.back();
  add_verb_argument(line, man, flags->verb, "the verb; without it, the page of phasor itself");
  man.flag("-o,--output", &flags->folder, "write every page into this folder: phasor.1, ...")
      .folder()
      .excludes("verb");
  man.footer =
      R"(Prints the page in roff, the format of man(1).

Example  phasor man rotate | man -l -)";
  man.action = [&line, flags] {
    if (!flags->folder.empty()) return write_pages(line, flags->folder);
    print_out("{}",
              flags->verb.empty() ? man_page(line) : man_page(line, line.verb_named(flags->verb)));
    return exit_code::done;
  };
}

}  // namespace phasor::tools
