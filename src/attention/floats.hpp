// Scratch memory of floats.
#pragma once

#include <cstdint>
#include <memory>

namespace phasor::attention {

// Aligned floats, zero at first: kernels read beyond the last number and must find finite values
// there. Copies share the memory.
class Floats {
 public:
  Floats() = default;
  // throws   std::bad_alloc; Error(cancelled)
  explicit Floats(std::int64_t count);
  // Room for `count` floats of any value; allocates zeros if the present memory is smaller.
  //
  // throws   std::bad_alloc; Error(cancelled)
  void reserve(std::int64_t count);
  // The same without touching new memory, whose first touch takes most of the time: the caller
  // clears it before use.
  //
  // throws   std::bad_alloc
  void reserve_untouched(std::int64_t count);
  // Room for `count` floats, all zero; allocates if the present memory is smaller.
  //
  // throws   std::bad_alloc; Error(cancelled)
  void reset(std::int64_t count);
  [[nodiscard]] float* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  // Of the allocated memory.
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  std::shared_ptr<float[]> memory_;
  std::int64_t count_ = 0;
};

// Sets `count` floats to zero.
//
// throws   Error(cancelled)
void clear_floats(float* floats, std::int64_t count);

// A view of some floats of a larger block.
class Slice {
 public:
  Slice() = default;
  Slice(float* data, std::int64_t count) noexcept : data_(data), count_(count) {}
  [[nodiscard]] float* data() const noexcept { return data_; }
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }

 private:
  float* data_ = nullptr;
  std::int64_t count_ = 0;
};

// Cuts one block of floats into slices, each aligned and followed by padding that kernels may read.
// Without memory it only counts: slices then have a count and no data.
class SliceCutter {
 public:
  explicit SliceCutter(float* memory = nullptr) noexcept : memory_(memory) {}
  // No floats: a slice without data.
  [[nodiscard]] Slice take(std::int64_t count) noexcept;
  [[nodiscard]] std::int64_t used() const noexcept { return used_; }
  // Everything taken since used() was `first`, with the padding.
  [[nodiscard]] Slice since(std::int64_t first) const noexcept {
    return {memory_ == nullptr ? nullptr : memory_ + first, used_ - first};
  }

 private:
  float* memory_;
  std::int64_t used_ = 0;
};

// Calls cut(SliceCutter&) twice: to count, and with zeros in `floats` to cut.
template <class Cut>
void cut_slices(Floats& floats, const Cut& cut) {
  SliceCutter counter;
  cut(counter);
  floats.reset(counter.used());
  SliceCutter cutter(floats.data());
  cut(cutter);
}

}  // namespace phasor::attention
