// Pair matching: do two passages come from the same work?
#include <algorithm>

#include "lab/data/order.hpp"
#include "phasor/core/error.hpp"

namespace phasor::lab {
namespace {

using Ids = std::vector<std::int32_t>;

// The ids of each unit, without what stands between its sections: [SEP] may, and passages hold none.
std::vector<Ids> units_of(const TokenCorpus& corpus, Unit unit) {
  std::vector<Ids> units;
  std::int32_t work = -1;
  for (const TokenCorpus::Section& section : corpus.sections()) {
    if (unit == Unit::section || section.work != work) units.emplace_back();
    for (std::int64_t i = 0; i < section.count; ++i) {
      units.back().push_back(corpus[section.first + i]);
    }
    work = section.work;
  }
  return units;
}

class MatchingBatches final : public Batches {
 public:
  MatchingBatches(const TokenCorpus& corpus, const BatchSettings& settings,
                  const MatchingSettings& matching)
      : settings_(settings),
        classify_(needed(corpus.specials().classify, "[CLS]")),
        separate_(needed(corpus.specials().separate, "[SEP]")),
        units_(units_of(corpus, matching.unit)) {
    const std::int64_t longest = std::max(matching.longest_tokens, settings.tokens);
    const std::int64_t least = longest - 3;  // two passages
    left_out_ = std::erase_if(units_, [&](const Ids& unit) { return size_of(unit) < least; });
    if (units_.size() < 2) {
      refuse(message("batches: matching needs at least 2 units of at least ", least,
                     " tokens, got ", units_.size(), " of ", units_.size() + left_out_));
    }
    for (const Ids& unit : units_) {
      total_ += size_of(unit);
      ends_.push_back(total_);
    }
  }

  [[nodiscard]] std::int64_t steps() const noexcept override {
    return std::max<std::int64_t>(
        1, kPairsOfToken * total_ / (settings_.rows * (settings_.tokens - 3)));
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
  [[nodiscard]] static std::int64_t size_of(const Ids& unit) noexcept {
    return static_cast<std::int64_t>(unit.size());
  }
  [[nodiscard]] std::size_t unit_at(std::int64_t token) const {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), token) -
                                    ends_.begin());
  }

  void add_row(std::int64_t row, Batch& batch) const {
    Random random(settings_.seed, Stream::batches, static_cast<std::uint64_t>(row));
    const std::int64_t both = settings_.tokens - 3, a = (both + 1) / 2, b = both - a;
    const bool is_same = random.uniform() < 0.5;
    const std::size_t one = unit_at(random.below(total_));
    const std::int64_t count = size_of(units_[one]);
    std::size_t other = one;
    std::int64_t first_a = 0, first_b = 0;
    if (is_same) {
      // Two passages in either order, and the free tokens before, between and after them.
      const std::int64_t rest = count - both;
      std::int64_t before = random.below(rest + 1), gap = random.below(rest + 1);
      if (gap < before) std::swap(before, gap);
      const bool is_reversed = random.uniform() < 0.5;
      first_b = is_reversed ? before : gap + a;
      first_a = is_reversed ? gap + b : before;
    } else {
      // Another unit: of the tokens that are not in the first one.
      std::int64_t token = random.below(total_ - count);
      if (token >= ends_[one] - count) token += count;
      other = unit_at(token);
      first_a = random.below(count - a + 1);
      first_b = random.below(size_of(units_[other]) - b + 1);
    }
    const auto add = [&](std::size_t unit, std::int64_t first, std::int64_t length,
                         std::int32_t type) {
      const auto begin = units_[unit].begin() + first;
      batch.ids.insert(batch.ids.end(), begin, begin + length);
      batch.ids.push_back(separate_);
      batch.token_types.resize(batch.ids.size(), type);
    };
    batch.ids.push_back(classify_);
    add(one, first_a, a, 0);
    add(other, first_b, b, 1);
    batch.labels.push_back(is_same ? 1 : 0);
  }

  BatchSettings settings_;
  std::int32_t classify_, separate_;
  std::vector<Ids> units_;
  std::vector<std::int64_t> ends_;  // of the units, if they were one text
  std::int64_t total_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace

std::unique_ptr<Batches> matching_batches(const TokenCorpus& corpus, const BatchSettings& settings,
                                          const MatchingSettings& matching) {
  check_settings(settings, 5);
  return std::make_unique<MatchingBatches>(corpus, settings, matching);
}

}  // namespace phasor::lab
