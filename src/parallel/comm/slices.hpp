// Lists cut into a slice for each rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace phasor::parallel {

// Where slice `index` of `count` begins; slice `slices` is the end.
[[nodiscard]] constexpr std::int64_t slice_start(std::int64_t count, std::int64_t slices,
                                                 std::int64_t index) noexcept {
  return count / slices * index + count % slices * index / slices;
}

template <class T>
[[nodiscard]] std::span<T> slice_of(std::span<T> list, int slices, int index) noexcept {
  const std::int64_t count = static_cast<std::int64_t>(list.size());
  const std::int64_t first = slice_start(count, slices, index);
  return list.subspan(static_cast<std::size_t>(first),
                      static_cast<std::size_t>(slice_start(count, slices, index + 1) - first));
}

}  // namespace phasor::parallel
