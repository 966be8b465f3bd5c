// The golden cases of the rooms that the page's engine contains, through WebAssembly in Node.
//
//   node phasor_web_conform.js GOLDEN
//
// Prints each case as `phasor conform` does. Exit code 1 when a case fails, or none was run.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "conform/judge.hpp"
#include "conform/kinds.hpp"

int main(int argc, char** argv) try {
  using namespace phasor::tools;
  if (argc != 2) {
    std::fputs("usage: node phasor_web_conform.js GOLDEN\n", stderr);
    return 2;
  }
  Kinds kinds;
  for (const auto add : {add_frequency_kinds, add_rope_kinds, add_onnx_kinds, add_attention_kinds,
                         add_encoding_kinds, add_score_kinds, add_backward_kinds, add_linear_kinds,
                         add_onnx_attention_kinds, add_diagnose_kinds}) {
    add(kinds);
  }
  std::vector<Verdict> verdicts;
  for (const std::filesystem::path& directory : find_cases(argv[1])) {
    if (auto verdict = judge(directory, "", kinds)) verdicts.push_back(*std::move(verdict));
  }
  std::fputs(text_of(verdicts).c_str(), stdout);
  const Tally tally = tally_of(verdicts);
  return tally.failed != 0 || tally.passed == 0 ? 1 : 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
