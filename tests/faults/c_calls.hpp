// Calls of the C API while memory is refused.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "faults/refused_memory.hpp"
#include "phasor/phasor.h"

namespace phasor::faults {

// Exit codes of a child.
inline constexpr int kWhole = 0, kStopped = 10, kWrong = 11;

// Thrown, by a type that needs no memory but what the exception itself needs, when a call cannot
// succeed any more.
struct Stopped {};

[[noreturn]] inline void wrong(const char* call, const char* why) {
  std::fprintf(stderr, "%s: %s\n", call, why);
  std::_Exit(kWrong);
}

// The functions that were called, for the check that none is missing.
inline std::set<std::string>*& called() {
  static std::set<std::string>* names = nullptr;
  return names;
}
inline void note(const char* call) {
  if (called() != nullptr) called()->insert(std::string(call, std::string_view(call).find('(')));
}

// A call fails only for want of memory, with a text that says so. A second call, when memory is back,
// succeeds.
template <class Call>
void expect_call(const char* name, Call call) {
  note(name);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::int64_t before = requests().refused;
    const phasor_status status = call();
    if (status == PHASOR_OK) return;
    if (requests().refused == before) wrong(name, phasor_last_error());
    if (status != PHASOR_INTERNAL && status != PHASOR_IO) wrong(name, phasor_last_error());
    if (std::string_view(phasor_last_error()).find("out of memory") == std::string_view::npos)
      wrong(name, phasor_last_error());
  }
  throw Stopped{};
}

// What a failing call must leave in *out.
template <class Handle>
[[nodiscard]] Handle* unset() {
  static char somewhere = 0;
  return reinterpret_cast<Handle*>(&somewhere);
}

// A handle that `create` makes; a failing call leaves it untouched.
template <class Handle, void (*kDestroy)(Handle*)>
class Owned {
 public:
  Owned() = default;
  ~Owned() { reset(); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  template <class Create>
  void make(const char* name, Create create) {
    reset();
    handle_ = unset<Handle>();
    struct Clear {
      Handle*& handle;
      ~Clear() {
        if (handle == unset<Handle>()) handle = nullptr;
      }
    } const clear{handle_};
    expect_call(name, [&] {
      const phasor_status status = create(&handle_);
      if ((status == PHASOR_OK) == (handle_ == unset<Handle>())) wrong(name, "*out is not right");
      return status;
    });
  }
  [[nodiscard]] Handle* get() const noexcept { return handle_; }

 private:
  void reset() {
    kDestroy(handle_);
    handle_ = nullptr;
  }
  Handle* handle_ = nullptr;
};
using Cancellation = Owned<phasor_cancellation, phasor_cancellation_destroy>;
using Rope = Owned<phasor_rope, phasor_rope_destroy>;
using Table = Owned<phasor_table, phasor_table_destroy>;
using Encoding = Owned<phasor_encoding, phasor_encoding_destroy>;
using Cache = Owned<phasor_cache, phasor_cache_destroy>;
using LinearState = Owned<phasor_linear_state, phasor_linear_state_destroy>;
using Model = Owned<phasor_model, phasor_model_destroy>;
using Sequence = Owned<phasor_sequence, phasor_sequence_destroy>;
using Tokenizer = Owned<phasor_tokenizer, phasor_tokenizer_destroy>;
using Config = Owned<phasor_config, phasor_config_destroy>;
using Text = Owned<phasor_text, phasor_text_destroy>;
using Ids = Owned<phasor_ids, phasor_ids_destroy>;

// PHASOR_CALL(phasor_f(x)): an expectation of a function that returns a status. PHASOR_MAKE(owned,
// phasor_f(x, out)): of one that makes a handle. PHASOR_NOTE(phasor_f(x)): a call that cannot fail.
#define PHASOR_CALL(expression) expect_call(#expression, [&] { return expression; })
#define PHASOR_MAKE(owned, expression) \
  (owned).make(#expression, [&](auto** out) { return expression; })
#define PHASOR_NOTE(expression) (note(#expression), expression)

// A part of the API, from nothing to the end. Files are in `folder`, which is made for each run.
struct Part {
  const char* name;
  void (*run)(const std::string& folder);
};
[[nodiscard]] const std::vector<Part>& rotation_parts();
[[nodiscard]] const std::vector<Part>& model_parts();

}  // namespace phasor::faults
