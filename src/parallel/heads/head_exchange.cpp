#include "parallel/heads/head_exchange.hpp"

#include <algorithm>
#include <type_traits>

#include "parallel/attention/heads_data.hpp"

namespace phasor::parallel {
namespace {

using core::ConstHeadsView;
using core::HeadsView;

constexpr int kHeadsTag = 30;

std::int64_t size_of_elements(core::DType dtype, std::int64_t count) noexcept {
  return count * static_cast<std::int64_t>(core::size_of(dtype));
}

template <class Void>
core::BasicHeadsView<Void> heads_of_view(core::BasicHeadsView<Void> view, HeadRange range) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  if (view.data != nullptr) {
    view.data = static_cast<Byte*>(view.data) +
                size_of_elements(view.dtype, range.first * view.head_stride);
  }
  view.heads = range.count;
  return view;
}

// The rows of a run in the tensor of all tokens.
template <class Void>
core::BasicHeadsView<Void> run_of_view(const core::BasicHeadsView<Void>& view,
                                       const TokenRun& run) {
  core::BasicHeadsView<Void> rows = rows_of_view(view, run.first_token, run.count);
  rows.token_stride *= run.stride;
  return rows;
}

HeadsView dense_view(std::byte* data, core::DType dtype, std::int64_t batch, std::int64_t tokens,
                     std::int64_t heads, std::int64_t dim) {
  return {data, dtype, batch, tokens, heads, dim, tokens * heads * dim, heads * dim, dim};
}

std::int64_t bytes_of(const HeadsView& view) noexcept {
  return size_of_elements(view.dtype, view.batch * view.tokens * view.heads * view.head_dim);
}

}  // namespace

HeadRange heads_of(std::int64_t heads, int ranks, int rank) noexcept {
  return {heads * rank / ranks, std::max<std::int64_t>(heads / ranks, 1)};
}

TokenRows token_rows(const Shards& shards) {
  TokenRows rows;
  for (int rank = 0; rank < shards.ranks(); ++rank) rows.push_back(shards.runs(rank));
  return rows;
}

std::int64_t count_of(const std::vector<TokenRun>& runs) noexcept {
  std::int64_t count = 0;
  for (const TokenRun& run : runs) count += run.count;
  return count;
}

void fit(std::vector<std::byte>& memory, std::size_t bytes) {
  memory.reserve(std::max<std::size_t>(bytes, 1));
  memory.resize(bytes);
}

HeadExchange::HeadExchange(Communicator& ranks, TokenRows queries, TokenRows keys,
                           std::int64_t heads, std::int64_t key_heads)
    : ranks_(ranks),
      queries_(std::move(queries)),
      keys_(std::move(keys)),
      heads_(heads),
      key_heads_(key_heads),
      out_(static_cast<std::size_t>(ranks.size())),
      in_(static_cast<std::size_t>(ranks.size())) {}

const TokenRows& HeadExchange::rows(Side side) const noexcept {
  return side == Side::queries ? queries_ : keys_;
}
HeadRange HeadExchange::heads(Side side, int rank) const noexcept {
  return heads_of(side == Side::queries ? heads_ : key_heads_, ranks_.size(), rank);
}
std::int64_t HeadExchange::count(Side side, int rank) const noexcept {
  return count_of(rows(side)[static_cast<std::size_t>(rank)]);
}
std::size_t HeadExchange::bytes() const noexcept {
  return sent_.capacity() + received_.capacity() + sums_.capacity();
}

template <class Elements>
void HeadExchange::lay_out(std::vector<Message>& messages, std::vector<std::byte>& memory,
                           const Elements& bytes_of) {
  std::size_t used = 0;
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    messages[rank] = {used, static_cast<std::size_t>(bytes_of(static_cast<int>(rank)))};
    // Numbers of the next message are aligned.
    used += (messages[rank].size + 63) / 64 * 64;
  }
  fit(memory, used);
}

void HeadExchange::swap_messages() {
  const int size = ranks_.size(), rank = ranks_.rank();
  std::vector<Transfer> transfers;
  for (int step = 1; step < size; ++step) {
    const int to = (rank + step) % size, from = (rank + size - step) % size;
    const Message& out = out_[static_cast<std::size_t>(to)];
    const Message& in = in_[static_cast<std::size_t>(from)];
    transfers.push_back(ranks_.exchange(std::span(sent_).subspan(out.first, out.size), to,
                                        std::span(received_).subspan(in.first, in.size), from,
                                        kHeadsTag));
  }
  for (Transfer& transfer : transfers) transfer.wait("attention by heads");
}

