// Data-parallel training: the rows of a step's batch divided over ranks, gradients summed while backward
// still computes, and the state of the optimiser divided over ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/lab/internal/exchange.hpp"
#include "phasor/parallel/communicator.hpp"

namespace phasor::parallel {

// Bytes of gradients and parameters that all `ranks` ranks together send in one step: each gradient to the
// rank that updates it, each parameter from there to all others.
//
//   2 * 4 * parameters * (ranks - 1)          of one rank: 2 * 4 * parameters * (ranks - 1) / ranks
[[nodiscard]] constexpr std::int64_t training_bytes_per_step(std::int64_t parameters,
                                                             std::int64_t ranks) noexcept {
  return 2 * 4 * parameters * (ranks - 1);
}

struct ExchangeOptions {
  // Gradients that are sent together: fewer overlap better, more have fewer messages.
  std::size_t bucket = std::size_t{1} << 18;
};

// The array is cut into buckets from its start on, and each bucket into a slice for each rank, so that all
// ranks send and receive alike at any time. A bucket is sent when its gradients are final; its owner adds
// the contributions in the order of ranks, so that a run has the same bits whenever messages arrive.
//
// memory   besides moments of parameters / ranks numbers: contributions of the buckets that are under way,
//          at most (ranks - 1) / ranks of the gradients
class MpiGradientExchange final : public lab::GradientExchange {
 public:
  // The communicator must outlive it.
  explicit MpiGradientExchange(Communicator& ranks, const ExchangeOptions& options = {});

  [[nodiscard]] int rank() const noexcept override { return ranks_.rank(); }
  [[nodiscard]] int size() const noexcept override { return ranks_.size(); }
  void divide(std::size_t count) override;
  [[nodiscard]] std::span<const lab::Slice> slices() const noexcept override { return slices_; }
  void begin(std::span<float> gradients) override;
  void final_from(std::size_t first) override;
  void finish() override;
  void gather_slices(std::span<float> numbers) override;
  void collect(std::span<const float> mine, std::span<float> all) override;
  void spread(std::span<const float> all, std::span<float> mine) override;
  void broadcast(std::span<std::byte> bytes) override;
  void gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  [[nodiscard]] std::vector<std::string> gather(std::string_view mine) override;

 private:
  // Contributions of the other ranks to this rank's slice of a bucket.
  struct Reduction {
    std::size_t bucket = 0;
    std::vector<float> contributions;  // of the ranks but this one, in order
    std::vector<Transfer> transfers;
  };
  [[nodiscard]] std::size_t buckets() const noexcept;
  [[nodiscard]] lab::Slice slice_of(std::size_t bucket, int rank) const noexcept;
  void start(std::size_t bucket);
  // Adds up what has arrived; returns whether all has.
  bool progress();
  void add_up(const Reduction& reduction);
  // Numbers of a rank's slices.
  [[nodiscard]] std::size_t owned_by(int rank) const noexcept;

  Communicator& ranks_;
  ExchangeOptions options_;
  std::size_t count_ = 0;
  std::vector<lab::Slice> slices_;
  std::span<float> gradients_;
  std::size_t started_ = 0;  // buckets from here on are under way
  std::vector<Reduction> under_way_;
  std::vector<std::vector<float>> spare_;  // memory of finished reductions
};

}  // namespace phasor::parallel
