#include "text/bpe/bpe.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace phasor::text {
namespace {

constexpr std::int32_t kNone = -1;

// The order of a heap whose top is the best merge.
bool is_worse(const MergeRoom::Candidate& a, const MergeRoom::Candidate& b) noexcept {
  return std::pair{a.rank, a.place} > std::pair{b.rank, b.place};
}

void offer(const PairMap& merges, MergeRoom& room, std::int32_t place) {
  const MergeRoom::Node& node = room.nodes[static_cast<std::size_t>(place)];
  if (node.after == kNone) return;
  const std::int32_t left = node.symbol.id;
  const std::int32_t right = room.nodes[static_cast<std::size_t>(node.after)].symbol.id;
  if (left < 0 || right < 0) return;
  const PairMap::Value* const merge = merges.find(left, right);
  if (merge == nullptr) return;
  room.heap.push_back({merge->rank, place, left, right, merge->id});
}

}  // namespace

std::size_t PairMap::slot_of(std::int32_t left, std::int32_t right) const noexcept {
  // Fibonacci hashing with one more mix, since ids of a vocabulary are close together.
  std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
                      static_cast<std::uint32_t>(right);
  key = (key ^ key >> 29) * 0x9e3779b97f4a7c15ULL;
  key ^= key >> 32;
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = key & mask;
  while (slots_[slot].left != kFree && (slots_[slot].left != left || slots_[slot].right != right)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

void PairMap::reserve(std::size_t count) {
  const std::size_t wanted = std::bit_ceil(std::max<std::size_t>(16, count * 2));
  if (wanted <= slots_.size()) return;
  std::vector<Slot> old(wanted);
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.left != kFree) slots_[slot_of(slot.left, slot.right)] = slot;
}

bool PairMap::insert(std::int32_t left, std::int32_t right, Value value) {
  reserve(size_ + 1);
  Slot& slot = slots_[slot_of(left, right)];
  if (slot.left != kFree) return false;
  slot = {left, right, value};
  ++size_;
  return true;
}

const PairMap::Value* PairMap::find(std::int32_t left, std::int32_t right) const noexcept {
  if (size_ == 0) return nullptr;
  const Slot& slot = slots_[slot_of(left, right)];
  return slot.left == kFree ? nullptr : &slot.value;
}

void merge_symbols(const PairMap& merges, std::vector<Symbol>& symbols, MergeRoom& room) {
  if (symbols.size() < 2) return;
  const auto count = static_cast<std::int32_t>(symbols.size());
  room.nodes.clear();
  room.heap.clear();
  for (std::int32_t i = 0; i < count; ++i)
    room.nodes.push_back(
        {symbols[static_cast<std::size_t>(i)], i - 1, i + 1 == count ? kNone : i + 1});
  for (std::int32_t i = 0; i < count; ++i) offer(merges, room, i);
  std::make_heap(room.heap.begin(), room.heap.end(), is_worse);

  while (!room.heap.empty()) {
    std::pop_heap(room.heap.begin(), room.heap.end(), is_worse);
    const MergeRoom::Candidate best = room.heap.back();
    room.heap.pop_back();
    MergeRoom::Node& node = room.nodes[static_cast<std::size_t>(best.place)];
    // One part of the pair was merged in the meantime.
    if (node.symbol.id != best.left || node.after == kNone) continue;
    MergeRoom::Node& gone = room.nodes[static_cast<std::size_t>(node.after)];
    if (gone.symbol.id != best.right) continue;

    node.symbol.id = best.id;
    node.after = gone.after;
    gone.symbol.id = kNone;
    if (node.after != kNone) room.nodes[static_cast<std::size_t>(node.after)].before = best.place;
    for (const std::int32_t place : {node.before, best.place}) {
      if (place == kNone) continue;
      const std::size_t before = room.heap.size();
      offer(merges, room, place);
      if (room.heap.size() != before) std::push_heap(room.heap.begin(), room.heap.end(), is_worse);
    }
  }
  symbols.clear();
  for (std::int32_t i = 0; i != kNone; i = room.nodes[static_cast<std::size_t>(i)].after)
    symbols.push_back(room.nodes[static_cast<std::size_t>(i)].symbol);
}

}  // namespace phasor::text
