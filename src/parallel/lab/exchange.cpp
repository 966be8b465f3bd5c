#include <algorithm>
#include <utility>

#include "phasor/parallel/internal/lab.hpp"

namespace phasor::parallel {
namespace {

using lab::Slice;

// Messages of one kind arrive in the order of their calls, so that buckets need no tags of their own.
constexpr int kGradientTag = 900, kParameterTag = 901, kMomentTag = 902;

}  // namespace

MpiGradientExchange::MpiGradientExchange(Communicator& ranks, const ExchangeOptions& options)
    : ranks_(ranks), options_(options) {
  if (options.bucket < 1) refuse("training: a bucket must have at least 1 number, got 0");
}

std::size_t MpiGradientExchange::buckets() const noexcept {
  return (count_ + options_.bucket - 1) / options_.bucket;
}

Slice MpiGradientExchange::slice_of(std::size_t bucket, int rank) const noexcept {
  const std::size_t first = bucket * options_.bucket;
  const std::size_t count = std::min(options_.bucket, count_ - first);
  const auto r = static_cast<std::size_t>(rank), size = static_cast<std::size_t>(ranks_.size());
  const std::size_t begin = count * r / size, end = count * (r + 1) / size;
  return {first + begin, end - begin};
}

std::size_t MpiGradientExchange::owned_by(int rank) const noexcept {
  std::size_t count = 0;
  for (std::size_t bucket = 0; bucket < buckets(); ++bucket) count += slice_of(bucket, rank).count;
  return count;
}

void MpiGradientExchange::divide(std::size_t count) {
  ranks_.agree("the number of parameters", std::to_string(count));
  count_ = count;
  slices_.clear();
  for (std::size_t bucket = 0; bucket < buckets(); ++bucket) {
    if (const Slice slice = slice_of(bucket, rank()); slice.count > 0) slices_.push_back(slice);
  }
}

void MpiGradientExchange::begin(std::span<float> gradients) {
  if (gradients.size() != count_) {
    refuse(ErrorCode::shape_mismatch, message("training: the ranks divide ", count_,
                                              " parameters, got ", gradients.size(), " gradients"));
  }
  gradients_ = gradients;
  started_ = buckets();
  under_way_.clear();
}

void MpiGradientExchange::start(std::size_t bucket) {
  Reduction reduction;
  reduction.bucket = bucket;
  if (!spare_.empty()) {
    reduction.contributions = std::move(spare_.back());
    spare_.pop_back();
  }
  const std::size_t own = slice_of(bucket, rank()).count;
  reduction.contributions.resize(own * static_cast<std::size_t>(size() - 1));
  std::size_t at = 0;
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    const Slice theirs = slice_of(bucket, other);
    reduction.transfers.push_back(
        ranks_.exchange(std::as_bytes(gradients_.subspan(theirs.first, theirs.count)), other,
                        std::as_writable_bytes(std::span(reduction.contributions).subspan(at, own)),
                        other, kGradientTag));
    at += own;
  }
  under_way_.push_back(std::move(reduction));
}

void MpiGradientExchange::add_up(const Reduction& reduction) {
  const Slice slice = slice_of(reduction.bucket, rank());
  const std::span<float> own = gradients_.subspan(slice.first, slice.count);
  const float* const others = reduction.contributions.data();
  for (std::size_t i = 0; i < own.size(); ++i) {
    float sum = rank() == 0 ? own[i] : others[i];
    for (int r = 1; r < size(); ++r) {
      // Contributions skip this rank.
      const auto index = static_cast<std::size_t>(r > rank() ? r - 1 : r);
      sum += r == rank() ? own[i] : others[index * own.size() + i];
    }
    own[i] = sum;
  }
}

bool MpiGradientExchange::progress() {
  std::erase_if(under_way_, [&](Reduction& reduction) {
    for (Transfer& transfer : reduction.transfers) transfer.poll();
    const bool arrived = std::all_of(reduction.transfers.begin(), reduction.transfers.end(),
                                     [](const Transfer& transfer) { return transfer.done(); });
    if (!arrived) return false;
    add_up(reduction);
    spare_.push_back(std::move(reduction.contributions));
    return true;
  });
  return under_way_.empty();
}

