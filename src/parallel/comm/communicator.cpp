#include "phasor/parallel/communicator.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <thread>
#include <utility>

#include "parallel/comm/build_id.hpp"

namespace phasor::parallel {
namespace {

using Clock = std::chrono::steady_clock;

// Of the communicator of notices: why a rank stops; a question whether a rank is there, and its answer.
constexpr int kNoticeTag = 0, kPingTag = 1, kPongTag = 2;
// A rank may have stopped after it did its part of what this one waits for: that may still arrive.
constexpr std::chrono::milliseconds kLastMessages{300};
// One message of MPI counts its elements in an int.
constexpr std::size_t kPartBytes = std::size_t{1} << 30;

void check(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  refuse(ErrorCode::io,
         message(call, " failed: ", std::string_view(text, static_cast<std::size_t>(length))));
}

[[nodiscard]] MPI_Comm duplicate_of(MPI_Comm comm) {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  if (initialised == 0 || finalised != 0) {
    refuse(message("Communicator: MPI must be running, but MPI_",
                   initialised == 0 ? "Init was not called" : "Finalize was called"));
  }
  if (comm == MPI_COMM_NULL) refuse("Communicator: the communicator is MPI_COMM_NULL");
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return copy;
}

[[nodiscard]] int count_of(std::size_t elements) {
  if (elements > static_cast<std::size_t>(INT_MAX)) {
    refuse(ErrorCode::out_of_range,
           message("a collective of MPI has at most ", INT_MAX, " elements, got ", elements));
  }
  return static_cast<int>(elements);
}

// Polls often at first, then leaves the processor to others: ranks may share cores.
class Pause {
 public:
  void operator()() {
    if (++polls_ < 200) return;
    std::this_thread::sleep_for(std::chrono::microseconds(polls_ < 2'000 ? 20 : 200));
  }

 private:
  int polls_ = 0;
};

}  // namespace

Transfer::Transfer(Transfer&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), requests_(std::move(other.requests_)) {
  other.requests_.clear();
}

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(requests_, other.requests_);
  return *this;
}

Transfer::~Transfer() {
  int finalised = 0;
  if (!requests_.empty()) MPI_Finalized(&finalised);
  for (Request& request : requests_) {
    if (finalised != 0 || request.handle == MPI_REQUEST_NULL) continue;
    // Collectives can be neither cancelled nor freed: MPI would abort with MPI_ERR_REQUEST. The program is
    // about to end then.
    if (request.other == MPI_ANY_SOURCE) continue;
    MPI_Cancel(&request.handle);
    MPI_Request_free(&request.handle);
  }
}

void Transfer::poll() {
  for (Request& request : requests_) {
    int done = 0;
    check(MPI_Test(&request.handle, &done, MPI_STATUS_IGNORE), "MPI_Test");
  }
  std::erase_if(requests_, [](const Request& r) { return r.handle == MPI_REQUEST_NULL; });
}

void Transfer::wait(std::string_view what) {
  if (requests_.empty()) return;
  const Clock::time_point start = Clock::now();
  Clock::time_point next_look = start, stop = start;
  Pause pause;
  for (poll(); !requests_.empty(); poll()) {
    const Clock::time_point now = Clock::now();
    if (now >= next_look) {
      if (!owner_->hears_stop()) {
        stop = now;
      } else if (now - stop > kLastMessages) {
        refuse(ErrorCode::io, owner_->stopped_);
      }
      next_look = now + std::chrono::milliseconds(10);
    }
    if (now - start > owner_->options_.patience) {
      const int other = requests_.front().other;
      const std::string silent = owner_->silent_ranks();
      std::string late = other == MPI_ANY_SOURCE ? "the other ranks" : message("rank ", other);
      // A rank may wait itself, for the one that is to blame.
      if (!silent.empty() && silent != late) late += message("; no answer from ", silent);
      refuse(ErrorCode::io, message(what, ": rank ", owner_->rank_, " waited ",
                                    owner_->options_.patience.count(), " ms for ", late));
    }
    pause();
  }
}

Communicator::Communicator(MPI_Comm comm, const CommunicatorOptions& options)
    : comm_(duplicate_of(comm)), notices_(duplicate_of(comm)), options_(options) {
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  const std::vector<std::string> all =
      gather(message("version " PHASOR_VERSION ", build ", build_id()));
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    refuse(ErrorCode::unsupported, message("ranks must run the same Phasor: rank 0 has ", all[0],
                                           ", rank ", r, " has ", all[r]));
  }
}

Communicator::~Communicator() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised != 0) return;
  MPI_Comm_free(&notices_);
  MPI_Comm_free(&comm_);
}

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_split(comm_, color, key, &part), "MPI_Comm_split");
  auto result = std::make_unique<Communicator>(part, options_);
  MPI_Comm_free(&part);
  return result;
}

