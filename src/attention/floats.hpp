// Memory for scratch.
#pragma once

#include <cstdint>
#include <memory>

namespace phasor::attention {

// Aligned floats, zero at first: kernels read behind the last number, and must not meet subnormal
// rubbish there. Copies share them.
class Floats {
 public:
  Floats() = default;
  // throws   std::bad_alloc
  explicit Floats(std::int64_t count);
  // Room for `count` floats: what is there, whatever it holds, or fresh zeros where that is less.
  //
  // throws   std::bad_alloc
  void reserve(std::int64_t count);
  [[nodiscard]] float* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }

 private:
  std::shared_ptr<float[]> memory_;
  std::int64_t count_ = 0;
};

}  // namespace phasor::attention
