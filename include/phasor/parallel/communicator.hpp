// Messages between the ranks of an MPI program. Every wait has a deadline, and a rank that stops tells the
// others why: no call waits for ever.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include "phasor/core/error.hpp"

namespace phasor::parallel {

struct CommunicatorOptions {
  // How long a rank waits for another one before it gives up.
  std::chrono::milliseconds patience{60'000};
};

class Communicator;

// Messages under way. Their memory must stay as it is until wait() has returned or thrown. Destroying
// unfinished messages cancels them.
class Transfer {
 public:
  Transfer() noexcept = default;
  ~Transfer();
  Transfer(Transfer&& other) noexcept;
  Transfer& operator=(Transfer&& other) noexcept;

  [[nodiscard]] bool done() const noexcept { return requests_.empty(); }
  // Lets MPI move data, without waiting. Called now and then while this rank computes: Open MPI moves a
  // large message only inside its own functions.
  //
  // throws   Error(io)
  void poll();
  // throws   Error(io): the patience is over, or another rank has stopped, with its rank and reason
  void wait(std::string_view what);

 private:
  friend class Communicator;
  struct Request {
    MPI_Request handle = MPI_REQUEST_NULL;
    int other = MPI_ANY_SOURCE;  // the rank at the other end; MPI_ANY_SOURCE: all of them
  };
  Communicator* owner_ = nullptr;
  std::vector<Request> requests_;
};

// A group of ranks. Every function that says "collective" is called by all of them, in the same order.
// Used by one thread at a time, as MPI_THREAD_FUNNELED asks. It must outlive its transfers.
class Communicator {
 public:
  // Collective. Works on a duplicate of `comm`, so that its messages meet no others. All ranks must run
  // the same version and build of Phasor.
  //
  // throws   Error(invalid_argument): MPI is not initialised, or a null communicator; Error(unsupported),
  //          on every rank: ranks that run different versions or builds, with the first that differs
  explicit Communicator(MPI_Comm comm, const CommunicatorOptions& options = {});
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] MPI_Comm handle() const noexcept { return comm_; }
  [[nodiscard]] const CommunicatorOptions& options() const noexcept { return options_; }

  // Collective: the ranks of one color, ordered by key, as a group of their own.
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key);

  // Starts sending and receiving in one transfer. Either may be empty. `tag` is from 0 to kLastTag; two
  // ranks exchange messages of one tag in the order of their calls.
  //
  // throws   Error(out_of_range): a rank or tag that does not exist; Error(io)
  [[nodiscard]] Transfer exchange(std::span<const std::byte> out, int to, std::span<std::byte> in,
                                  int from, int tag);
  // Adds a nonblocking operation of MPI on handle(), `other` being the rank at the other end.
  void add(Transfer& transfer, MPI_Request request, int other = MPI_ANY_SOURCE);
  static constexpr int kLastTag = 1'000;

  // Collective. The sum over ranks, in place: the same bits on every rank.
  //
  // throws   Error(io) as Transfer::wait
  void sum(std::span<float> values);
  void sum(std::span<double> values);
  void sum(std::span<std::int64_t> values);
  void max(std::span<double> values);
  // Collective: mine of every rank, one after the other. all.size() = size() * mine.size().
  void gather(std::span<const std::byte> mine, std::span<std::byte> all);
  // Collective: text of every rank.
  [[nodiscard]] std::vector<std::string> gather(std::string_view mine);
  // Collective: the bytes of rank `from`, to all.
  void broadcast(std::span<std::byte> bytes, int from);
  void barrier();

  // Collective. Refuses unless every rank gives the same `value`: a shape, a spec, a list of options as
  // text. Called before anything is written.
  //
  // throws   Error(invalid_argument), the same on every rank: "attend: ranks must agree on shapes, rank 0
  //          has [1, 8, 2, 4], rank 2 has [1, 9, 2, 4]"
  void agree(std::string_view what, std::string_view value);
  // Tells the other ranks that this one stops, and why: their waits then throw at once. Not collective;
  // no exception leaves it.
  void announce_stop(std::string_view reason) noexcept;
  // Runs work(); an exception is announced to the other ranks before it leaves.
  template <class Work>
  decltype(auto) guarded(Work&& work) {
    try {
      return work();
    } catch (const std::exception& error) {
      announce_stop(error.what());
      throw;
    }
  }

  // Bytes that exchange() of this rank has sent.
  [[nodiscard]] std::int64_t bytes_sent() const noexcept { return bytes_sent_; }

 private:
  friend class Transfer;
  // Answers ranks that ask whether this one is there. Whether another rank has announced that it stops.
  [[nodiscard]] bool hears_stop();
  // The ranks that do not answer within half a second, as text: they are gone, stopped, or compute.
  [[nodiscard]] std::string silent_ranks();
  [[nodiscard]] std::optional<int> waiting(int tag);  // from which rank a small message is there
  void receive(char* bytes, std::size_t count, int from, int tag);
  // Messages that are small enough to be sent at once, whether or not the other rank still listens. The bytes
  // must stay.
  void send_now(const char* bytes, std::size_t count, int to, int tag) noexcept;
  void run(MPI_Request request, std::string_view what);
  void reduce(void* values, std::size_t count, MPI_Datatype type, MPI_Op operation,
              std::string_view what);

  MPI_Comm comm_ = MPI_COMM_NULL;     // messages
  MPI_Comm notices_ = MPI_COMM_NULL;  // why a rank stops
  CommunicatorOptions options_;
  int rank_ = 0, size_ = 1;
  std::int64_t bytes_sent_ = 0;
  static constexpr std::size_t kNoticeBytes = 512;
  std::string stopped_;                         // the notice of another rank
  std::array<char, kNoticeBytes> notice_ = {};  // of this rank, while it is sent
  char nothing_ = 0;
  bool announced_ = false;
};

}  // namespace phasor::parallel
