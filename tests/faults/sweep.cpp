#include "faults/sweep.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace phasor::faults {
namespace {

constexpr unsigned kSecondsOfARun = 120;
constexpr int kShown = 20;  // wrong runs that are printed

// A file without a name that a child writes.
class Capture {
 public:
  explicit Capture(const char* name) : descriptor_(memfd_create(name, 0)) {
    if (descriptor_ < 0) std::abort();
  }
  void clear() const {
    if (ftruncate(descriptor_, 0) != 0 || lseek(descriptor_, 0, SEEK_SET) != 0) std::abort();
  }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] std::string text() const {
    std::string text(static_cast<std::size_t>(lseek(descriptor_, 0, SEEK_END)), '\0');
    if (pread(descriptor_, text.data(), text.size(), 0) < 0) std::abort();
    return text;
  }

 private:
  int descriptor_;
};

[[noreturn]] void run_here(const std::function<int()>& body, Refusal refusal, int out, int err) {
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  alarm(kSecondsOfARun);
  refuse(refusal);
  std::exit(body());
}

std::int64_t next_request(std::int64_t request, Density density) {
  constexpr std::array<std::int64_t, 3> kStep = {0, 12, 6};
  const std::int64_t share = kStep[static_cast<std::size_t>(density)];
  return request + 1 + (share == 0 ? 0 : request / share);
}

std::string text_of_environment() {
  const char* const text = std::getenv("PHASOR_FAULTS");
  return text == nullptr ? "" : text;
}

// "once:17", "from:17"
std::optional<Refusal> single(const std::string& wanted) {
  const std::size_t colon = wanted.find(':');
  if (colon == std::string::npos) return std::nullopt;
  return Refusal{wanted.starts_with("once") ? Refuse::once : Refuse::from_then_on,
                 std::atoll(wanted.c_str() + colon + 1)};
}

}  // namespace

Run run_in_child(const std::function<int()>& body, Refusal refusal) {
  static const Capture out("out"), err("err");
  static const bool shared = (share_counts(), true);
  static_cast<void>(shared);
  out.clear();
  err.clear();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("faults: fork");
    std::exit(2);
  }
  if (child == 0) run_here(body, refusal, out.descriptor(), err.descriptor());
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Run run;
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.requests = requests();
  run.out = out.text();
  run.err = err.text();
  return run;
}

int sweep(const std::string& name, Density density, const std::function<int()>& body,
          const std::function<std::string(const Run& run)>& check) {
  const std::string wanted = text_of_environment();
  if (wanted == "every") density = density == Density::sparse ? Density::dense : Density::every;
  if (const std::optional<Refusal> only = single(wanted)) {
    refuse(*only);
    std::exit(body());
  }
  std::int64_t runs = 0, total = 0;
  int wrong = 0;
  for (const Refuse how : {Refuse::once, Refuse::from_then_on}) {
    for (std::int64_t request = 0;; request = next_request(request, density)) {
      const Refusal refusal{how, request};
      const Run run = run_in_child(body, refusal);
      ++runs;
      total = std::max(total, run.requests.made);
      const std::string problem = check(run);
      if (!problem.empty() && ++wrong <= kShown) {
        std::fprintf(stderr, "%s: request %lld refused %s: %s\n%s", name.c_str(),
                     static_cast<long long>(request),
                     how == Refuse::once ? "once" : "and all later", problem.c_str(),
                     run.err.c_str());
      }
      if (request >= run.requests.made) break;
    }
  }
  std::fprintf(stderr, "%s: %lld requests, %lld runs, %d wrong\n", name.c_str(),
               static_cast<long long>(total), static_cast<long long>(runs), wrong);
  return wrong;
}

}  // namespace phasor::faults
