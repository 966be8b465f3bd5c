#include "text/train/merge_pairs.hpp"

#include <algorithm>
#include <queue>

#include "phasor/core/cancellation.hpp"

namespace phasor::text {
namespace {

using PairKey = std::uint64_t;  // left id, right id: smaller keys are earlier pairs
PairKey key_of(std::int32_t left, std::int32_t right) noexcept {
  return static_cast<PairKey>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

struct PairPlaces {
  std::int64_t count = 0;
  // Words that hold the pair, each at least once; some may have lost it to another merge.
  std::vector<std::uint32_t> words;
};

struct RankedPair {
  std::int64_t count = 0;
  PairKey key = 0;
  // The order of a queue whose top is the most frequent pair.
  bool operator<(const RankedPair& other) const noexcept {
    return count != other.count ? count < other.count : key > other.key;
  }
};

class PairMerger {
 public:
  PairMerger(const MergeSettings& settings, std::vector<CountedWord> words)
      : settings_(settings), words_(std::move(words)) {
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const std::vector<std::int32_t>& symbols = words_[w].symbols;
      for (std::size_t i = 1; i < symbols.size(); ++i)
        change(key_of(symbols[i - 1], symbols[i]), words_[w].count, w);
      risen_.clear();
    }
    for (const auto& [key, places] : pairs_) offer(key, places);
  }

  // False when no pair is frequent enough.
  bool next(RankedPair& best) {
    while (!queue_.empty()) {
      best = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(best.key);
      if (found == pairs_.end()) continue;
      if (found->second.count == best.count) return true;
      offer(best.key, found->second);  // an older count: back to its place
    }
    return false;
  }

  void drop(PairKey key) { pairs_.erase(key); }

  void merge(PairKey key, std::int32_t result) {
    const auto left = static_cast<std::int32_t>(key >> 32);
    const auto right = static_cast<std::int32_t>(key & 0xffffffffU);
    const std::vector<std::uint32_t> holders = std::move(pairs_[key].words);
    for (const std::uint32_t w : holders) merge_in(w, left, right, result);
    pairs_.erase(key);
    // Pairs that became more frequent; those that became rarer are seen when they reach the top.
    std::sort(risen_.begin(), risen_.end());
    risen_.erase(std::unique(risen_.begin(), risen_.end()), risen_.end());
    for (const PairKey risen : risen_)
      if (const auto found = pairs_.find(risen); found != pairs_.end()) offer(risen, found->second);
    risen_.clear();
  }

 private:
  void offer(PairKey key, const PairPlaces& places) {
    if (places.count >= settings_.min_frequency) queue_.push({places.count, key});
  }

  void change(PairKey key, std::int64_t by, std::uint32_t word) {
    PairPlaces& places = pairs_[key];
    places.count += by;
    if (by < 0) return;
    if (places.words.empty() || places.words.back() != word) places.words.push_back(word);
    risen_.push_back(key);
  }

  // From left to right, as encode() merges.
  void merge_in(std::uint32_t w, std::int32_t left, std::int32_t right, std::int32_t result) {
    std::vector<std::int32_t>& symbols = words_[w].symbols;
    const std::int64_t count = words_[w].count;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (symbols[i] != left || i + 1 == symbols.size() || symbols[i + 1] != right) {
        symbols[kept++] = symbols[i];
        continue;
      }
      if (kept > 0) {
        change(key_of(symbols[kept - 1], left), -count, w);
        change(key_of(symbols[kept - 1], result), count, w);
      }
      if (i + 2 < symbols.size()) {
        change(key_of(right, symbols[i + 2]), -count, w);
        change(key_of(result, symbols[i + 2]), count, w);
      }
      symbols[kept++] = result;
      ++i;
    }
    symbols.resize(kept);
  }

  const MergeSettings& settings_;
  std::vector<CountedWord> words_;
  std::unordered_map<PairKey, PairPlaces> pairs_;
  std::priority_queue<RankedPair> queue_;
  std::vector<PairKey> risen_;
};

}  // namespace

std::int32_t TokenList::find(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  return found == ids_.end() ? -1 : found->second;
}

bool TokenList::add(std::string token) {
  const bool is_new = ids_.emplace(token, static_cast<std::int32_t>(tokens_.size())).second;
  if (is_new) tokens_.push_back(std::move(token));
  return is_new;
}

std::vector<std::pair<std::int32_t, std::int32_t>> merge_pairs(const MergeSettings& settings,
                                                               std::vector<CountedWord> words,
                                                               TokenList& tokens) {
  PairMerger merger(settings, std::move(words));
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
  std::unordered_map<PairKey, std::int32_t> made;
  RankedPair best;
  while (tokens.size() < settings.vocabulary && merger.next(best)) {
    if (merges.size() % 256 == 0) core::throw_if_cancelled();
    const auto left = static_cast<std::int32_t>(best.key >> 32);
    const auto right = static_cast<std::int32_t>(best.key & 0xffffffffU);
    // Two pairs may have one result: ab + c and a + bc.
    std::string joined = settings.join(tokens[left], tokens[right]);
    std::int32_t result = tokens.find(joined);
    if (result >= 0 && result < settings.first_mergeable) {
      merger.drop(best.key);
      continue;
    }
    if (result < 0) {
      result = static_cast<std::int32_t>(tokens.size());
      (void)tokens.add(std::move(joined));
    }
    // A pair that comes back, because another pair made its left or right part, is not listed again.
    if (made.emplace(best.key, result).second) merges.emplace_back(left, right);
    merger.merge(best.key, result);
  }
  return merges;
}

}  // namespace phasor::text
