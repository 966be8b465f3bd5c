// Golden cases computed and compared, and what came out of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "conform/kinds.hpp"

namespace phasor::tools {

enum class Status : std::uint8_t { pass, fail, unsupported };

struct Verdict {
  std::string name, kind;
  Status status = Status::fail;
  std::optional<double> max_error, tolerance;  // none when nothing was compared
  std::string failure;
};

struct Tally {
  std::size_t passed = 0, failed = 0, unsupported = 0;
};

// Every folder below `root` that holds a case.json, in the order of their paths.
//
// throws   Error(io) when there is none
[[nodiscard]] std::vector<std::filesystem::path> find_cases(const std::filesystem::path& root);

// None when the filter excludes the case: a pattern of its name, its kind or group/name; empty: all.
//
// throws   std::bad_alloc; other failures are the case's
[[nodiscard]] std::optional<Verdict> judge(const std::filesystem::path& directory,
                                           const std::string& filter, const Kinds& kinds);

[[nodiscard]] Tally tally_of(const std::vector<Verdict>& verdicts);
// A line for each case, and the tally.
[[nodiscard]] std::string text_of(const std::vector<Verdict>& verdicts);
[[nodiscard]] std::string json_of(const std::vector<Verdict>& verdicts);

}  // namespace phasor::tools