Transfer Communicator::exchange(std::span<const std::byte> out, int to, std::span<std::byte> in,
                                int from, int tag) {
  const auto fits = [&](const char* name, int other) {
    if (other >= 0 && other < size_) return;
    refuse(ErrorCode::out_of_range,
           message("exchange: ", name, " must be a rank from 0 to ", size_ - 1, ", got ", other));
  };
  fits("to", to);
  fits("from", from);
  if (tag < 0 || tag > kLastTag) {
    refuse(ErrorCode::out_of_range,
           message("exchange: tag must be from 0 to ", kLastTag, ", got ", tag));
  }
  Transfer transfer;
  transfer.owner_ = this;
  for (std::size_t first = 0; first < in.size(); first += kPartBytes) {
    const std::size_t count = std::min(kPartBytes, in.size() - first);
    MPI_Request request = MPI_REQUEST_NULL;
    check(
        MPI_Irecv(in.data() + first, static_cast<int>(count), MPI_BYTE, from, tag, comm_, &request),
        "MPI_Irecv");
    transfer.requests_.push_back({request, from});
  }
  for (std::size_t first = 0; first < out.size(); first += kPartBytes) {
    const std::size_t count = std::min(kPartBytes, out.size() - first);
    MPI_Request request = MPI_REQUEST_NULL;
    check(
        MPI_Isend(out.data() + first, static_cast<int>(count), MPI_BYTE, to, tag, comm_, &request),
        "MPI_Isend");
    transfer.requests_.push_back({request, to});
  }
  bytes_sent_ += static_cast<std::int64_t>(out.size());
  return transfer;
}

void Communicator::add(Transfer& transfer, MPI_Request request, int other) {
  transfer.owner_ = this;
  transfer.requests_.push_back({request, other});
}

void Communicator::run(MPI_Request request, std::string_view what) {
  Transfer transfer;
  add(transfer, request);
  transfer.wait(what);
}

void Communicator::reduce(void* values, std::size_t count, MPI_Datatype type, MPI_Op operation,
                          std::string_view what) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(MPI_IN_PLACE, values, count_of(count), type, operation, comm_, &request),
        "MPI_Iallreduce");
  run(request, what);
}

void Communicator::sum(std::span<float> values) {
  reduce(values.data(), values.size(), MPI_FLOAT, MPI_SUM, "sum over ranks");
}
void Communicator::sum(std::span<double> values) {
  reduce(values.data(), values.size(), MPI_DOUBLE, MPI_SUM, "sum over ranks");
}
void Communicator::sum(std::span<std::int64_t> values) {
  reduce(values.data(), values.size(), MPI_INT64_T, MPI_SUM, "sum over ranks");
}
void Communicator::max(std::span<double> values) {
  reduce(values.data(), values.size(), MPI_DOUBLE, MPI_MAX, "maximum over ranks");
}

void Communicator::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() != mine.size() * static_cast<std::size_t>(size_)) {
    refuse(ErrorCode::shape_mismatch, message("gather: all must have ", size_, " x ", mine.size(),
                                              " bytes, got ", all.size()));
  }
  const int count = count_of(mine.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, comm_, &request),
        "MPI_Iallgather");
  run(request, "gather from ranks");
}

