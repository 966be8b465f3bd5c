#include "mpi_end.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "command_line.hpp"
#include "output.hpp"
#include "phasor/core/internal/visible_text.hpp"

namespace phasor::tools {
namespace {

using Clock = std::chrono::steady_clock;

// What a rank tells the others.
struct Ending {
  std::int32_t code = 0;
  enum : std::int32_t { done, failed, echo } kind = done;
  std::uint64_t text = 0;  // its hash
};

constexpr int kEndTag = 0;
constexpr std::chrono::milliseconds kStep{1};
// For mpirun to read what a rank has printed before it ends all ranks.
constexpr std::chrono::milliseconds kPrinted{100};

}  // namespace

void Failure::set(std::string_view verb, std::string_view text) noexcept {
  if (failed_) return;
  failed_ = true;
  verb_size_ = std::min(verb.size(), verb_.size());
  std::copy_n(verb.begin(), verb_size_, verb_.begin());
  text_size_ = std::min(text.size(), text_.size());
  std::copy_n(text.begin(), text_size_, text_.begin());
}

bool Failure::is_echo() const noexcept {
  const std::size_t at = text().find(" stopped: ");
  if (at == std::string_view::npos) return false;
  const std::string_view before = text().substr(0, at);
  const std::size_t number = before.find_last_not_of("0123456789");
  return number != std::string_view::npos && before.substr(0, number + 1).ends_with("rank ");
}

Ranks::Ranks(MPI_Comm comm) {
  MPI_Comm_dup(comm, &comm_);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

int Ranks::finish(const Failure& failure, int code, std::chrono::milliseconds patience) {
  const auto ranks = static_cast<std::size_t>(size_);
  std::vector<Ending> all(ranks);
  std::vector<MPI_Request> in(ranks, MPI_REQUEST_NULL), out(ranks, MPI_REQUEST_NULL);
  std::vector<char> known(ranks, 0);
  Ending& mine = all[static_cast<std::size_t>(rank_)];
  mine.code = code;
  if (failure.failed()) {
    mine.kind = failure.is_echo() ? Ending::echo : Ending::failed;
    mine.text = std::hash<std::string_view>{}(failure.text());
  }
  known[static_cast<std::size_t>(rank_)] = 1;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    const auto at = static_cast<std::size_t>(other);
    MPI_Irecv(&all[at], sizeof(Ending), MPI_BYTE, other, kEndTag, comm_, &in[at]);
    MPI_Isend(&mine, sizeof(Ending), MPI_BYTE, other, kEndTag, comm_, &out[at]);
  }
  const auto count_of = [&](auto kind) {
    std::size_t count = 0;
    for (std::size_t r = 0; r < ranks; ++r) count += known[r] != 0 && all[r].kind == kind ? 1U : 0U;
    return count;
  };
  const auto everyone = [&] { return std::count(known.begin(), known.end(), 1) == size_; };
  const auto poll_until = [&](Clock::time_point deadline, const auto& enough) {
    for (;;) {
      for (std::size_t r = 0; r < ranks; ++r) {
        int done = 0;
        if (known[r] == 0) MPI_Test(&in[r], &done, MPI_STATUS_IGNORE);
        if (done != 0) known[r] = 1;
        MPI_Test(&out[r], &done, MPI_STATUS_IGNORE);
      }
      if (enough() || Clock::now() >= deadline) return;
      std::this_thread::sleep_for(kStep);
    }
  };
  const auto print_and_abort = [&](bool alone) {
    const std::string text = core::visible_text(failure.text());
    if (alone) {
      std::fprintf(stderr, "phasor: rank %d: %s\n", rank_, text.c_str());
    } else {
      std::fprintf(stderr, "phasor%s%.*s: %s\n", failure.verb().empty() ? "" : " ",
                   static_cast<int>(failure.verb().size()), failure.verb().data(), text.c_str());
    }
    std::fflush(stderr);
    std::this_thread::sleep_for(kPrinted);
    MPI_Abort(comm_, exit_code::wrong);
  };

  if (mine.kind == Ending::done) {
    poll_until(Clock::now() + patience,
               [&] { return everyone() || count_of(Ending::failed) + count_of(Ending::echo) > 0; });
    if (everyone() && count_of(Ending::done) == ranks) {
      for (MPI_Request& request : out) MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Comm_free(&comm_);
      return std::max_element(all.begin(), all.end(),
                              [](const Ending& a, const Ending& b) { return a.code < b.code; })
          ->code;
    }
  } else {
    poll_until(Clock::now() + kGrace * (mine.kind == Ending::echo ? 2 : 1), everyone);
    const bool same = everyone() && count_of(Ending::failed) == ranks &&
                      std::all_of(all.begin(), all.end(),
                                  [&](const Ending& end) { return end.text == mine.text; });
    const bool has_own = count_of(Ending::failed) > 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (known[r] == 0 || all[r].kind != (has_own ? Ending::failed : Ending::echo)) continue;
      if (static_cast<int>(r) == rank_) print_and_abort(!same);
      break;
    }
  }
  // The rank that prints ends all of them. If it is gone, this one does.
  std::this_thread::sleep_for(3 * kGrace);
  MPI_Abort(comm_, exit_code::wrong);
  return exit_code::wrong;
}

}  // namespace phasor::tools
