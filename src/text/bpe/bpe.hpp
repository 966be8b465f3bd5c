// Byte pair encoding: merges pairs of symbols, the best pair first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace phasor::text {

// A hash map from two numbers to two numbers with open addressing: filled once, read often.
class PairMap {
 public:
  struct Value {
    std::int32_t rank = 0;  // lower merges first
    std::int32_t id = 0;
  };
  void reserve(std::size_t count);
  // False when the pair is there already; its value is unchanged.
  bool insert(std::int32_t left, std::int32_t right, Value value);
  [[nodiscard]] const Value* find(std::int32_t left, std::int32_t right) const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Slot {
    std::int32_t left = kFree, right = 0;
    Value value;
  };
  static constexpr std::int32_t kFree = -1;
  [[nodiscard]] std::size_t slot_of(std::int32_t left, std::int32_t right) const noexcept;
  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

// A part of a word.
struct Symbol {
  std::int32_t id = 0;      // negative: no token; never merges
  std::uint32_t begin = 0;  // its first byte in the word
};

// Memory that is reused for all words.
struct MergeRoom {
  struct Node {
    Symbol symbol;
    std::int32_t before = 0, after = 0;
  };
  struct Candidate {
    std::int32_t rank = 0, place = 0, left = 0, right = 0, id = 0;
  };
  std::vector<Node> nodes;
  std::vector<Candidate> heap;
};

// Merges until no pair of neighbours is in `merges`: always the pair of the lowest rank, of equal
// ones the leftmost.
//
// range    at most 2^31 - 1 symbols
// cost     O(n log n)
void merge_symbols(const PairMap& merges, std::vector<Symbol>& symbols, MergeRoom& room);

}  // namespace phasor::text
