// Handles that destroy themselves, and tensors with a C view and a C++ view.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/view.hpp"
#include "phasor/phasor.h"

namespace phasor::capi::testing {

template <auto kDestroy>
struct Destroy {
  template <class Handle>
  void operator()(Handle* handle) const {
    kDestroy(handle);
  }
};
using Rope = std::unique_ptr<phasor_rope, Destroy<phasor_rope_destroy>>;
using Encoding = std::unique_ptr<phasor_encoding, Destroy<phasor_encoding_destroy>>;
using Cache = std::unique_ptr<phasor_cache, Destroy<phasor_cache_destroy>>;
using LinearState = std::unique_ptr<phasor_linear_state, Destroy<phasor_linear_state_destroy>>;
using Tokenizer = std::unique_ptr<phasor_tokenizer, Destroy<phasor_tokenizer_destroy>>;
using Config = std::unique_ptr<phasor_config, Destroy<phasor_config_destroy>>;

// The heads of most tests.
inline constexpr std::int64_t kHeads = 4, kKeyHeads = 2, kDim = 8;

// What a failing call must leave in *out.
template <class Handle>
[[nodiscard]] Handle* untouched() {
  static char somewhere = 0;
  return reinterpret_cast<Handle*>(&somewhere);
}

// The values that a message must show: names and numbers, never the sentence.
class Values {
 public:
  Values(const char* value) : values_{value} {}         // NOLINT(google-explicit-constructor)
  Values(const std::string& value) : values_{value} {}  // NOLINT(google-explicit-constructor)
  Values(std::initializer_list<std::string> values) : values_(values) {}

  [[nodiscard]] const std::vector<std::string>& get() const noexcept { return values_; }

 private:
  std::vector<std::string> values_;
};

inline void expect_status(phasor_status got, phasor_status expected, const Values& values) {
  EXPECT_EQ(got, expected) << phasor_last_error();
  const std::string_view text = phasor_last_error();
  for (const std::string& value : values.get())
    EXPECT_NE(text.find(value), std::string_view::npos) << "no \"" << value << "\" in: " << text;
  EXPECT_EQ(text.find('\n'), std::string_view::npos) << text;
}

inline Rope make_rope(std::int64_t head_dim, double base = 10000.0) {
  phasor_rope_spec spec;
  EXPECT_EQ(phasor_rope_spec_init(&spec, sizeof(spec)), PHASOR_OK);
  spec.head_dim = head_dim;
  spec.layout = PHASOR_HALF;
  spec.base = base;
  phasor_rope* rope = nullptr;
  EXPECT_EQ(phasor_rope_create(&spec, 0, &rope), PHASOR_OK) << phasor_last_error();
  return Rope(rope);
}

inline Encoding parse_encoding(const std::string& json, const char* folder = nullptr) {
  phasor_encoding* encoding = nullptr;
  EXPECT_EQ(phasor_encoding_parse(json.c_str(), folder, &encoding), PHASOR_OK)
      << phasor_last_error();
  return Encoding(encoding);
}

// A copy of the text, which is destroyed.
inline std::string taken(phasor_text* text) {
  std::string copy(phasor_text_data(text), phasor_text_size(text));
  EXPECT_EQ(phasor_text_data(text)[copy.size()], '\0');
  phasor_text_destroy(text);
  return copy;
}
inline std::vector<std::int64_t> taken(phasor_ids* ids) {
  std::vector<std::int64_t> copy(phasor_ids_data(ids),
                                 phasor_ids_data(ids) + phasor_ids_count(ids));
  phasor_ids_destroy(ids);
  return copy;
}

// [batch, tokens, heads, dim] of float32.
struct Tensor {
  Tensor(std::int64_t tokens, std::int64_t heads, float phase, std::int64_t dim = 8,
         std::int64_t batch = 1)
      : values(static_cast<std::size_t>(batch * tokens * heads * dim)),
        c(phasor_dense_heads(values.data(), PHASOR_F32, batch, tokens, heads, dim)),
        cpp(core::heads_view(values.data(), batch, tokens, heads, dim)) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(0.7F * static_cast<float>(i) + phase);
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  std::vector<float> values;
  phasor_heads c;
  core::HeadsView cpp;
};

}  // namespace phasor::capi::testing
