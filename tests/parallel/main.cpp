// Runs every test on every rank of mpirun. Rank 0 prints; the others only their failures.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "parallel/ranks.hpp"

namespace {

using phasor::parallel::Communicator;

std::unique_ptr<Communicator> all;

class Failures final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", all->rank(),
                 result.file_name() == nullptr ? "?" : result.file_name(), result.line_number(),
                 result.summary());
  }
};

}  // namespace

Communicator& phasor::parallel::tests::ranks() { return *all; }

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  testing::InitGoogleTest(&argc, argv);
  all = std::make_unique<Communicator>(
      MPI_COMM_WORLD, phasor::parallel::CommunicatorOptions{.patience = std::chrono::seconds(20)});
  if (all->rank() != 0) {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Failures);
  }
  double failed = RUN_ALL_TESTS();
  all->max(std::span(&failed, 1));
  all.reset();
  MPI_Finalize();
  return failed != 0.0 ? 1 : 0;
}
