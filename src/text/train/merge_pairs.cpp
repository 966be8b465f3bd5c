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
        add(pairs_[key_of(symbols[i - 1], symbols[i])], w);
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
    left_ = static_cast<std::int32_t>(key >> 32);
    right_ = static_cast<std::int32_t>(key & 0xffffffffU);
    result_ = result;
    if (near_.size() <= static_cast<std::size_t>(result))
      near_.resize(2 * static_cast<std::size_t>(result) + 1);
    const std::vector<std::uint32_t> holders = std::move(pairs_[key].words);
    for (const std::uint32_t w : holders) merge_in(w);
    pairs_.erase(key);
    // Pairs that became more frequent; those that became rarer are seen when they reach the top.
    for (const std::int32_t symbol : touched_) {
      for (const PairKey risen : {key_of(symbol, result), key_of(result, symbol)})
        if (const auto found = pairs_.find(risen); found != pairs_.end())
          offer(risen, found->second);
      near_[static_cast<std::size_t>(symbol)] = {};
    }
    touched_.clear();
  }

 private:
  // The pairs of one symbol with the parts and with the result of the merge at hand: looked up once, not
  // at each place.
  struct Neighbour {
    PairPlaces *before_left = nullptr, *before_result = nullptr;
    PairPlaces *after_right = nullptr, *after_result = nullptr;
  };

  void offer(PairKey key, const PairPlaces& places) {
    if (places.count >= settings_.min_frequency) queue_.push({places.count, key});
  }

  void add(PairPlaces& places, std::uint32_t word) {
    places.count += words_[word].count;
    if (places.words.empty() || places.words.back() != word) places.words.push_back(word);
  }

  Neighbour& near(std::int32_t symbol) {
    Neighbour& found = near_[static_cast<std::size_t>(symbol)];
    if (found.before_left == nullptr && found.after_right == nullptr) touched_.push_back(symbol);
    return found;
  }

  // From left to right, as encode() merges.
  void merge_in(std::uint32_t w) {
    std::vector<std::int32_t>& symbols = words_[w].symbols;
    const std::int64_t count = words_[w].count;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (symbols[i] != left_ || i + 1 == symbols.size() || symbols[i + 1] != right_) {
        symbols[kept++] = symbols[i];
        continue;
      }
      if (kept > 0) {
        const std::int32_t before = symbols[kept - 1];
        Neighbour& pairs = near(before);
        if (pairs.before_left == nullptr) {
          pairs.before_left = &pairs_[key_of(before, left_)];
          pairs.before_result = &pairs_[key_of(before, result_)];
        }
        pairs.before_left->count -= count;
        add(*pairs.before_result, w);
      }
      if (i + 2 < symbols.size()) {
        const std::int32_t after = symbols[i + 2];
        Neighbour& pairs = near(after);
        if (pairs.after_right == nullptr) {
          pairs.after_right = &pairs_[key_of(right_, after)];
          pairs.after_result = &pairs_[key_of(result_, after)];
        }
        pairs.after_right->count -= count;
        add(*pairs.after_result, w);
      }
      symbols[kept++] = result_;
      ++i;
    }
    symbols.resize(kept);
  }

  const MergeSettings& settings_;
  std::vector<CountedWord> words_;
  std::unordered_map<PairKey, PairPlaces> pairs_;  // its values keep their addresses
  std::priority_queue<RankedPair> queue_;
  std::int32_t left_ = 0, right_ = 0, result_ = 0;  // of the merge at hand
  std::vector<Neighbour> near_;                     // by symbol
  std::vector<std::int32_t> touched_;               // symbols in near_
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
