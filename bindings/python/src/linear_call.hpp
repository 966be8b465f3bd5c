// The options of linear_attention(), its backward pass and its plan over ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "arrays.hpp"
#include "phasor/attention/linear.hpp"

namespace phasor::python {

// The options as Python gives them.
struct LinearArguments {
  bool causal = false;
  // phi and what is rotated, as keywords.
  std::string_view features = "elu_plus_one";
  std::int64_t feature_count = 0;
  std::uint64_t seed = 0;
  std::string_view rotates = "features";
  nb::handle key_padding = nb::none(), query_positions = nb::none(), key_positions = nb::none();
  int threads = 0;
};

// The options for C++, with the memory that they point to.
class LinearOptionsArgument {
 public:
  // throws   Error naming the argument
  LinearOptionsArgument(const LinearArguments& arguments, std::int64_t batch, std::int64_t keys);
  LinearOptionsArgument(const LinearOptionsArgument&) = delete;
  LinearOptionsArgument& operator=(const LinearOptionsArgument&) = delete;
  [[nodiscard]] const attention::LinearOptions& get() const noexcept { return options_; }
  // `encoding=`, resolved for keys of which the last is number `keys` of its sequence; None: none.
  [[nodiscard]] std::optional<core::Rotary> rotary(nb::handle encoding,
                                                   std::optional<std::int64_t> context,
                                                   std::int64_t keys) const;

 private:
  Numbers<std::uint8_t> key_padding_;
  attention::LinearOptions options_;
  std::int64_t keys_;
};

}  // namespace phasor::python
