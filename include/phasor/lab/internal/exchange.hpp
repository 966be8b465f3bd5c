// Training on several ranks: what they tell each other. The lab knows no MPI; room parallel implements it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::lab {

// Numbers [first, first + count) of a network's one array of parameters.
struct Slice {
  std::size_t first = 0, count = 0;
};

// How far training on several ranks may be from that on one rank with the same batches, in units of float32
// epsilon. Rows are computed alike on any rank; sums over rows are added in another order.
inline constexpr double kRanksLossError =
    8.0;  // of a loss with the same parameters, relative to it
inline constexpr double kRanksGradientError = 32.0;  // of its gradients, relative to their norm
// Of the curves of losses, norms and validation losses, relative to them, for each step so far: an error of
// the gradients moves the parameters of all later steps. Norms of gradients move most.
inline constexpr double kRanksCurveError = 32.0;

// An error that every rank throws at the same place, with the same code: they can go on together. Any other
// error is of one rank, and ends the others' waits.
class SharedError : public Error {
 public:
  using Error::Error;
};

// Sums gradients over ranks while backward still computes, and divides the state of the optimiser: each
// rank keeps the moments of its slices, updates their parameters and gets those of the others.
//
// All functions but rank(), size() and slices() are collective: every rank calls them, in the same order.
// throws   Error(io): another rank has stopped or is late
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  // Divides arrays of `count` numbers, until the next call. The slices of all ranks together are the whole
  // array; those of a rank are in order.
  virtual void divide(std::size_t count) = 0;
  [[nodiscard]] virtual std::span<const Slice> slices() const noexcept = 0;

  // The gradients of one step: begin(), any number of final_from() with falling offsets, finish().
  // After finish() the slices of this rank hold the sums over all ranks, in a fixed order of additions; the
  // other numbers are those of this rank alone.
  virtual void begin(std::span<float> gradients) = 0;
  // Gradients [first, end) of this rank are final. Not collective.
  virtual void final_from(std::size_t first) = 0;
  virtual void finish() = 0;

  // The slices of every rank, to all ranks, in place.
  virtual void gather_slices(std::span<float> numbers) = 0;
  // mine: the numbers of this rank's slices, one after the other; all: the whole array, on rank 0 only.
  virtual void collect(std::span<const float> mine, std::span<float> all) = 0;
  virtual void spread(std::span<const float> all, std::span<float> mine) = 0;

  // The bytes of rank 0, to all.
  virtual void broadcast(std::span<std::byte> bytes) = 0;
  // The bytes of every rank, in order of ranks; all.size() = size() * mine.size().
  virtual void gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  // Text of any length.
  [[nodiscard]] virtual std::vector<std::string> gather(std::string_view mine) = 0;
};

}  // namespace phasor::lab
