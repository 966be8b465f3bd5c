#include "parallel/linear/sums_exchange.hpp"

#include <algorithm>
#include <span>

#include "parallel/comm/slices.hpp"
#include "phasor/parallel/traffic.hpp"

namespace phasor::parallel {
namespace {

using attention::PartSums;

constexpr const char* kSumsOverRanks = "linear attention, sums over ranks";
constexpr int kSliceTag = 20, kTotalTag = 21, kPrefixTag = 22;

}  // namespace

SumsExchange::SumsExchange(Communicator& ranks, const PartSums& like, SumOver over)
    : ranks_(ranks), over_(over), result_(like) {
  if (over != SumOver::all) {
    steps_.assign(2, like);
    return;
  }
  exponents_.resize(static_cast<std::size_t>(like.heads()));
  const std::span<const double> numbers(like.numbers());
  slices_.resize(slice_of(numbers, ranks.size(), ranks.rank()).size() *
                 static_cast<std::size_t>(ranks.size()));
}

std::int64_t SumsExchange::bytes() const noexcept {
  return static_cast<std::int64_t>(
      ((1 + steps_.size()) * result_.numbers().size() + exponents_.size() + slices_.size()) *
      sizeof(double));
}

std::int64_t SumsExchange::bytes_sent(std::int64_t numbers, SumOver over, int ranks,
                                      int rank) noexcept {
  const auto bytes = static_cast<std::int64_t>(sizeof(double));
  if (over == SumOver::all) {
    const std::int64_t own =
        slice_start(numbers, ranks, rank + 1) - slice_start(numbers, ranks, rank);
    return bytes * (numbers - own + (ranks - 1) * own);
  }
  std::int64_t sent = 0;
  const int takers = over == SumOver::before ? ranks - 1 - rank : rank;
  for (int distance = 1; distance <= takers; distance *= 2) sent += bytes * numbers;
  return sent;
}

std::int64_t SumsExchange::bytes_held(std::int64_t numbers, std::int64_t heads, SumOver over,
                                      int ranks, int rank) noexcept {
  const auto bytes = static_cast<std::int64_t>(sizeof(double));
  if (over != SumOver::all) return bytes * 3 * numbers;
  const std::int64_t own =
      slice_start(numbers, ranks, rank + 1) - slice_start(numbers, ranks, rank);
  return bytes * (numbers + heads + ranks * own);
}

const PartSums& SumsExchange::add(const PartSums& own) {
  over_ == SumOver::all ? add_all(own) : add_prefix(own, over_ == SumOver::before ? 1 : -1);
  return result_;
}

void SumsExchange::add_all(const PartSums& own) {
  const int size = ranks_.size(), rank = ranks_.rank();
  result_ = own;
  // One unit for all, so that numbers can be added as they are. Sums over queries of all keys have one unit
  // already, or nothing counts.
  for (std::int64_t i = 0; i < own.heads(); ++i) {
    exponents_[static_cast<std::size_t>(i)] = result_.exponent(i);
  }
  ranks_.max(exponents_);
  for (std::int64_t i = 0; i < own.heads(); ++i) {
    result_.change_exponent(i, exponents_[static_cast<std::size_t>(i)]);
  }
  const std::span<double> numbers(result_.numbers());
  const std::span<double> mine = slice_of(numbers, size, rank);
  const auto from = [&](int other) {
    return std::span<double>(slices_).subspan(static_cast<std::size_t>(other) * mine.size(),
                                              mine.size());
  };
  std::vector<Transfer> transfers;
  for (int step = 1; step < size; ++step) {
    const int to = (rank + step) % size, other = (rank + size - step) % size;
    transfers.push_back(ranks_.exchange(std::as_bytes(slice_of(numbers, size, to)), to,
                                        std::as_writable_bytes(from(other)), other, kSliceTag));
  }
  std::copy(mine.begin(), mine.end(), from(rank).begin());
  for (Transfer& transfer : transfers) transfer.wait(kSumsOverRanks);
  transfers.clear();
  std::fill(mine.begin(), mine.end(), 0.0);
  for (int other = 0; other < size; ++other) {
    const std::span<const double> slice = from(other);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += slice[i];
  }
  for (int step = 1; step < size; ++step) {
    const int to = (rank + step) % size, other = (rank + size - step) % size;
    transfers.push_back(ranks_.exchange(std::as_bytes(mine), to,
                                        std::as_writable_bytes(slice_of(numbers, size, other)),
                                        other, kTotalTag));
  }
  for (Transfer& transfer : transfers) transfer.wait(kSumsOverRanks);
  for (std::int64_t i = 0; i < own.heads(); ++i) {
    result_.exponent(i) = exponents_[static_cast<std::size_t>(i)];
  }
}

void SumsExchange::add_prefix(const PartSums& own, int sign) {
  const int size = ranks_.size(), rank = ranks_.rank();
  const auto exists = [&](int other) { return other >= 0 && other < size; };
  PartSums &so_far = steps_[0], &incoming = steps_[1];
  result_.clear();
  so_far = own;
  for (int distance = 1; distance < size; distance *= 2) {
    const int to = rank + sign * distance, from = rank - sign * distance;
    const auto out = std::as_bytes(std::span<const double>(so_far.numbers()));
    const auto in = std::as_writable_bytes(std::span<double>(incoming.numbers()));
    ranks_
        .exchange(exists(to) ? out : std::span<const std::byte>{}, exists(to) ? to : rank,
                  exists(from) ? in : std::span<std::byte>{}, exists(from) ? from : rank,
                  kPrefixTag)
        .wait(kSumsOverRanks);
    if (!exists(from)) continue;
    result_.add(incoming);
    so_far.add(incoming);
  }
}

namespace {

std::int64_t numbers_of(const attention::LinearSizes& whole,
                        const attention::LinearOptions& options) {
  const std::int64_t width =
      options.features == attention::FeatureMap::favor ? options.feature_count : whole.head_dim;
  return whole.batch * whole.key_heads * (width * whole.value_dim + width + 1);
}

SumOver over_for(const attention::LinearOptions& options, SumOver causal) noexcept {
  return options.causality == attention::Causality::bottom_right ? causal : SumOver::all;
}

}  // namespace

RunBytes linear_bytes(const attention::LinearSizes& whole, const attention::LinearOptions& options,
                      int ranks, int rank) {
  const auto sent = [&](SumOver causal) {
    return SumsExchange::bytes_sent(numbers_of(whole, options), over_for(options, causal), ranks,
                                    rank);
  };
  const std::int64_t forward = sent(SumOver::before);
  return {forward, forward + sent(SumOver::after)};
}

std::int64_t linear_memory(const attention::LinearSizes& whole,
                           const attention::LinearOptions& options,
                           attention::AttentionPasses passes, int ranks, int rank) {
  const std::int64_t numbers = numbers_of(whole, options);
  const std::int64_t once =
      static_cast<std::int64_t>(sizeof(double)) * numbers +
      SumsExchange::bytes_held(numbers, whole.batch * whole.key_heads,
                               over_for(options, SumOver::before), ranks, rank);
  return passes == attention::AttentionPasses::forward ? once : 2 * once;
}

}  // namespace phasor::parallel
