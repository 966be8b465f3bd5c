// Calls that are cancelled at a certain look at their cancellation: always at the same place with one
// thread, without any clock.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"

namespace phasor::test {

// While it lives, calls of this thread are cancelled at look number `index` (0: the first) of this
// thread.
class CancelledLook {
 public:
  explicit CancelledLook(std::int64_t index) noexcept : left_(index) {}

  [[nodiscard]] bool has_come() const noexcept { return left_ < 0; }

 private:
  static bool stop(void* self) { return static_cast<CancelledLook*>(self)->left_-- <= 0; }

  std::int64_t left_;
  core::CancellationScope scope_{nullptr, {&stop, this, std::chrono::milliseconds(0)}};
};

// Runs call(), which may be cancelled and fail in no other way; whether it ran to its end.
template <class Call>
bool runs_to_its_end(const Call& call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled) << error.what();
    return false;
  }
}

// Calls attempt() again and again, cancelling it at each of its first looks, then at ever fewer of them (a
// call may look thousands of times), until a call ends before that look; after each of the others calls
// check(). Returns the first look that did not come. attempt() must handle Error(cancelled).
template <class Attempt, class Check>
std::int64_t cancel_at_each_look(const Attempt& attempt, const Check& check) {
  for (std::int64_t index = 0;; index += 1 + index / 16) {
    bool came = false;
    {
      const CancelledLook look(index);
      attempt();
      came = look.has_come();
    }
    if (!came) return index;
    check(index);
  }
}

}  // namespace phasor::test
