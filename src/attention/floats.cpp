#include "attention/floats.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "attention/kernels/kernels.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/internal/large_memory.hpp"

namespace phasor::attention {
namespace {

std::int64_t padded(std::int64_t count) { return count + 2 * kernels::kWidest; }

std::shared_ptr<float[]> allocate(std::int64_t count) {
  auto memory = core::allocate_large(static_cast<std::size_t>(padded(count)), sizeof(float));
  auto* const floats = reinterpret_cast<float*>(memory.get());
  return {std::move(memory), floats};
}

// A block of more than half a huge page becomes whole ones: allocate_large() uses them from two on, and
// touching one takes less time than touching the hundreds of small pages of a part.
std::int64_t in_huge_pages(std::int64_t count) {
  constexpr std::int64_t kHugePage = (std::int64_t{2} << 20) / sizeof(float);
  constexpr std::int64_t kPadding = 2 * kernels::kWidest + core::kMemoryPadding / sizeof(float);
  if (count <= kHugePage / 2) return count;
  return std::max(2 * kHugePage, kernels::rounded_up(count + kPadding, kHugePage)) - kPadding;
}

}  // namespace

// The first touch of new memory takes most of the time: gigabytes take seconds.
void clear_floats(float* floats, std::int64_t count) {
  constexpr std::int64_t kAtOnce = std::int64_t{4} << 20;
  for (std::int64_t first = 0; first < count; first += kAtOnce) {
    core::throw_if_cancelled();
    std::memset(floats + first, 0,
                static_cast<std::size_t>(std::min(kAtOnce, count - first)) * sizeof(float));
  }
}

Floats::Floats(std::int64_t count) : memory_(allocate(count)), count_(count) {
  clear_floats(memory_.get(), padded(count));
}

void Floats::reserve(std::int64_t count) {
  if (count > count_) *this = Floats(count);
}

void Floats::reserve_untouched(std::int64_t count) {
  if (count <= count_) return;
  count = in_huge_pages(count);
  *this = Floats();  // freed before the larger block is allocated
  memory_ = allocate(count);
  count_ = count;
  // What kernels may read after the last slice.
  std::memset(memory_.get() + count, 0,
              static_cast<std::size_t>(padded(count) - count) * sizeof(float));
}

void Floats::reset(std::int64_t count) {
  if (count > count_) {
    *this = Floats();  // freed before the larger block is allocated
    *this = Floats(count);
  } else if (count > 0) {
    clear_floats(memory_.get(), padded(count));
  }
}

std::size_t Floats::bytes() const noexcept {
  // The block, and the count of its owners.
  return memory_ == nullptr
             ? 0
             : static_cast<std::size_t>(padded(count_)) * sizeof(float) + core::kMemoryPadding + 64;
}

Slice SliceCutter::take(std::int64_t count) noexcept {
  if (count <= 0) return {};
  const std::int64_t first = used_;
  used_ += kernels::rounded_up(count, kernels::kWidest) + 2 * kernels::kWidest;
  return {memory_ == nullptr ? nullptr : memory_ + first, count};
}

}  // namespace phasor::attention
