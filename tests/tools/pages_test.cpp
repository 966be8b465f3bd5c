// Completion scripts and man pages: that they name everything, and that shells and man accept them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "commands.hpp"
#include "completion.hpp"
#include "man_page.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

// All verbs of the command.
CommandLine& whole_line() {
  static CommandLine line = [] {
    CommandLine made;
    made.name = "phasor";
    made.summary = "phasor: position encodings";
    made.version = "phasor 1";
    return made;
  }();
  static const bool filled = [] {
    for (const auto add :
         {add_demo,    add_freqs,    add_table, add_rotate,   add_attend,  add_explain,
          add_audit,   add_diagnose, add_diff,  add_plan,     add_convert, add_fill,
          add_logits,  add_eval,     add_run,   add_tokenize, add_inspect, add_explore,
          add_conform, add_bench,    add_about}) {
      add(line);
    }
    return true;
  }();
  EXPECT_TRUE(filled);
  return line;
}

bool has_program(const std::string& name) {
  return std::system(("command -v " + name + " > /dev/null 2>&1").c_str()) == 0;
}

class Pages : public Phasor {
 protected:
  // What a shell prints for a script; "failed" in front if it does not end with 0.
  [[nodiscard]] std::string shell(const std::string& command) const {
    const std::string out = file("shell.out");
    const int code = std::system((command + " > " + out + " 2>&1").c_str());
    return (code == 0 ? "" : "failed: ") + io::testing::get(out);
  }
  // What bash offers for the last of the words.
  [[nodiscard]] std::vector<std::string> bash_offers(const std::vector<std::string>& words) const {
    std::string script =
        "source " + put_text("bash", bash_completion(whole_line())) + "\nCOMP_WORDS=(";
    for (const std::string& word : words) script += " '" + word + "'";
    script += ")\nCOMP_CWORD=" + std::to_string(words.size() - 1) +
              "\n_phasor\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
    std::istringstream lines(
        shell("cd " + at("").string() + " && bash " + put_text("ask", script)));
    std::vector<std::string> offers;
    for (std::string one; std::getline(lines, one);) offers.push_back(one);
    return offers;
  }
};

using Offers = std::vector<std::string>;

TEST_F(Pages, HelpOfAVerb) {
  for (const Verb& verb : whole_line().verbs) {
    const Outcome outcome = run({"help", verb.name});
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    EXPECT_EQ(outcome.out, run({verb.name, "--help"}).out);
  }
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  EXPECT_EQ(run({}).out, run({"--help"}).out);
  EXPECT_EQ(run({}).exit, 0);
  expect_refusal(run({"help", "rotat"}), "help", {"rotat", "\"rotate\""});
}

TEST_F(Pages, EveryVerbAndFlagIsInEachPage) {
  const std::string bash = run({"completion", "bash"}).out, zsh = run({"completion", "zsh"}).out;
  const std::string fish = run({"completion", "fish"}).out, all = run({"man"}).out;
  const auto roff = [](std::string text) {
    for (std::size_t at = 0; (at = text.find('-', at)) != std::string::npos; at += 2)
      text.insert(at, "\\");
    return text;
  };
  const auto expect_in = [](const std::string& page, const std::string& text) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  };
  for (const Verb& verb : whole_line().verbs) {
    const std::string page = run({"man", verb.name}).out;
    expect_in(bash, "\n    " + verb.name + ")\n");
    expect_in(zsh, "\n        " + verb.name + ")\n");
    expect_in(fish, "-a " + verb.name + " ");
    expect_in(all, ".B " + verb.name + "\n");
    for (const Flag& flag : verb.flags) {
      if (flag.is_argument()) continue;
      for (const std::string_view view : flag.split_names()) {
        const std::string name(view);
        // Within the part of the verb.
        const std::string part = bash.substr(bash.find("\n    " + verb.name + ")\n"));
        EXPECT_LT(part.find(name), part.find(";;\n    ", 1)) << verb.name << name;
        expect_in(zsh.substr(zsh.find("\n        " + verb.name + ")\n")), name);
        const bool is_long = name.starts_with("--");
        expect_in(fish, (is_long ? " -l " + name.substr(2) : " -s " + name.substr(1)) + " ");
        expect_in(page, "\\fB" + roff(name) + "\\fR");
      }
      expect_in(page, "\n");
    }
  }
}

TEST_F(Pages, ShellsReadTheScripts) {
  const std::string bash = put_text("phasor.bash", bash_completion(whole_line()));
  EXPECT_EQ(shell("bash -n " + bash), "");
  EXPECT_NE(shell("bash -c 'source " + bash + "; complete -p phasor'").find("_phasor"),
            std::string::npos);
  if (has_program("zsh")) {
    EXPECT_EQ(shell("zsh -n " + put_text("_phasor", zsh_completion(whole_line()))), "");
  }
  if (has_program("fish")) {
    EXPECT_EQ(shell("fish -n " + put_text("phasor.fish", fish_completion(whole_line()))), "");
  }
}

TEST_F(Pages, BashCompletes) {
  (void)put_text("X file.npy", "x");
  std::filesystem::create_directory(at("folder"));
  EXPECT_EQ(bash_offers({"phasor", "rot"}), Offers{"rotate"});
  EXPECT_EQ(bash_offers({"phasor", "help", "freq"}), Offers{"freqs"});
  EXPECT_EQ(bash_offers({"phasor", "completion", "z"}), Offers{"zsh"});
  EXPECT_EQ(bash_offers({"phasor", "rotate", "--inv"}), Offers{"--inverse"});
  EXPECT_EQ(bash_offers({"phasor", "rotate", "--layout", "hal"}), Offers{"half"});
  EXPECT_EQ(bash_offers({"phasor", "rotate", "--layout", "=", "hal"}), Offers{"half"});
  EXPECT_EQ(bash_offers({"phasor", "rotate", "-i", "X"}), Offers{"X file.npy"});
  EXPECT_EQ(bash_offers({"phasor", "inspect", "X"}), Offers{"X file.npy"});
  EXPECT_EQ(bash_offers({"phasor", "conform", "fold"}), Offers{"folder"});
  EXPECT_EQ(bash_offers({"phasor", "conform", "X"}), Offers{""});
  EXPECT_EQ(bash_offers({"phasor", "run", "m", "-n", ""}), Offers{""});
  EXPECT_EQ(bash_offers({"phasor", "conform", "golden", "--json", "--fil"}), Offers{"--filter"});
}

TEST_F(Pages, ManAcceptsItsPages) {
  const Outcome outcome = run({"man", "-o", file("man/pages")});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(io::testing::get(at("man/pages/phasor.1")), run({"man"}).out);
  for (const Verb& verb : whole_line().verbs) {
    const std::string page = file("man/pages/phasor-" + verb.name + ".1");
    const std::string text = io::testing::get(page);
    EXPECT_EQ(text, run({"man", verb.name}).out);
    for (const char* part : {".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH EXAMPLE"})
      EXPECT_NE(text.find(part), std::string::npos) << verb.name << part;
    if (has_program("groff")) {
      EXPECT_EQ(shell("groff -man -Tascii -ww -z " + page), "");
    }
  }
  if (has_program("groff")) {
    EXPECT_EQ(shell("groff -man -Tascii -ww -z " + file("man/pages/phasor.1")), "");
  }
  expect_refusal(run({"man", "rotate", "-o", file("other")}), "man", {"-o", "verb"});
  expect_refusal(run({"man", "-o", put_text("taken", "")}), "man", "taken");
}

}  // namespace
}  // namespace phasor::tools::testing
