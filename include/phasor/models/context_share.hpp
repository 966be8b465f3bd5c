// A context that several processes (ranks) share: each keeps the keys and values of some of its tokens.
// The decoder calls this in place of attending to its own cache alone. phasor/parallel/models.hpp
// implements it over MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace phasor::models {

// Every function is called by all ranks, in the same order.
class ContextShare {
 public:
  virtual ~ContextShare() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int ranks() const noexcept = 0;

  // throws   Error, the same on every rank, unless all give the same value
  virtual void agree(std::string_view what, std::string_view value) = 0;

  static constexpr int kEveryRank = -1;
  // The bytes of every rank, one after the other, to rank `to` or to all. sizes[r] is the number of
  // bytes of rank r; `all` is not written on ranks that do not receive.
  virtual void gather(std::span<const std::byte> mine, std::span<const std::int64_t> sizes, int to,
                      std::span<std::byte> all) = 0;
  // The bytes of rank `from`, to all.
  virtual void broadcast(std::span<std::byte> bytes, int from) = 0;

  // Numbers of a question and of its answer, by the rank that asks.
  struct Sizes {
    std::int64_t question = 0, answer = 0;
  };
  using Answer =
      std::function<void(int asker, std::span<const float> question, std::span<float> answer)>;
  // Every rank asks all of them one question, itself included, and answers each by answer().
  //
  // sizes    [ranks]; a question of size 0 is not asked
  // answers  [ranks, sizes[rank()].answer]: those to the question of this rank
  virtual void ask(std::span<const float> question, std::span<const Sizes> sizes,
                   const Answer& answer, std::span<float> answers) = 0;
};

}  // namespace phasor::models
