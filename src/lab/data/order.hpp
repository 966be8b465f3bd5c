// The order in which rows are seen.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "phasor/lab/internal/batches.hpp"
#include "phasor/lab/internal/random.hpp"

namespace phasor::lab {

// The value at `index` of a permutation of [0, count) that the generator's key decides. O(1) memory and
// expected time: a Feistel network over the next power of four, repeated until the value is below count.
//
// precondition  0 <= index < count
[[nodiscard]] std::int64_t permuted(const Random& random, std::int64_t index,
                                    std::int64_t count) noexcept;

// throws   Error(invalid_argument): rows or tokens below `least_tokens`
void check_settings(const BatchSettings& settings, std::int64_t least_tokens);
// throws   Error(out_of_range)
void check_step(const BatchSettings& settings, std::int64_t step, std::int64_t steps);

// throws   Error(invalid_argument): none, by `name`
[[nodiscard]] std::int32_t needed(std::optional<std::int64_t> id, std::string_view name);

// Row numbers of batches over `count` rows. Shuffled: rows of similar `lengths` share a batch. An epoch's
// order is computed when it is first asked for.
class RowOrder {
 public:
  // throws   Error(invalid_argument): shuffled with fewer rows than a batch has
  RowOrder(const BatchSettings& settings, std::vector<std::int64_t> lengths);
  [[nodiscard]] std::int64_t steps() const noexcept;
  [[nodiscard]] std::vector<std::int64_t> rows_of(std::int64_t step) const;

 private:
  void order_epoch(std::int64_t epoch) const;

  BatchSettings settings_;
  std::vector<std::int64_t> lengths_;
  mutable std::int64_t epoch_ = -1;
  mutable std::vector<std::int64_t> order_;
};

}  // namespace phasor::lab
