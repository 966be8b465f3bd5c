// Pair matching: do two passages come from the same work?
#include <algorithm>

#include "lab/data/order.hpp"
#include "phasor/core/error.hpp"

namespace phasor::lab {
namespace {

struct Span {
  std::int64_t first = 0, count = 0;
};

std::vector<Span> units_of(const TokenCorpus& corpus, Unit unit) {
  std::vector<Span> units;
  std::int32_t work = -1;
  for (const TokenCorpus::Section& section : corpus.sections()) {
    if (unit == Unit::section || section.work != work) {
      units.push_back({section.first, section.count});
    } else {
      units.back().count = section.first + section.count - units.back().first;
    }
    work = section.work;
  }
  return units;
}

class MatchingBatches final : public Batches {
 public:
  MatchingBatches(std::shared_ptr<const TokenCorpus> corpus, const BatchSettings& settings,
                  const MatchingSettings& matching)
      : corpus_(std::move(corpus)),
        settings_(settings),
        classify_(needed(corpus_->specials().classify, "[CLS]")),
        separate_(needed(corpus_->specials().separate, "[SEP]")) {
    const std::int64_t longest = std::max(matching.longest_tokens, settings.tokens);
    const std::int64_t least = longest - 3;  // two passages
    std::vector<Span> units = units_of(*corpus_, matching.unit);
    left_out_ = std::erase_if(units, [&](const Span& unit) { return unit.count < least; });
    if (units.size() < 2) {
      refuse(message("batches: matching needs at least 2 units of at least ", least,
                     " tokens, got ", units.size(), " of ", units.size() + left_out_));
    }
    for (const Span& unit : units) {
      units_.push_back(unit);
      total_ += unit.count;
      ends_.push_back(total_);
    }
  }

  [[nodiscard]] std::int64_t steps() const noexcept override {
    return std::max<std::int64_t>(1, total_ / (settings_.rows * (settings_.tokens - 3)));
  }
  [[nodiscard]] std::int64_t left_out() const noexcept override {
    return static_cast<std::int64_t>(left_out_);
  }
  [[nodiscard]] Batch at(std::int64_t step) const override {
    check_step(settings_, step, steps());
    Batch batch;
    batch.rows = settings_.rows;
    batch.tokens = settings_.tokens;
    for (std::int64_t row = 0; row < batch.rows; ++row) add_row(step * settings_.rows + row, batch);
    return batch;
  }

 private:
  [[nodiscard]] std::size_t unit_at(std::int64_t token) const {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), token) -
                                    ends_.begin());
  }

  void add_row(std::int64_t row, Batch& batch) const {
    Random random(settings_.seed, Stream::batches, static_cast<std::uint64_t>(row));
    const std::int64_t both = settings_.tokens - 3, a = (both + 1) / 2, b = both - a;
    const bool is_same = random.uniform() < 0.5;
    const std::size_t one = unit_at(random.below(total_));
    std::int64_t first_a = units_[one].first, first_b = 0;
    if (is_same) {
      // Two passages in either order, and the free tokens before, between and after them.
      const std::int64_t rest = units_[one].count - both;
      std::int64_t before = random.below(rest + 1), gap = random.below(rest + 1);
      if (gap < before) std::swap(before, gap);
      const bool is_reversed = random.uniform() < 0.5;
      first_b = first_a + (is_reversed ? before : gap + a);
      first_a += is_reversed ? gap + b : before;
    } else {
      // Another unit: of the tokens that are not in the first one.
      std::int64_t token = random.below(total_ - units_[one].count);
      if (token >= ends_[one] - units_[one].count) token += units_[one].count;
      const Span& other = units_[unit_at(token)];
      first_a += random.below(units_[one].count - a + 1);
      first_b = other.first + random.below(other.count - b + 1);
    }
    const auto add = [&](std::int64_t first, std::int64_t count, std::int32_t type) {
      for (std::int64_t i = first; i < first + count; ++i) batch.ids.push_back((*corpus_)[i]);
      batch.ids.push_back(separate_);
      batch.token_types.resize(batch.ids.size(), type);
    };
    batch.ids.push_back(classify_);
    add(first_a, a, 0);
    add(first_b, b, 1);
    batch.labels.push_back(is_same ? 1 : 0);
  }

  std::shared_ptr<const TokenCorpus> corpus_;
  BatchSettings settings_;
  std::int32_t classify_, separate_;
  std::vector<Span> units_;
  std::vector<std::int64_t> ends_;  // of the units, if they were one text
  std::int64_t total_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace

std::unique_ptr<Batches> matching_batches(std::shared_ptr<const TokenCorpus> corpus,
                                          const BatchSettings& settings,
                                          const MatchingSettings& matching) {
  check_settings(settings, 5);
  return std::make_unique<MatchingBatches>(std::move(corpus), settings, matching);
}

}  // namespace phasor::lab
