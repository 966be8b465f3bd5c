#include "conform/judge.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <string_view>
#include <system_error>

#include "conform/case.hpp"
#include "pages/page.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::tools {
namespace {

namespace fs = std::filesystem;

constexpr core::EnumNames<Status::unsupported> kStatuses("pass", "FAIL", "unsupported");

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

std::string number_text(const std::optional<double>& number) {
  return number ? fmt::format("{:.3g}", *number) : "-";
}

io::Json json_number(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? io::Json(*number) : io::Json(nullptr);
}

}  // namespace

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

Tally tally_of(const std::vector<Verdict>& verdicts) {
  Tally tally;
  for (const Verdict& verdict : verdicts) {
    ++(verdict.status == Status::pass   ? tally.passed
       : verdict.status == Status::fail ? tally.failed
                                        : tally.unsupported);
  }
  return tally;
}

std::string text_of(const std::vector<Verdict>& verdicts) {
  std::string page;
  std::size_t width = 4;
  for (const Verdict& verdict : verdicts) width = std::max(width, verdict.name.size());
  for (const Verdict& verdict : verdicts) {
    add(page, "{:<11}  {:<{}}  {:>9}  {:>9}\n", kStatuses[verdict.status], verdict.name, width,
        number_text(verdict.max_error), number_text(verdict.tolerance));
    if (!verdict.failure.empty()) add(page, "    {}\n", verdict.failure);
  }
  const Tally tally = tally_of(verdicts);
  add(page, "{} passed, {} failed, {} unsupported\n", tally.passed, tally.failed,
      tally.unsupported);
  return page;
}

std::string json_of(const std::vector<Verdict>& verdicts) {
  const Tally tally = tally_of(verdicts);
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

}  // namespace phasor::tools
