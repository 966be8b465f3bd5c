// The golden cases of the rooms that the page's engine contains, through WebAssembly in Node, and what
// this build does with archives.
//
//   node phasor_web_conform.js GOLDEN ARCHIVES
//
// GOLDEN is the folder golden, ARCHIVES tests/io/data/arrays. Prints each case as `phasor conform` does.
// Exit code 1 when a case fails, or none was run.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "conform/judge.hpp"
#include "conform/kinds.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/array_file.hpp"

namespace phasor::tools {
namespace {

namespace fs = std::filesystem;

std::vector<Verdict> verdicts_of(const fs::path& golden) {
  Kinds kinds;
  for (const auto add : {add_frequency_kinds, add_rope_kinds, add_onnx_kinds, add_attention_kinds,
                         add_encoding_kinds, add_score_kinds, add_backward_kinds, add_linear_kinds,
                         add_onnx_attention_kinds, add_diagnose_kinds}) {
    add(kinds);
  }
  std::vector<Verdict> verdicts;
  for (const fs::path& directory : find_cases(golden)) {
    if (auto verdict = judge(directory, "", kinds)) verdicts.push_back(*std::move(verdict));
  }
  return verdicts;
}

// Without zlib: stored members are read and their check sums compared, compressed ones refused. Returns
// what went wrong; empty: nothing.
std::string archive_problem(const fs::path& folder) {
  const auto stored = io::ArrayFile::open(folder / "arrays.npz").value_or_throw();
  for (std::size_t i = 0; i < stored.entries().size(); ++i) (void)stored.read(i).value_or_throw();
  const Result<io::ArrayFile> compressed = io::ArrayFile::open(folder / "arrays_deflated.npz");
  if (compressed) return "a compressed archive was read";
  return compressed.error().code() == ErrorCode::unsupported ? "" : compressed.error().what();
}

int run(const fs::path& golden, const fs::path& archives) {
  const std::vector<Verdict> verdicts = verdicts_of(golden);
  std::fputs(text_of(verdicts).c_str(), stdout);
  if (const std::string problem = archive_problem(archives); !problem.empty()) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    return 1;
  }
  const Tally tally = tally_of(verdicts);
  return tally.failed != 0 || tally.passed == 0 ? 1 : 0;
}

}  // namespace
}  // namespace phasor::tools

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fputs("usage: node phasor_web_conform.js GOLDEN ARCHIVES\n", stderr);
    return 2;
  }
  return phasor::tools::run(argv[1], argv[2]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
