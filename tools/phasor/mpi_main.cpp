// phasor-mpi VERB ...: the verbs of `phasor` on several ranks, which `mpirun -n P phasor` becomes. Rank 0
// prints and writes files; an error of any rank ends all of them with one line.
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "commands.hpp"
#include "given_command.hpp"
#include "mpi_demo.hpp"
#include "mpi_end.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/parallel/communicator.hpp"
#include "phasor/parallel/internal/lab.hpp"
#include "phasor/parallel/internal/roster.hpp"
#include "phasor/parallel/models.hpp"
#include "ranks.hpp"
#include "signals.hpp"

namespace phasor::tools {
namespace {

class MpiRanks final : public RankContext {
 public:
  explicit MpiRanks(parallel::Communicator& all) : all_(all), context_(all), gradients_(all) {
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(all.handle(), MPI_COMM_TYPE_SHARED, all.rank(), MPI_INFO_NULL, &machine);
    int here = 1;
    MPI_Comm_size(machine, &here);
    MPI_Comm_free(&machine);
    threads_ = std::max(1, core::available_threads() / here);
  }

  [[nodiscard]] int rank() const noexcept override { return all_.rank(); }
  [[nodiscard]] int size() const noexcept override { return all_.size(); }
  void broadcast(std::string& text) override {
    std::int64_t size = static_cast<std::int64_t>(text.size());
    all_.broadcast(std::as_writable_bytes(std::span(&size, 1)), 0);
    text.resize(static_cast<std::size_t>(size));
    all_.broadcast(std::as_writable_bytes(std::span(text)), 0);
  }
  void agree(std::string_view what, std::string_view value) override { all_.agree(what, value); }
  [[nodiscard]] int threads() const noexcept override { return threads_; }
  [[nodiscard]] models::ContextShare& context() noexcept override { return context_; }
  [[nodiscard]] lab::GradientExchange& gradients() noexcept override { return gradients_; }

 private:
  parallel::Communicator& all_;
  parallel::SharedContext context_;
  parallel::MpiGradientExchange gradients_;
  int threads_ = 1;
};

[[nodiscard]] std::chrono::milliseconds patience() {
  const char* const text = std::getenv("PHASOR_MPI_PATIENCE");
  if (text == nullptr) return parallel::CommunicatorOptions{}.patience;
  int seconds = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), seconds);
  if (error != std::errc() || *end != '\0' || seconds < 1 || seconds > 1'000'000)
    refuse(message("PHASOR_MPI_PATIENCE must be a whole number of seconds from 1 to 1000000, got ",
                   text));
  return std::chrono::seconds(seconds);
}

void refuse_on_ranks(CommandLine& line, int size) {
  for (Verb& verb : line.verbs) {
    if (verb.runs_on_ranks) continue;
    verb.action = [size]() -> int {
      refuse(ErrorCode::unsupported,
             message("runs on one rank, got ", size, ": start it without mpirun"));
    };
  }
}

// MPI's own functions that start and end ranks wait without a limit: a rank that hangs there is given up by
// a signal. Ranks do so one after the other, so that one of them prints; Open MPI then ends the others.
extern "C" void on_alarm(int) {
  constexpr std::string_view kLine =
      "phasor: a rank does not answer while MPI starts or ends: PHASOR_MPI_PATIENCE is over\n";
  // A rank that was stopped and goes on because Open MPI ends it has nothing to say.
  const timespec moment{0, 300'000'000};
  ::nanosleep(&moment, nullptr);
  static_cast<void>(!::write(STDERR_FILENO, kLine.data(), kLine.size()));
  ::_exit(exit_code::wrong);
}

void set_timer(std::chrono::milliseconds after) {
  const std::int64_t ms = after.count();
  const itimerval timer{{0, 0}, {ms / 1000, ms % 1000 * 1000}};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

void start_watch() {
  std::chrono::milliseconds wait = parallel::CommunicatorOptions{}.patience;
  try {
    wait = patience();
  } catch (const Error&) {  // said later, when ranks can agree on it
  }
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  ::signal(SIGALRM, on_alarm);
  set_timer(wait + std::chrono::seconds(rank == nullptr ? 0 : std::min(2 * std::atoi(rank), 10)));
}

void stop_watch() { set_timer(std::chrono::milliseconds(0)); }

Failure failure;

void keep_failure(std::string_view verb, std::string_view text) { failure.set(verb, text); }

int run_on_ranks(parallel::Communicator& all, int argc, char** argv) {
  MpiRanks context(all);
  stop_watch();
  set_end_notice(parallel::report_ended_rank);
  if (all.size() > 1) set_ranks(&context);
  CommandLine line;
  add_every_verb(line);
  line.on_error = keep_failure;
  if (all.size() > 1) {
    add_rank_demo(line, all);
    refuse_on_ranks(line, all.size());
  }
  const int code = run(line, argc, argv);
  set_ranks(nullptr);
  if (failure.failed()) all.announce_stop(failure.text());
  return code;
}

}  // namespace
}  // namespace phasor::tools

int main(int argc, char** argv) {
  using namespace phasor;
  using namespace phasor::tools;
  int provided = 0;
  start_watch();
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  handle_signals();
  int code = exit_code::wrong;
  std::unique_ptr<parallel::Communicator> all;
  parallel::CommunicatorOptions options;
  try {
    Ranks ends(MPI_COMM_WORLD);
    try {
      remember_command(argc, argv);
      options.patience = patience();
      all = std::make_unique<parallel::Communicator>(MPI_COMM_WORLD, options);
      parallel::remember_processes(*all);
      code = run_on_ranks(*all, argc, argv);
    } catch (const std::bad_alloc&) {
      failure.set("", "out of memory");
    } catch (const std::exception& error) {
      failure.set("", error.what());
    }
    stop_watch();
    code = ends.finish(failure, code, options.patience);
  } catch (const std::bad_alloc&) {
    out_of_memory("phasor");
    MPI_Abort(MPI_COMM_WORLD, exit_code::wrong);
  }
  set_end_notice(nullptr);
  start_watch();
  all.reset();
  MPI_Finalize();
  return code;
}
