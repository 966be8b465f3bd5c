// What one call of a stack reads, and plans of attention for its sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "lab/nn/ops.hpp"
#include "lab/nn/parameters.hpp"
#include "lab/nn/position.hpp"
#include "phasor/attention/linear.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::lab {

enum class CrossAttention : std::uint8_t { none, present };
enum class Pass : std::uint8_t { evaluate, train };

// What one call of a stack reads.
template <class T>
struct StackInput {
  std::int64_t rows = 0, tokens = 0;
  std::span<const std::uint8_t> mask = {};      // [rows, tokens], or empty
  std::span<const std::int32_t> segments = {};  // [rows, tokens], or empty
  const T* memory = nullptr;  // [rows, memory_tokens, hidden]: the encoder's output
  std::int64_t memory_tokens = 0;
  std::span<const std::uint8_t> memory_mask = {};  // [rows, memory_tokens], or empty
  Pass pass = Pass::evaluate;
  std::uint64_t dropout_key =
      0;  // of this call; each place where numbers are dropped derives its own
  // As TrainOptions.
  std::int64_t first_row = 0;
  const std::function<void(std::size_t)>* final_from = nullptr;
};

// Attention of given sizes.
template <class T>
struct Plans {
  std::int64_t rows = 0, tokens = 0, memory_tokens = 0;
  bool masked = false, memory_masked = false;
  Pass pass = Pass::evaluate;
  std::vector<TableSet<T>> tables = {};
  std::vector<attention::AttentionPlan> softmax = {};  // one for each table set, or one
  std::optional<attention::LinearPlan> linear = std::nullopt;
  std::optional<attention::AttentionPlan> cross = std::nullopt;
  std::vector<std::uint8_t> padding = {}, memory_padding = {};  // copies that the plans read
  std::vector<std::int32_t> segments = {};

  [[nodiscard]] bool fits(const StackInput<T>& input) const noexcept;
};

// Plans of the sizes that were used last.
template <class T>
class KeptPlans {
 public:
  KeptPlans(const ModelSpec& spec, Mask mask, CrossAttention cross)
      : spec_(spec), mask_(mask), cross_(cross) {}

  // Plans that fit the input, with its padding, its segments and the tables of these numbers. Valid
  // until the next call or forget().
  Plans<T>& of(const Workers& workers, const Numbers<T>& numbers, const PositionEncoding& position,
               const StackInput<T>& input);
  void forget() noexcept { plans_.clear(); }

 private:
  [[nodiscard]] Plans<T> make(const Workers& workers, const Numbers<T>& numbers,
                              const PositionEncoding& position, const StackInput<T>& input) const;

  ModelSpec spec_;
  Mask mask_;
  CrossAttention cross_;
  std::list<Plans<T>> plans_;  // newest first
};

}  // namespace phasor::lab
