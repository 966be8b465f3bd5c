// Every function of phasor.h without memory: each request refused, once and from then on. A call
// must succeed, or fail with a status and "out of memory", leave *out untouched, and succeed when it
// is called again with memory.
//
// faults_c_functions NAME runs one part of the API; without a name it checks that every function of
// the header is called.
#include <csignal>
#include <filesystem>

#include "faults/c_calls.hpp"
#include "faults/inputs.hpp"
#include "faults/sweep.hpp"

namespace phasor::faults {
namespace {

namespace fs = std::filesystem;

std::vector<Part> all_parts() {
  std::vector<Part> parts = rotation_parts();
  parts.insert(parts.end(), model_parts().begin(), model_parts().end());
  return parts;
}

int run_part(const Part& part, const std::string& folder) {
  try {
    part.run(folder);
    return kWhole;
  } catch (const Stopped&) {
    return kStopped;
  } catch (const std::bad_alloc&) {  // of the test itself
    return kStopped;
  }
}

int sweep_part(const Part& part) {
  const Inputs inputs;
  const std::string folder = inputs.folder().string();
  const fs::path made = inputs.folder() / "converted";
  const auto body = [&] { return run_part(part, folder); };
  const Run whole = run_in_child(body, {});
  fs::remove_all(made);
  if (whole.code != kWhole) {
    std::fprintf(stderr, "%s: fails without a refusal\n%s", part.name, whole.err.c_str());
    return 1;
  }
  const int wrong_runs = sweep(part.name, Density::dense, body, [&](const Run& run) {
    fs::remove_all(made);
    if (run.code == kWhole || run.code == kStopped) return std::string();
    return run.code == 128 + SIGALRM ? std::string("it does not end")
           : run.code >= 128         ? "it ends by signal " + std::to_string(run.code - 128)
                                     : "exit code " + std::to_string(run.code);
  });
  return wrong_runs == 0 ? 0 : 1;
}

int check_names() {
  const Inputs inputs;
  std::set<std::string> names;
  called() = &names;
  for (const Part& part : all_parts()) {
    if (run_part(part, inputs.folder().string()) != kWhole) {
      std::fprintf(stderr, "%s: fails without a refusal\n", part.name);
      return 1;
    }
  }
  called() = nullptr;
  int missing = 0;
  std::string header;
  for (const auto& file : contents_below(PHASOR_TEST_HEADERS)) header += file.second;
  constexpr std::string_view kMark = "\nPHASOR_API ";
  for (std::size_t at = header.find(kMark); at != std::string::npos;
       at = header.find(kMark, at + 1)) {
    const std::size_t end = header.find('(', at);
    const std::size_t begin = header.find_last_of(" *", end) + 1;
    const std::string name = header.substr(begin, end - begin);
    if (names.contains(name)) continue;
    std::fprintf(stderr, "faults_c_functions: %s is not called\n", name.c_str());
    ++missing;
  }
  return missing == 0 ? 0 : 1;
}

}  // namespace
}  // namespace phasor::faults

int main(int argc, char** argv) {
  using namespace phasor::faults;
  if (argc < 2) return check_names();
  for (const Part& part : all_parts())
    if (std::string_view(part.name) == argv[1]) return sweep_part(part);
  std::fprintf(stderr, "faults_c_functions: no part is named %s\n", argv[1]);
  return 2;
}
