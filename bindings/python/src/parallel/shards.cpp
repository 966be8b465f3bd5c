// Which tokens a rank holds, and the whole of an array again.
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "parallel/communicator.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "without_gil.hpp"

namespace phasor::python {
namespace {

using namespace nb::literals;  // NOLINT(google-build-using-namespace)
using parallel::Shards;
using parallel::TokenOrder;

// Bytes of one rank in a message of unshard.
constexpr std::int64_t kBlockBytes = std::int64_t{1} << 26;

[[nodiscard]] nb::object tokens_of(std::int64_t count, int ranks, int rank,
                                   std::string_view order) {
  if (count < 0)
    refuse(ErrorCode::out_of_range, message("tokens: count must be at least 0, got ", count));
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    refuse(ErrorCode::out_of_range,
           message("tokens: rank must be from 0 to ", ranks - 1, ", got ", rank));
  }
  const Shards shards(token_order_of(order), count, ranks);
  const std::int64_t rows = shards.count(rank);
  nb::object result = numpy_empty(std::span(&rows, 1), Element::i64);
  auto* const to = static_cast<std::int64_t*>(numpy_data(result));
  for (std::int64_t row = 0; row < rows; ++row) to[row] = shards.token(rank, row);
  return result;
}

// The array as [before, tokens, after], of bytes.
struct Blocks {
  std::int64_t before = 1, tokens = 0, after = 1;
};
[[nodiscard]] Blocks blocks_of(const Array& x, int axis) {
  Blocks blocks;
  for (int i = 0; i < x.rank(); ++i) {
    const std::int64_t length = x.shape()[static_cast<std::size_t>(i)];
    (i < axis ? blocks.before : i == axis ? blocks.tokens : blocks.after) *= i == axis ? 1 : length;
    if (i == axis) blocks.tokens = length;
  }
  blocks.after *= static_cast<std::int64_t>(size_of(x.element()));
  return blocks;
}

// Fills `whole` [before, all tokens, after] from the rows of every rank.
void gather_rows(parallel::Communicator& ranks, const Shards& shards, const Blocks& mine,
                 const std::byte* from, std::byte* whole, std::int64_t tokens) {
  std::int64_t longest = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) longest = std::max(longest, shards.count(rank));
  const std::int64_t row_bytes = std::max<std::int64_t>(mine.before * mine.after, 1);
  const std::int64_t step =
      std::clamp<std::int64_t>(kBlockBytes / row_bytes, 1, std::max<std::int64_t>(longest, 1));
  std::vector<std::byte> out(static_cast<std::size_t>(step * row_bytes));
  std::vector<std::byte> in(out.size() * static_cast<std::size_t>(ranks.size()));
  // Copies the rows [first, first + step) of a rank: to(before, row) <- from(before, row).
  const auto each_row = [&](int rank, std::int64_t first, const auto& copy) {
    const std::int64_t last = std::min(first + step, shards.count(rank));
    for (std::int64_t b = 0; b < mine.before; ++b)
      for (std::int64_t row = first; row < last; ++row)
        copy(b, row, (b * step + row - first) * mine.after);
  };
  const auto bytes = static_cast<std::size_t>(mine.after);
  for (std::int64_t first = 0; first < longest; first += step) {
    each_row(ranks.rank(), first, [&](std::int64_t b, std::int64_t row, std::int64_t at) {
      std::memcpy(out.data() + at, from + (b * mine.tokens + row) * mine.after, bytes);
    });
    ranks.gather(out, in);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const std::byte* const part = in.data() + static_cast<std::size_t>(rank) * out.size();
      each_row(rank, first, [&](std::int64_t b, std::int64_t row, std::int64_t at) {
        std::memcpy(whole + (b * tokens + shards.token(rank, row)) * mine.after, part + at, bytes);
      });
    }
  }
}

[[nodiscard]] nb::object unshard(nb::handle x, nb::handle comm, std::string_view order_name,
                                 int axis) {
  const nb::object communicator = communicator_of(comm);
  parallel::Communicator& ranks = ranks_of(communicator);
  std::optional<Array> array;
  TokenOrder order = TokenOrder::contiguous;
  int at = 0;
  check_together(ranks, [&] {
    order = token_order_of(order_name);
    array.emplace(x, "unshard: x");
    at = axis < 0 ? axis + array->rank() : axis;
    if (at < 0 || at >= array->rank()) {
      refuse(ErrorCode::shape_mismatch,
             message("unshard: x must have an axis ", axis, ", got ", array->text()));
    }
    if (!array->dense())
      refuse(ErrorCode::unsupported,
             message("unshard: x must be contiguous, got ", array->text(), " with gaps"));
  });
  const Blocks mine = blocks_of(*array, at);
  std::vector<std::int64_t> shape(array->shape().begin(), array->shape().end());
  std::int64_t tokens = 0;
  without_gil([&] {
    shape[static_cast<std::size_t>(at)] = -1;
    ranks.agree("unshard: order, shape and type of x (tokens as -1)",
                message(order_name, " ", core::shape_text(shape), " ", name_of(array->element())));
    tokens = whole_tokens(ranks, order, mine.tokens, "unshard: x");
  });
  shape[static_cast<std::size_t>(at)] = tokens;
  NewArray whole(x, array->element(), shape, "unshard: result");
  auto* const to = static_cast<std::byte*>(whole.array().writable());
  without_gil([&] {
    gather_rows(ranks, Shards(order, tokens, ranks.size()), mine,
                static_cast<const std::byte*>(array->data()), to, tokens);
  });
  return whole.finish();
}

}  // namespace

TokenOrder token_order_of(std::string_view name) {
  if (name == "contiguous") return TokenOrder::contiguous;
  if (name == "zigzag") return TokenOrder::zigzag;
  if (name == "striped") return TokenOrder::striped;
  refuse(message("parallel: order must be contiguous, zigzag or striped, got ", name));
}

parallel::WireType wire_of(std::string_view name) {
  if (name == "f32") return parallel::WireType::f32;
  if (name == "bf16") return parallel::WireType::bf16;
  refuse(message("parallel: wire must be f32 or bf16, got ", name));
}

std::int64_t whole_tokens(parallel::Communicator& ranks, TokenOrder order, std::int64_t mine,
                          std::string_view what) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks.size()));
  ranks.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(counts)));
  std::int64_t all = 0;
  for (const std::int64_t count : counts) all += count;
  const Shards shards(order, all, ranks.size());
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::int64_t wanted = shards.count(rank), got = counts[static_cast<std::size_t>(rank)];
    if (wanted == got) continue;
    refuse(ErrorCode::shape_mismatch,
           message(what, " has ", all, " tokens on all ranks: rank ", rank, " must have ", wanted,
                   " of them, got ", got, " (phasor.parallel.shard cuts an array)"));
  }
  return all;
}

void add_shards(nb::module_& module) {
  module.def("tokens_of", &tokens_of, "count"_a, "ranks"_a, "rank"_a, "order"_a,
             "The tokens of a rank, in the order of its rows: int64.");
  module.def("unshard", &unshard, "x"_a.none(), "comm"_a.none(), nb::kw_only(),
             "order"_a = "zigzag", "axis"_a = -3, "The whole array, on every rank.");
}

}  // namespace phasor::python
