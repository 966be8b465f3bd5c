// The merges of byte pair encoding, learnt from counted words.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace phasor::text {

// Tokens with their ids.
class TokenList {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return tokens_.size(); }
  [[nodiscard]] const std::string& operator[](std::int32_t id) const noexcept {
    return tokens_[static_cast<std::size_t>(id)];
  }
  // -1: none.
  [[nodiscard]] std::int32_t find(std::string_view token) const;
  // False when it is there already.
  bool add(std::string token);
  [[nodiscard]] std::vector<std::string> take() && { return std::move(tokens_); }

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
};

struct CountedWord {
  std::vector<std::int32_t> symbols = {};  // ids
  std::int64_t count = 0;
};

struct MergeSettings {
  std::size_t vocabulary = 0;  // stop at this many tokens
  std::int64_t min_frequency = 1;
  std::int32_t first_mergeable = 0;  // ids below are special tokens: no merge results in one
  std::function<std::string(const std::string& left, const std::string& right)> join;
};

// Merges the most frequent pair of neighbours, of equal ones that of the lowest ids, until the vocabulary
// is full or no pair is frequent enough. Adds tokens; returns the pairs in their order.
//
// throws   Error(cancelled)
[[nodiscard]] std::vector<std::pair<std::int32_t, std::int32_t>> merge_pairs(
    const MergeSettings& settings, std::vector<CountedWord> words, TokenList& tokens);

}  // namespace phasor::text
