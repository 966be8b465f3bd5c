// phasor lab report: one page of finished runs.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "lab.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/lab/internal/report.hpp"
#include "text_files.hpp"

extern char** environ;

namespace phasor::tools {
namespace {

namespace fs = std::filesystem;

// Runs a command without output; its exit code, or -1 if it could not be run.
int run_quietly(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", 1, 0);
  }
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

[[nodiscard]] std::vector<lab::FinishedRun> runs_of(const std::vector<std::string>& folders) {
  std::vector<lab::FinishedRun> runs;
  for (const std::string& folder : folders) {
    const std::vector<lab::FinishedRun> found = lab::find_runs(folder).value_or_throw();
    runs.insert(runs.end(), found.begin(), found.end());
  }
  return runs;
}

[[nodiscard]] std::vector<std::string> translations_without_score(
    const std::vector<lab::FinishedRun>& runs) {
  std::vector<std::string> folders;
  std::error_code ignored;
  for (const lab::FinishedRun& run : runs) {
    if (!run.result.contains("bleu") && fs::exists(run.folder / "hypotheses.txt", ignored)) {
      folders.push_back(run.folder.string());
    }
  }
  return folders;
}

// The command that draws a table.
[[nodiscard]] std::vector<std::string> drawing(const fs::path& folder, const std::string& csv) {
  const std::string stem = (folder / fs::path(csv).stem()).string();
  return {"python3",
          "-m",
          "phasor.plot",
          csv.ends_with("-contexts.csv") ? "lab_contexts" : "lab_table",
          (folder / csv).string(),
          "-o",
          stem + ".svg",
          "-o",
          stem + ".png"};
}

}  // namespace

int lab_report(const LabFlags& flags) {
  if (flags.names.empty()) refuse("report needs at least one folder of runs");
  std::vector<lab::FinishedRun> runs = runs_of(flags.names);
  const std::vector<std::string> unscored = translations_without_score(runs);
  if (!unscored.empty()) {
    std::vector<std::string> scoring = {"python3", "-m", "phasor.lab_bleu"};
    scoring.insert(scoring.end(), unscored.begin(), unscored.end());
    if (run_quietly(scoring) == 0) runs = runs_of(flags.names);
  }
  const fs::path folder = io::as_folder(flags.out.empty() ? flags.names.front() : flags.out);
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) {
    refuse(ErrorCode::io, message("cannot create ", folder.string(), ": ", failed.message()));
  }
  const bool draws = run_quietly({"python3", "-c", "import phasor.plot.style"}) == 0;
  std::vector<std::string> commands;
  for (const lab::ReportFile& file :
       lab::make_report(runs, draws ? lab::Figures::shown : lab::Figures::none)) {
    write_text(folder / file.name, file.content);
    if (!file.name.ends_with("-curves.csv") && !file.name.ends_with("-contexts.csv")) continue;
    const std::vector<std::string> command = drawing(folder, file.name);
    if (!draws || run_quietly(command) != 0) {
      commands.push_back(fmt::format("{}", fmt::join(command, " ")));
    }
  }
  if (flags.json) {
    io::Json answer = io::Json::object();
    answer["page"] = (folder / "report.md").string();
    answer["runs"] = io::Json::array();
    for (const lab::FinishedRun& run : runs) answer["runs"].push_back(run.result);
    answer["commands_not_run"] = commands;
    print_out("{}\n", answer.dump());
    return exit_code::done;
  }
  print_out("{} runs -> {}\n", runs.size(), (folder / "report.md").string());
  for (const std::string& run : translations_without_score(runs)) {
    print_out("BLEU needs sacrebleu: python3 -m phasor.lab_bleu {}\n", run);
  }
  if (!commands.empty()) {
    print_out("figures need the Python package with matplotlib; it draws them by\n");
    for (const std::string& command : commands) print_out("  {}\n", command);
  }
  return exit_code::done;
}

}  // namespace phasor::tools
