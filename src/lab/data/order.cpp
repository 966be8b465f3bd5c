#include "lab/data/order.hpp"

#include <algorithm>
#include <numeric>

#include "phasor/core/error.hpp"

namespace phasor::lab {
namespace {

// Rows are sorted by length within groups of this many batches: short enough that epochs differ, long
// enough that little is padded.
constexpr std::int64_t kGroupBatches = 64;

}  // namespace

std::int64_t permuted(const Random& random, std::int64_t index, std::int64_t count) noexcept {
  int half = 1;
  while (half < 31 && (std::int64_t{1} << (2 * half)) < count) ++half;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  auto value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value >> half, right = value & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t next = left ^ (random.at(round << 32 | right) & mask);
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= static_cast<std::uint64_t>(count));
  return static_cast<std::int64_t>(value);
}

void check_settings(const BatchSettings& settings, std::int64_t least_tokens) {
  if (settings.rows < 1) refuse(message("batches: rows must be at least 1, got ", settings.rows));
  if (settings.tokens < least_tokens) {
    refuse(message("batches: tokens must be at least ", least_tokens, ", got ", settings.tokens));
  }
}

void check_step(const BatchSettings& settings, std::int64_t step, std::int64_t steps) {
  if (step >= 0 && (settings.order == Order::shuffled || step < steps)) return;
  const std::string limit =
      settings.order == Order::shuffled ? "at least 0" : message("from 0 to ", steps - 1);
  refuse(ErrorCode::out_of_range, message("batches: step must be ", limit, ", got ", step));
}

std::int32_t needed(std::optional<std::int64_t> id, std::string_view name) {
  if (!id) refuse(message("batches: the tokenizer has no ", name, " token"));
  return static_cast<std::int32_t>(*id);
}

RowOrder::RowOrder(const BatchSettings& settings, std::vector<std::int64_t> lengths)
    : settings_(settings), lengths_(std::move(lengths)) {
  const auto count = static_cast<std::int64_t>(lengths_.size());
  if (count == 0 || (settings_.order == Order::shuffled && count < settings_.rows)) {
    refuse(message("batches: the data must have at least ", settings_.rows,
                   " rows, one batch, got ", count));
  }
}

std::int64_t RowOrder::steps() const noexcept {
  const auto count = static_cast<std::int64_t>(lengths_.size());
  return settings_.order == Order::shuffled ? count / settings_.rows
                                            : (count + settings_.rows - 1) / settings_.rows;
}

std::vector<std::int64_t> RowOrder::rows_of(std::int64_t step) const {
  check_step(settings_, step, steps());
  const auto count = static_cast<std::int64_t>(lengths_.size());
  if (settings_.order == Order::sequential) {
    const std::int64_t first = step * settings_.rows;
    std::vector<std::int64_t> rows(
        static_cast<std::size_t>(std::min(settings_.rows, count - first)));
    std::iota(rows.begin(), rows.end(), first);
    return rows;
  }
  order_epoch(step / steps());
  const Random random(settings_.seed, Stream::batches, static_cast<std::uint64_t>(2 * epoch_ + 1));
  const auto first = order_.begin() + permuted(random, step % steps(), steps()) * settings_.rows;
  return {first, first + settings_.rows};
}

void RowOrder::order_epoch(std::int64_t epoch) const {
  if (epoch == epoch_) return;
  const auto count = static_cast<std::int64_t>(lengths_.size());
  const Random random(settings_.seed, Stream::batches, static_cast<std::uint64_t>(2 * epoch));
  std::vector<std::int64_t> order(lengths_.size());
  for (std::int64_t i = 0; i < count; ++i)
    order[static_cast<std::size_t>(i)] = permuted(random, i, count);
  const std::int64_t used = steps() * settings_.rows, group = kGroupBatches * settings_.rows;
  for (std::int64_t first = 0; first < used; first += group) {
    std::stable_sort(order.begin() + first, order.begin() + std::min(first + group, used),
                     [&](std::int64_t a, std::int64_t b) {
                       return lengths_[static_cast<std::size_t>(a)] <
                              lengths_[static_cast<std::size_t>(b)];
                     });
  }
  order_ = std::move(order);
  epoch_ = epoch;
}

}  // namespace phasor::lab
