// Models over a context that the ranks of MPI share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "phasor/models/context_share.hpp"
#include "phasor/parallel/communicator.hpp"

namespace phasor::parallel {

// Given to models::SequenceOptions::share, so that each rank keeps the keys and values of about
// tokens / ranks tokens:
//
//   SharedContext context(ranks);
//   Sequence sequence = decoder.sequence({.capacity = 1'000'000, .share = &context});
//   decoder.forward(...);   // on every rank, with the same ids
//
// Every rank loads all weights. A divided call of n tokens sends, in each layer, the rank's queries to every
// other rank and their partial results back: n / P * (P - 1) * (2 width + heads) numbers of float32 from each
// rank, width being heads * head_dim, whatever the length of the context. One token: its partial result
// to every rank.
//
// throws   of every function, Error(io): a rank has stopped or is late
class SharedContext final : public models::ContextShare {
 public:
  // `ranks` must outlive it.
  explicit SharedContext(Communicator& ranks) : all_(ranks) {}

  [[nodiscard]] int rank() const noexcept override { return all_.rank(); }
  [[nodiscard]] int ranks() const noexcept override { return all_.size(); }
  void agree(std::string_view what, std::string_view value) override { all_.agree(what, value); }
  void gather(std::span<const std::byte> mine, std::span<const std::int64_t> sizes, int to,
              std::span<std::byte> all) override;
  void broadcast(std::span<std::byte> bytes, int from) override { all_.broadcast(bytes, from); }
  void ask(std::span<const float> question, std::span<const Sizes> sizes, const Answer& answer,
           std::span<float> answers) override;

 private:
  Communicator& all_;
  std::vector<float> questions_, given_;  // of the other ranks, and the answers to them
};

}  // namespace phasor::parallel
