// phasor-mpi VERB ...: the verbs of `phasor` on several ranks, which `mpirun -n P phasor` becomes. Rank 0
// prints and writes files; an error of any rank ends all of them with one line.
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

Failure failure;

void keep_failure(std::string_view verb, std::string_view text) { failure.set(verb, text); }

int run_on_ranks(parallel::Communicator& all, int argc, char** argv) {
  MpiRanks context(all);
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
      code = run_on_ranks(*all, argc, argv);
    } catch (const std::bad_alloc&) {
      failure.set("", "out of memory");
    } catch (const std::exception& error) {
      failure.set("", error.what());
    }
    code = ends.finish(failure, code, options.patience);
  } catch (const std::bad_alloc&) {
    out_of_memory("phasor");
    MPI_Abort(MPI_COMM_WORLD, exit_code::wrong);
  }
  all.reset();
  MPI_Finalize();
  return code;
}