void HeadExchange::gather(std::span<const Move> moves) {
  const int rank = ranks_.rank();
  // Of one rank's tokens and another rank's heads.
  const auto bytes = [&](int tokens_of, int heads_of) {
    std::int64_t sum = 0;
    for (const Move& m : moves) {
      sum += size_of_elements(m.to.dtype, m.from.batch * count(m.side, tokens_of) *
                                              heads(m.side, heads_of).count * m.from.head_dim);
    }
    return sum;
  };
  lay_out(out_, sent_, [&](int other) { return other == rank ? 0 : bytes(rank, other); });
  lay_out(in_, received_, [&](int other) { return bytes(other, rank); });
  for (int other = 0; other < ranks_.size(); ++other) {
    const auto index = static_cast<std::size_t>(other);
    std::byte* at =
        other == rank ? received_.data() + in_[index].first : sent_.data() + out_[index].first;
    for (const Move& m : moves) {
      const HeadRange range = heads(m.side, other);
      const HeadsView packed =
          dense_view(at, m.to.dtype, m.from.batch, m.from.tokens, range.count, m.from.head_dim);
      copy_heads(heads_of_view(m.from, range), packed);
      at += bytes_of(packed);
    }
  }
  swap_messages();
  for (int other = 0; other < ranks_.size(); ++other) {
    const auto index = static_cast<std::size_t>(other);
    std::byte* at = received_.data() + in_[index].first;
    for (const Move& m : moves) {
      const HeadsView packed =
          dense_view(at, m.to.dtype, m.to.batch, count(m.side, other), m.to.heads, m.to.head_dim);
      for (const TokenRun& run : rows(m.side)[index]) {
        copy_heads(rows_of_view(packed, run.first_row, run.count), run_of_view(m.to, run));
      }
      at += bytes_of(packed);
    }
  }
}

void HeadExchange::release(std::span<const Move> moves) {
  const int rank = ranks_.rank();
  const auto bytes = [&](int tokens_of, int heads_of) {
    std::int64_t sum = 0;
    for (const Move& m : moves) {
      sum += size_of_elements(m.from.dtype, m.from.batch * count(m.side, tokens_of) *
                                                heads(m.side, heads_of).count * m.from.head_dim);
    }
    return sum;
  };
  lay_out(out_, sent_, [&](int other) { return other == rank ? 0 : bytes(other, rank); });
  lay_out(in_, received_, [&](int other) { return bytes(rank, other); });
  for (int other = 0; other < ranks_.size(); ++other) {
    const auto index = static_cast<std::size_t>(other);
    std::byte* at =
        other == rank ? received_.data() + in_[index].first : sent_.data() + out_[index].first;
    for (const Move& m : moves) {
      const HeadsView packed = dense_view(at, m.from.dtype, m.from.batch, count(m.side, other),
                                          m.from.heads, m.from.head_dim);
      for (const TokenRun& run : rows(m.side)[index]) {
        copy_heads(run_of_view(m.from, run), rows_of_view(packed, run.first_row, run.count));
      }
      at += bytes_of(packed);
    }
  }
  swap_messages();
  std::int64_t offset = 0;  // of a move in the messages of ranks with heads of the same number
  for (const Move& m : moves) {
    const auto packed = [&](int other) {
      return dense_view(received_.data() + in_[static_cast<std::size_t>(other)].first + offset,
                        m.from.dtype, m.to.batch, m.to.tokens, m.from.heads, m.to.head_dim);
    };
    const bool shared = m.side == Side::keys && key_heads_ < ranks_.size();
    const int sharers = shared ? ranks_.size() / static_cast<int>(key_heads_) : 1;
    for (int first = 0; first < ranks_.size(); first += sharers) {
      const HeadsView own = heads_of_view(m.to, heads(m.side, first));
      if (!shared) {
        copy_heads(packed(first), own);
        continue;
      }
      HeadsView sum = packed(first);
      sum.dtype = sum.dtype == core::DType::f64 ? core::DType::f64 : core::DType::f32;
      fit(sums_, static_cast<std::size_t>(bytes_of(sum)));
      sum.data = sums_.data();
      copy_heads(packed(first), sum);
      for (int other = first + 1; other < first + sharers; ++other) add_heads(packed(other), sum);
      copy_heads(sum, own);
    }
    offset += bytes_of(packed(rank));
  }
}

}  // namespace phasor::parallel
