#include "attention/floats.hpp"

#include <cstring>
#include <utility>

#include "attention/kernels/kernels.hpp"
#include "phasor/core/internal/large_memory.hpp"

namespace phasor::attention {

Floats::Floats(std::int64_t count) : count_(count) {
  const auto padded = static_cast<std::size_t>(count + 2 * kernels::kWidest);
  auto memory = core::allocate_large(padded, sizeof(float));
  auto* const floats = reinterpret_cast<float*>(memory.get());
  std::memset(floats, 0, padded * sizeof(float));
  memory_ = std::shared_ptr<float[]>(std::move(memory), floats);
}

void Floats::reserve(std::int64_t count) {
  if (count > count_) *this = Floats(count);
}

}  // namespace phasor::attention
