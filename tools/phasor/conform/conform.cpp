// phasor conform: computes golden cases and compares them with the expected values.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "conform/judge.hpp"
#include "conform/kinds.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "progress.hpp"
#include "text_files.hpp"

namespace phasor::tools {
namespace {

namespace fs = std::filesystem;

struct ConformOptions {
  std::string directory, filter, json;
};

Kinds all_kinds() {
  Kinds kinds;
  add_frequency_kinds(kinds);
  add_rope_kinds(kinds);
  add_onnx_kinds(kinds);
  add_attention_kinds(kinds);
  add_encoding_kinds(kinds);
  add_score_kinds(kinds);
  add_backward_kinds(kinds);
  add_linear_kinds(kinds);
  add_onnx_attention_kinds(kinds);
  add_diagnose_kinds(kinds);
  add_roformer_kinds(kinds);
  add_t5_kinds(kinds);
  add_model_kinds(kinds);
  add_real_model_kinds(kinds);
  return kinds;
}

int run_conform(const ConformOptions& options) {
  const Kinds kinds = all_kinds();
  std::vector<Verdict> verdicts;
  const std::vector<fs::path> cases = find_cases(options.directory);
  {
    Progress progress;
    progress.begin("cases");
    for (std::size_t at = 0; at < cases.size(); ++at) {
      progress.move(static_cast<double>(at), static_cast<double>(cases.size()),
                    cases[at].filename().string());
      if (std::optional<Verdict> verdict = judge(cases[at], options.filter, kinds))
        verdicts.push_back(std::move(*verdict));
    }
  }
  if (verdicts.empty()) {
    refuse(message("--filter '", options.filter, "' matches no case, kind or group/case"));
  }
  if (options.json == "-") {  // the only document on stdout
    print_out("{}", json_of(verdicts));
  } else {
    print_out("{}", text_of(verdicts));
    if (!options.json.empty()) write_text(options.json, json_of(verdicts));
  }
  const Tally tally = tally_of(verdicts);
  return tally.failed + tally.unsupported == 0 ? exit_code::done : exit_code::difference;
}

}  // namespace

void add_conform(CommandLine& line) {
  auto options = std::make_shared<ConformOptions>();
  Verb& verb = line.verb("conform", "run golden cases and compare with the expected values");
  verb.argument("directory", &options->directory,
                "folder that is searched for case.json, with all subfolders")
      .folder()
      .required();
  verb.flag("--filter", &options->filter,
            "only cases whose name, kind or group/name match (* any text, ? one character)")
      .free_text();
  verb.flag("--json", &options->json,
            "also write the results to FILE as JSON; without FILE, print them instead")
      .value("FILE")
      .bare("-");
  std::string kinds;
  for (const auto& [name, kind] : all_kinds()) kinds += "\n  " + name;
  verb.footer =
      "Runs the golden cases of a folder: configs, inputs, and the outputs of another "
      "implementation\n"
      "with their tolerances. A damaged value, a missing file or a wrong dtype fails its case.\n"
      "Unknown kinds are unsupported and give exit code 1 unless the filter excludes them.\n"
      "\n"
      "Prints   pass|FAIL|unsupported  case  max error  tolerance\n"
      "\n"
      "Example  phasor conform golden --filter 'rope_*' --json verdicts.json\n"
      "\n"
      "Kinds" +
      kinds;
  verb.action = [options] { return run_conform(*options); };
}

}  // namespace phasor::tools
