// The all-to-all of head-parallel attention: from the tokens of this rank with all heads to all tokens with the
// heads of this rank, and back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "phasor/core/view.hpp"
#include "phasor/parallel/communicator.hpp"
#include "phasor/parallel/shards.hpp"

namespace phasor::parallel {

struct HeadRange {
  std::int64_t first = 0, count = 0;
};
// The heads of a rank. `heads` is a multiple of `ranks`, or a divisor: then neighbouring ranks share a head.
[[nodiscard]] HeadRange heads_of(std::int64_t heads, int ranks, int rank) noexcept;

// The rows that the tokens of each rank have in the tensor of all tokens.
using TokenRows = std::vector<std::vector<TokenRun>>;
[[nodiscard]] TokenRows token_rows(const Shards& shards);
[[nodiscard]] std::int64_t count_of(const std::vector<TokenRun>& runs) noexcept;

// Room for so many bytes and no more, and never null.
void fit(std::vector<std::byte>& memory, std::size_t bytes);

class HeadExchange {
 public:
  enum class Side : std::uint8_t { queries, keys };
  // gather: from [batch, own tokens, heads, dim] to [batch, all tokens, own heads, dim]; release: the other way.
  // What is gathered has the type that travels.
  struct Move {
    Side side;
    core::ConstHeadsView from;
    core::HeadsView to;
  };

  HeadExchange(Communicator& ranks, TokenRows queries, TokenRows keys, std::int64_t heads,
               std::int64_t key_heads);

  // Collective, in one message to every other rank.
  //
  // throws   Error(io)
  void gather(std::span<const Move> moves);
  // The gradients of heads that ranks share are summed, in the order of the ranks.
  void release(std::span<const Move> moves);

  [[nodiscard]] HeadRange heads(Side side, int rank) const noexcept;
  [[nodiscard]] std::int64_t count(Side side, int rank) const noexcept;
  // Of the messages, after the first run.
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  struct Message {
    std::size_t first = 0, size = 0;  // bytes in `sent_` or `received_`
  };
  [[nodiscard]] const TokenRows& rows(Side side) const noexcept;
  template <class Elements>
  static void lay_out(std::vector<Message>& messages, std::vector<std::byte>& memory,
                      const Elements& bytes_of);
  void swap_messages();

  Communicator& ranks_;
  TokenRows queries_, keys_;
  std::int64_t heads_, key_heads_;
  std::vector<Message> out_, in_;  // by rank; the own message is written where it is received
  std::vector<std::byte> sent_, received_, sums_;
};

}  // namespace phasor::parallel
