// Memory to measure in.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace phasor::bench {

// Page-aligned and touched: the first write to a fresh page is not what is measured.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes)
      : memory_(static_cast<float*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))),
        bytes_(bytes) {
    if (memory_ == nullptr) throw std::bad_alloc();
    for (std::size_t i = 0; i < count(); ++i)
      memory_.get()[i] = static_cast<float>(i % 251) * 0.01F - 1.25F;
  }
  [[nodiscard]] float* floats() const { return memory_.get(); }
  [[nodiscard]] std::size_t count() const { return bytes_ / sizeof(float); }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
  std::size_t bytes_;
};

}  // namespace phasor::bench