std::vector<std::string> Communicator::gather(std::string_view mine) {
  const auto ranks = static_cast<std::size_t>(size_);
  std::vector<std::int64_t> sizes(ranks);
  const auto size = static_cast<std::int64_t>(mine.size());
  gather(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)));
  const auto longest = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::string padded(mine), joined(ranks * longest, '\0');
  padded.resize(longest);
  gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(joined)));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r)
    texts.push_back(joined.substr(r * longest, static_cast<std::size_t>(sizes[r])));
  return texts;
}

void Communicator::broadcast(std::span<std::byte> bytes, int from) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibcast(bytes.data(), count_of(bytes.size()), MPI_BYTE, from, comm_, &request),
        "MPI_Ibcast");
  run(request, "broadcast");
}

void Communicator::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
  run(request, "barrier");
}

void Communicator::agree(std::string_view what, std::string_view value) {
  const std::vector<std::string> all = gather(value);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    refuse(message("ranks must agree on ", what, ": rank 0 has ", all[0], ", rank ", r, " has ",
                   all[r]));
  }
}

void Communicator::announce_stop(std::string_view reason) noexcept {
  // A rank that stops because another one did has nothing to add.
  if (announced_ || !stopped_.empty()) return;
  announced_ = true;
  std::memcpy(notice_.data(), reason.data(), std::min(reason.size(), kNoticeBytes - 1));
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    send_now(notice_.data(), kNoticeBytes, other, kNoticeTag);
  }
}

bool Communicator::hears_stop() {
  if (!stopped_.empty()) return true;
  if (const std::optional<int> from = waiting(kPingTag)) {
    char nothing = 0;
    receive(&nothing, 1, *from, kPingTag);
    send_now(&nothing_, 1, *from, kPongTag);
  }
  const std::optional<int> from = waiting(kNoticeTag);
  if (!from) return false;
  char notice[kNoticeBytes] = {};
  receive(notice, kNoticeBytes, *from, kNoticeTag);
  notice[kNoticeBytes - 1] = '\0';
  stopped_ = message("rank ", *from, " stopped: ", notice);
  return true;
}

std::string Communicator::silent_ranks() {
  std::vector<bool> answered(static_cast<std::size_t>(size_));
  answered[static_cast<std::size_t>(rank_)] = true;
  for (int other = 0; other < size_; ++other) {
    if (other != rank_) send_now(&nothing_, 1, other, kPingTag);
  }
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(500);
  while (Clock::now() < end && std::ranges::find(answered, false) != answered.end()) {
    if (hears_stop()) refuse(ErrorCode::io, stopped_);
    if (const std::optional<int> from = waiting(kPongTag)) {
      char nothing = 0;
      receive(&nothing, 1, *from, kPongTag);
      answered[static_cast<std::size_t>(*from)] = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::string text;
  for (int other = 0; other < size_; ++other) {
    if (!answered[static_cast<std::size_t>(other)])
      text += message(text.empty() ? "rank " : ", rank ", other);
  }
  return text;
}

std::optional<int> Communicator::waiting(int tag) {
  int waits = 0;
  MPI_Status status;
  check(MPI_Iprobe(MPI_ANY_SOURCE, tag, notices_, &waits, &status), "MPI_Iprobe");
  if (waits == 0) return std::nullopt;
  return status.MPI_SOURCE;
}

void Communicator::receive(char* bytes, std::size_t count, int from, int tag) {
  check(MPI_Recv(bytes, static_cast<int>(count), MPI_BYTE, from, tag, notices_, MPI_STATUS_IGNORE),
        "MPI_Recv");
}

void Communicator::send_now(const char* bytes, std::size_t count, int to, int tag) noexcept {
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Isend(bytes, static_cast<int>(count), MPI_BYTE, to, tag, notices_, &request) !=
      MPI_SUCCESS)
    return;
  int done = 0;
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  if (done == 0) MPI_Request_free(&request);
}

}  // namespace phasor::parallel
