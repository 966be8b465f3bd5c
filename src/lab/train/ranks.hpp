// What a run does once, whatever the number of its ranks; and work that they divide.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "phasor/core/cancellation.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/lab/internal/exchange.hpp"

namespace phasor::lab {

// The ranks of an exchange. A null one, and one of a single rank, is this process alone.
class Ranks {
 public:
  explicit Ranks(GradientExchange* exchange = nullptr) noexcept
      : exchange_(exchange != nullptr && exchange->size() > 1 ? exchange : nullptr) {}

  // Null: this process is alone.
  [[nodiscard]] GradientExchange* exchange() const noexcept { return exchange_; }
  [[nodiscard]] int rank() const noexcept { return exchange_ == nullptr ? 0 : exchange_->rank(); }
  [[nodiscard]] int size() const noexcept { return exchange_ == nullptr ? 1 : exchange_->size(); }

  // All below are collective.

  // work() on rank 0 alone: what reads and writes files.
  //
  // throws   SharedError, on every rank: what work() threw
  void on_first(const std::function<void()>& work) const;
  // The value of rank 0.
  template <class Value>
  void share(Value& value) const {
    static_assert(std::is_trivially_copyable_v<Value>);
    if (exchange_ != nullptr) exchange_->broadcast(std::as_writable_bytes(std::span(&value, 1)));
  }
  [[nodiscard]] bool any_requested(const core::Cancellation* cancellation) const;

  // part(0), ..., part(count - 1): rank r computes those of index r, r + size(), ...; all ranks get all,
  // bit for bit as one rank has them.
  //
  // throws   SharedError, on every rank: what part() threw on one of them, the lowest
  [[nodiscard]] std::vector<std::string> divided(
      std::int64_t count, const std::function<std::string(std::int64_t)>& part) const;

  // Refuses on every rank unless all have the same document.
  //
  // throws   SharedError(invalid_argument) with the first rank that differs from rank 0, and where
  void agree(std::string_view what, const io::Json& document) const;

 private:
  GradientExchange* exchange_;
};

// Numbers as bytes, for Ranks::divided().
template <class Value>
[[nodiscard]] std::string bytes_of(std::span<const Value> values) {
  static_assert(std::is_trivially_copyable_v<Value>);
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}
template <class Value>
[[nodiscard]] std::vector<Value> values_of(std::string_view bytes) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::vector<Value> values(bytes.size() / sizeof(Value));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace phasor::lab
