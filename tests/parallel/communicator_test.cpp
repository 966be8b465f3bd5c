#include "phasor/parallel/communicator.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "parallel/ranks.hpp"

namespace phasor::parallel {
namespace {

using tests::ranks;

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Communicator, ExchangesInARing) {
  Communicator& all = ranks();
  const int next = (all.rank() + 1) % all.size(), last = (all.rank() + all.size() - 1) % all.size();
  // Longer than what Open MPI sends before the receiver answers.
  std::vector<int> out(100'000, all.rank()), in(100'000, -1);
  const std::int64_t before = all.bytes_sent();
  Transfer transfer = all.exchange(std::as_bytes(std::span(out)), next,
                                   std::as_writable_bytes(std::span(in)), last, 7);
  transfer.wait("ring");
  EXPECT_TRUE(transfer.done());
  EXPECT_EQ(in, std::vector<int>(100'000, last));
  EXPECT_EQ(all.bytes_sent() - before, 400'000);
}

TEST(Communicator, SumsGathersAndBroadcasts) {
  Communicator& all = ranks();
  const int size = all.size();
  std::vector<double> numbers{1.0, static_cast<double>(all.rank())};
  all.sum(std::span(numbers));
  EXPECT_EQ(numbers[0], size);
  EXPECT_EQ(numbers[1], size * (size - 1) / 2.0);
  all.max(std::span(numbers));
  EXPECT_EQ(numbers[0], size);
  const std::vector<std::string> texts =
      all.gather(std::string(static_cast<std::size_t>(all.rank()), 'x'));
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(size));
  for (std::size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r], std::string(r, 'x'));
  int value = all.rank() == size - 1 ? 42 : 0;
  all.broadcast(std::as_writable_bytes(std::span(&value, 1)), size - 1);
  EXPECT_EQ(value, 42);
  all.barrier();
}

TEST(Communicator, RefusesWhenRanksDisagreeOnEveryRank) {
  Communicator& all = ranks();
  EXPECT_NO_THROW(all.agree("shapes", "[1, 8, 2, 4]"));
  if (all.size() == 1) return;
  const bool differs = all.rank() == all.size() - 1;
  EXPECT_EQ(error_of([&] { all.agree("shapes", differs ? "[1, 9, 2, 4]" : "[1, 8, 2, 4]"); }),
            message("ranks must agree on shapes: rank 0 has [1, 8, 2, 4], rank ", all.size() - 1,
                    " has [1, 9, 2, 4]"));
}

TEST(Communicator, RefusesRanksAndTagsThatDoNotExist) {
  Communicator& all = ranks();
  EXPECT_EQ(
      error_of([&] { static_cast<void>(all.exchange({}, all.size(), {}, 0, 0)); }),
      message("exchange: to must be a rank from 0 to ", all.size() - 1, ", got ", all.size()));
  EXPECT_EQ(error_of([&] { static_cast<void>(all.exchange({}, 0, {}, 0, 5'000)); }),
            "exchange: tag must be from 0 to 1000, got 5000");
  EXPECT_EQ(error_of([] { Communicator none(MPI_COMM_NULL); }),
            "Communicator: the communicator is MPI_COMM_NULL");
}

TEST(Communicator, SplitsIntoRows) {
  Communicator& all = ranks();
  const std::unique_ptr<Communicator> row = all.split(all.rank() / 2, all.rank());
  EXPECT_EQ(row->rank(), all.rank() % 2);
  EXPECT_EQ(row->size(), std::min(2, all.size() - all.rank() / 2 * 2));
}

TEST(Communicator, ALateMessageEndsTheWait) {
  Communicator& all = ranks();
  Communicator hurried(all.handle(), {.patience = std::chrono::milliseconds(50)});
  if (all.size() > 1) {
    int value = 0;
    Transfer transfer = hurried.exchange({}, 0, std::as_writable_bytes(std::span(&value, 1)),
                                         (all.rank() + 1) % all.size(), 1);
    const std::string error = error_of([&] { transfer.wait("ring"); });
    // A rank that the system did not run in time is named after it.
    EXPECT_TRUE(error.starts_with(message("ring: rank ", all.rank(), " waited 50 ms for rank ",
                                          (all.rank() + 1) % all.size())))
        << error;
  }
  all.barrier();
}

TEST(Communicator, ARankThatStopsTellsTheOthers) {
  Communicator& all = ranks();
  Communicator group(all.handle(), all.options());
  if (all.size() > 1) {
    const int stops = all.size() - 1;
    const std::string error = error_of([&] {
      group.guarded([&] {
        if (group.rank() == stops) refuse("no more memory");
        int value = 0;
        group.exchange({}, 0, std::as_writable_bytes(std::span(&value, 1)), stops, 1).wait("ring");
      });
    });
    EXPECT_EQ(error, group.rank() == stops ? std::string("no more memory")
                                           : message("rank ", stops, " stopped: no more memory"));
  }
  all.barrier();
}

}  // namespace
}  // namespace phasor::parallel