void MpiGradientExchange::final_from(std::size_t first) {
  while (started_ > 0 && (started_ - 1) * options_.bucket >= first) start(--started_);
  progress();
}

void MpiGradientExchange::finish() {
  final_from(0);
  for (Reduction& reduction : under_way_) {
    for (Transfer& transfer : reduction.transfers) transfer.wait("sum of gradients");
  }
  progress();
  gradients_ = {};
}

void MpiGradientExchange::gather_slices(std::span<float> numbers) {
  std::vector<Transfer> transfers;
  for (std::size_t bucket = 0; bucket < buckets(); ++bucket) {
    const Slice own = slice_of(bucket, rank());
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      const Slice theirs = slice_of(bucket, other);
      transfers.push_back(
          ranks_.exchange(std::as_bytes(numbers.subspan(own.first, own.count)), other,
                          std::as_writable_bytes(numbers.subspan(theirs.first, theirs.count)),
                          other, kParameterTag));
    }
  }
  for (Transfer& transfer : transfers) transfer.wait("gather of parameters");
}

void MpiGradientExchange::collect(std::span<const float> mine, std::span<float> all) {
  if (rank() != 0) {
    ranks_.exchange(std::as_bytes(mine), 0, {}, 0, kMomentTag).wait("gather of moments");
    return;
  }
  std::vector<float> theirs(mine.begin(), mine.end());
  for (int other = 0; other < size(); ++other) {
    if (other != 0) {
      theirs.resize(owned_by(other));
      ranks_.exchange({}, 0, std::as_writable_bytes(std::span(theirs)), other, kMomentTag)
          .wait("gather of moments");
    }
    auto from = theirs.begin();
    for (std::size_t bucket = 0; bucket < buckets(); ++bucket) {
      const Slice slice = slice_of(bucket, other);
      std::copy_n(from, slice.count, all.begin() + static_cast<std::ptrdiff_t>(slice.first));
      from += static_cast<std::ptrdiff_t>(slice.count);
    }
  }
}

void MpiGradientExchange::spread(std::span<const float> all, std::span<float> mine) {
  if (rank() != 0) {
    ranks_.exchange({}, 0, std::as_writable_bytes(mine), 0, kMomentTag).wait("spread of moments");
    return;
  }
  if (all.size() != count_) {
    refuse(ErrorCode::shape_mismatch,
           message("training: the optimiser has ", count_, " numbers, got ", all.size()));
  }
  std::vector<float> theirs;
  for (int other = 0; other < size(); ++other) {
    theirs.clear();
    for (std::size_t bucket = 0; bucket < buckets(); ++bucket) {
      const Slice slice = slice_of(bucket, other);
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(slice.first);
      theirs.insert(theirs.end(), first, first + static_cast<std::ptrdiff_t>(slice.count));
    }
    if (other == 0) {
      std::copy(theirs.begin(), theirs.end(), mine.begin());
    } else {
      ranks_.exchange(std::as_bytes(std::span(theirs)), other, {}, 0, kMomentTag)
          .wait("spread of moments");
    }
  }
}

void MpiGradientExchange::broadcast(std::span<std::byte> bytes) {
  // A call of MPI counts its bytes in an int.
  constexpr std::size_t kAtOnce = std::size_t{1} << 30;
  for (std::size_t first = 0; first < bytes.size(); first += kAtOnce) {
    ranks_.broadcast(bytes.subspan(first, std::min(kAtOnce, bytes.size() - first)), 0);
  }
}

void MpiGradientExchange::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  ranks_.gather(mine, all);
}

std::vector<std::string> MpiGradientExchange::gather(std::string_view mine) {
  return ranks_.gather(mine);
}

}  // namespace phasor::parallel
