// phasor conform: computes golden cases and compares them with the expected values.
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "commands.hpp"
#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/json.hpp"
#include "progress.hpp"
#include "text_files.hpp"

namespace phasor::tools {
namespace {

namespace fs = std::filesystem;

struct ConformOptions {
  std::string directory, filter, json;
};

enum class Status : std::uint8_t { pass, fail, unsupported };

constexpr core::EnumNames<Status::unsupported> kStatuses("pass", "FAIL", "unsupported");

struct Verdict {
  std::string name, kind;
  Status status = Status::fail;
  std::optional<double> max_error, tolerance;  // none when nothing was compared
  std::string failure;
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

// Every folder below `root` that holds a case.json, in the order of their paths.
std::vector<fs::path> find_cases(const fs::path& root) {
  std::error_code error;
  if (!fs::is_directory(root, error)) {
    refuse(ErrorCode::io,
           message("cannot open the folder ", root.string(), ": ",
                   fs::exists(root, error) ? "not a directory" : "no such file or directory"));
  }
  std::vector<fs::path> cases;
  for (const std::string& file : io::files_below(root).value_or_throw()) {
    const fs::path path = io::as_folder(root) / file;
    if (path.filename() == "case.json") cases.push_back(path.parent_path());
  }
  if (cases.empty()) {
    refuse(ErrorCode::io, message(root.string(), ": no case.json found in it or below"));
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

bool matches(const std::string& filter, const Case& golden) {
  if (filter.empty()) return true;
  const std::array<std::string, 3> names = {golden.name, golden.kind,
                                            golden.group + "/" + golden.name};
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return ::fnmatch(filter.c_str(), name.c_str(), 0) == 0;
  });
}

// A file that cannot be read for want of memory says nothing about its case.
void throw_if_memory(const std::exception& error) {
  if (std::string_view(error.what()).find("out of memory") != std::string_view::npos)
    throw std::bad_alloc();
}

Verdict run_case(Case& golden, const Kind& kind) {
  Verdict verdict{golden.name, golden.kind, Status::fail, std::nullopt, std::nullopt, ""};
  Comparison comparison(golden);
  try {
    read_arrays(golden);
    kind(golden, comparison);
    comparison.finish();
    verdict.failure = comparison.failure();
    verdict.status = comparison.failed() ? Status::fail : Status::pass;
    verdict.max_error = comparison.max_error();
    verdict.tolerance = comparison.tolerance();
  } catch (const CaseUnsupported& reason) {
    verdict.status = Status::unsupported;
    verdict.failure = reason.what();
  } catch (const std::bad_alloc&) {  // of no interest to the case
    throw;
  } catch (const std::exception& error) {
    throw_if_memory(error);
    verdict.failure = error.what();
  }
  return verdict;
}

// None when the filter excludes the case.
std::optional<Verdict> judge(const fs::path& directory, const std::string& filter,
                             const Kinds& kinds) {
  Case golden = name_case(directory);
  try {
    read_description(golden);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw_if_memory(error);
    if (!matches(filter, golden)) return std::nullopt;
    return Verdict{golden.name,  golden.kind,  Status::fail,
                   std::nullopt, std::nullopt, error.what()};
  }
  if (!matches(filter, golden)) return std::nullopt;
  const auto kind = kinds.find(golden.kind);
  if (kind == kinds.end()) {
    return Verdict{golden.name, golden.kind, Status::unsupported, std::nullopt, std::nullopt, ""};
  }
  return run_case(golden, kind->second);
}

std::string number_text(const std::optional<double>& number) {
  return number ? fmt::format("{:.3g}", *number) : "-";
}

void print_verdicts(const std::vector<Verdict>& verdicts) {
  std::size_t width = 4;
  for (const Verdict& verdict : verdicts) width = std::max(width, verdict.name.size());
  for (const Verdict& verdict : verdicts) {
    print_out("{:<11}  {:<{}}  {:>9}  {:>9}\n", kStatuses[verdict.status], verdict.name, width,
              number_text(verdict.max_error), number_text(verdict.tolerance));
    if (!verdict.failure.empty()) print_out("    {}\n", verdict.failure);
  }
}

io::Json json_number(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? io::Json(*number) : io::Json(nullptr);
}

struct Tally {
  std::size_t passed = 0, failed = 0, unsupported = 0;
};

Tally tally_of(const std::vector<Verdict>& verdicts) {
  Tally tally;
  for (const Verdict& verdict : verdicts) {
    ++(verdict.status == Status::pass   ? tally.passed
       : verdict.status == Status::fail ? tally.failed
                                        : tally.unsupported);
  }
  return tally;
}

std::string json_of(const std::vector<Verdict>& verdicts, const Tally& tally) {
  io::Json report;
  report["passed"] = tally.passed;
  report["failed"] = tally.failed;
  report["unsupported"] = tally.unsupported;
  report["cases"] = io::Json::array();
  for (const Verdict& verdict : verdicts) {
    io::Json entry;
    entry["case"] = verdict.name;
    entry["kind"] = verdict.kind;
    entry["status"] = kStatuses[verdict.status];
    entry["max_error"] = json_number(verdict.max_error);
    entry["tolerance"] = json_number(verdict.tolerance);
    if (!verdict.failure.empty()) entry["failure"] = verdict.failure;
    report["cases"].push_back(std::move(entry));
  }
  // File names and messages may hold any byte; JSON may not.
  return report.dump({.indent = 1, .bad_utf8 = io::JsonStyle::BadUtf8::replace}) + "\n";
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
  const Tally tally = tally_of(verdicts);
  if (options.json == "-") {  // the only document on stdout
    print_out("{}", json_of(verdicts, tally));
  } else {
    print_verdicts(verdicts);
    print_out("{} passed, {} failed, {} unsupported\n", tally.passed, tally.failed,
              tally.unsupported);
    if (!options.json.empty()) write_text(options.json, json_of(verdicts, tally));
  }
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
